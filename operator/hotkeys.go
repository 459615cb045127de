package operator

import (
	"cmp"
	"slices"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Skewed is implemented by operators that know which keys they get the most records of. The subtask's goroutine calls it.
type Skewed interface {
	// HotKeys tells which keys had the most of the records of the last ten seconds or so, at most HotKeysShown of them, and
	// lets those before fade. It is called about once a second.
	HotKeys() job.HotKeys
}

// HotKeysShown is how many keys of an operator are told of.
const HotKeysShown = 10

const (
	hotCounters = 128 // More than ten times as many as are shown, so that these are right.
	// hotSamples is how many records are looked at between two calls of shown, up to four times as many: enough to tell a
	// share of 1 % from none, and some 100 µs.
	hotSamples = 512
	hotFade    = 0.9 // Of what was counted before a call is kept.
	// hotKeyText is how much of a key is shown, in bytes.
	hotKeyText = 64
)

// hotKeys estimates which keys have the most records. It looks at a sample of them, the smaller the more records there are,
// of which it counts the most frequent keys in the manner of Metwally, Agrawal and El Abbadi, "Efficient computation of
// frequent and top-k elements in data streams" (space-saving): with n counters a key that has more than 1/n of all is
// among them, and each counter tells by how much it may be too high.
type hotKeys[K comparable] struct {
	kc   codec.Codec[K]
	keys []K // By counter.
	hotCounts
}

// hotCounts is the part of hotKeys that does not depend on the type of keys.
type hotCounts struct {
	skip    int    // Records to pass before the next one that is looked at.
	gap     int    // One of so many is looked at.
	sampled int    // Since the last call of shown, or since gap was made longer.
	random  uint64 // Of xorshift.

	hashes []uint64
	counts []float64
	over   []float64 // By how much a count may be too high.
	total  float64
}

func (h *hotKeys[K]) open(kc codec.Codec[K]) {
	h.kc = kc
	h.gap, h.random = 1, 0x9E3779B97F4A7C15
}

// look counts some of the selected rows of b with index from..to-1.
func (h *hotKeys[K]) look[T any](b *record.Batch[T], from, to int, key func(*T) K, hash func(*K) uint64) {
	n := to - from
	for h.skip < n {
		i := from + h.skip
		if b.Sel != nil {
			i = int(b.Sel[i])
		}
		k := key(&b.Rows[i])
		var sum uint64
		if i < len(b.Hash) {
			sum = b.Hash[i]
		} else {
			sum = hash(&k)
		}
		h.add(&k, sum, 1)
	}
	h.skip -= n
}

// lookPartials is look for rows that senders have combined: each is chosen as a record is and stands for all that are in it.
func lookPartials[K comparable, A any](h *hotKeys[K], b *record.Batch[partial[K, A]], from, to int, hash func(*K) uint64) {
	n := to - from
	for h.skip < n {
		i := from + h.skip
		row := &b.Rows[i]
		h.add(&row.Key, hashOf(b, i, hash), row.Count)
	}
	h.skip -= n
}

// add counts a record that was chosen, which stands for n, and chooses the next one.
func (h *hotKeys[K]) add(k *K, sum uint64, n int64) {
	weight := float64(h.gap) * float64(n)
	if i, fresh := h.counter(sum, weight); fresh {
		// A copy, so that what a key was cut out of does not live on. It is made for a sample only.
		var own K
		h.kc.Copy(&own, k)
		if i == len(h.keys) {
			h.keys = append(h.keys, own)
		} else {
			h.keys[i] = own
		}
	}
	h.skip += h.next()
}

// counter adds weight to the counter of a key; fresh tells that it was another key's, or nobody's.
func (h *hotCounts) counter(sum uint64, weight float64) (i int, fresh bool) {
	h.total += weight
	if i := slices.Index(h.hashes, sum); i >= 0 {
		h.counts[i] += weight
		return i, false
	}
	if len(h.hashes) < hotCounters {
		h.hashes, h.counts, h.over = append(h.hashes, sum), append(h.counts, weight), append(h.over, 0)
		return len(h.hashes) - 1, true
	}
	least := 0
	for j, c := range h.counts {
		if c < h.counts[least] {
			least = j
		}
	}
	h.hashes[least], h.over[least] = sum, h.counts[least]
	h.counts[least] += weight
	return least, true
}

// next is how far away the next record is that is looked at. It is not always the same number of records, so that what
// comes in turn is not missed.
func (h *hotCounts) next() int {
	if h.sampled++; h.sampled > 4*hotSamples {
		h.gap, h.sampled = 2*h.gap, 0
	}
	if h.gap == 1 {
		return 1
	}
	h.random ^= h.random << 13
	h.random ^= h.random >> 7
	h.random ^= h.random << 17
	return 1 + int(h.random%uint64(2*h.gap-1))
}

// fade makes what was counted so far count less.
func (h *hotCounts) fade() {
	if h.total *= hotFade; h.total < 1 {
		// The records of long ago. The counters begin anew.
		h.total, h.hashes, h.counts, h.over = 0, h.hashes[:0], h.counts[:0], h.over[:0]
	}
	for i := range h.counts {
		h.counts[i] *= hotFade
		h.over[i] *= hotFade
	}
	if h.sampled < hotSamples {
		h.gap = max(1, h.gap/2)
	}
	h.sampled = 0
}

// shown is Skewed's HotKeys.
func (h *hotKeys[K]) shown() job.HotKeys {
	order := make([]int, len(h.counts))
	for i := range order {
		order[i] = i
	}
	sure := func(i int) float64 { return h.counts[i] - h.over[i] }
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(sure(b), sure(a)) })
	out := job.HotKeys{Total: h.total}
	schema := h.kc.Schema()
	for _, i := range order[:min(len(order), HotKeysShown)] {
		if sure(i) <= 0 {
			break
		}
		text := ""
		if data, err := h.kc.Append(nil, &h.keys[i]); err == nil {
			text = schema.Text(data, hotKeyText)
		}
		out.Keys = append(out.Keys, job.HotKey{Key: text, Records: sure(i)})
	}
	h.fade()
	h.keys = h.keys[:len(h.hashes)]
	return out
}
