package operator

import (
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend"
)

// timerKey is the key of a timer in keyed state: one per time and key.
type timerKey[K comparable] struct {
	Key  K
	Time int64
}

// timers are the event-time timers of a keyed operator, or its processing-time timers. The state is what a checkpoint holds; the
// index, keys by time under a heap of times, is rebuilt from it. A timer that was taken back stays
// in both, as false, until its time comes: so a key that sets and takes back one timer with every
// record has one entry, not one for each record.
type timers[K comparable] struct {
	state statebackend.Value[timerKey[K], bool]
	hash  func(*K) uint64
	index timeIndex[hashed[K]]
	cur   timerKey[K] // Storage of the current timer.
	off   int         // How many were taken back and are still there.
}

type hashed[K comparable] struct {
	key  K
	hash uint64
}

func slotAt(hash uint64, time int64) uint64 {
	h := hash ^ uint64(time)*0x9E3779B97F4A7C15
	h ^= h >> 32
	h *= 0xD6E8FEB86659FD93
	return h ^ h>>32
}

func openTimers[K comparable](name string, b statebackend.Backend, kc codec.Codec[K], hash func(*K) uint64) (*timers[K], error) {
	t := &timers[K]{hash: hash}
	desc := statebackend.ValueDesc[timerKey[K], bool]{
		Name: name, Key: timerCodec[K]{kc}, Value: codec.Bool(),
		Hash: func(k *timerKey[K]) (uint64, uint64) {
			h := hash(&k.Key)
			return h, slotAt(h, k.Time)
		},
	}
	s, err := statebackend.OpenValue(b, desc)
	if err != nil {
		return nil, err
	}
	t.state = s
	return t, nil
}

// rebuild fills the index from restored state.
func (t *timers[K]) rebuild() {
	for k, on := range t.state.All() {
		t.index.add(k.Time, hashed[K]{k.Key, t.hash(&k.Key)})
		if !*on {
			t.off++
		}
	}
}

func (t *timers[K]) set(key *K, hash uint64, time int64) {
	t.cur.Key, t.cur.Time = *key, time
	v, fresh := t.state.Upsert(hash, slotAt(hash, time), &t.cur)
	switch {
	case fresh:
		t.index.add(time, hashed[K]{*key, hash})
	case !*v:
		t.off--
	}
	*v = true
}

// remove takes the timer back.
func (t *timers[K]) remove(key *K, hash uint64, time int64) {
	t.cur.Key, t.cur.Time = *key, time
	slot, off := slotAt(hash, time), false
	if v := t.state.Get(hash, slot, &t.cur); v != nil && *v {
		t.state.Set(hash, slot, &t.cur, &off)
		t.off++
	}
}

// pop takes the next timer that is due at watermark w.
func (t *timers[K]) pop(w int64) (k hashed[K], time int64, ok bool) {
	for {
		time, ok = t.index.first()
		if !ok || time > w {
			return k, 0, false
		}
		k = t.index.pop()
		t.cur.Key, t.cur.Time = k.key, time
		slot := slotAt(k.hash, time)
		on := true
		if t.off > 0 { // Only then one has to look.
			if v := t.state.Get(k.hash, slot, &t.cur); v != nil && !*v {
				on = false
				t.off--
			}
		}
		if t.state.Delete(k.hash, slot, &t.cur) && on {
			return k, time, true
		}
	}
}

func (t *timers[K]) due(w int64) bool {
	first, ok := t.index.first()
	return ok && first <= w
}

// timerCodec encodes a timerKey as the key followed by 8 bytes of time.
type timerCodec[K comparable] struct{ key codec.Codec[K] }

func (c timerCodec[K]) Append(dst []byte, v *timerKey[K]) ([]byte, error) {
	dst, err := c.key.Append(dst, &v.Key)
	if err != nil {
		return dst, err
	}
	return codec.Int64().Append(dst, &v.Time)
}

func (c timerCodec[K]) Decode(src []byte, v *timerKey[K]) (int, error) {
	n, err := c.key.Decode(src, &v.Key)
	if err != nil {
		return n, err
	}
	m, err := codec.Int64().Decode(src[n:], &v.Time)
	return n + m, err
}

func (c timerCodec[K]) Copy(dst, src *timerKey[K]) {
	c.key.Copy(&dst.Key, &src.Key)
	dst.Time = src.Time
}

func (c timerCodec[K]) Schema() codec.Schema {
	return codec.Schema{Codec: "key-time", Version: 1, Shape: c.key.Schema().String()}
}
