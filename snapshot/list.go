package snapshot

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
)

// The kinds of the handles of operator state.
const (
	// KindList is a list of items that is dealt out again when the parallelism changes.
	KindList = "list"
	// KindBroadcast is a list that is the same in every subtask.
	KindBroadcast = "broadcast"
)

const (
	listMagic   = "CAIRNLST"
	listVersion = 1
	// maxList bounds a list's bytes: it is read whole.
	maxList = 1 << 30
)

// List writes operator state: the items of this subtask. Codec is the schema of an item. An empty list is
// written too, so that a restore knows that there was one.
func (o *OperatorWriter) List(ctx context.Context, state, kind, codec string, items [][]byte) (job.StateHandle, error) {
	if kind != KindList && kind != KindBroadcast {
		return job.StateHandle{}, fmt.Errorf("operator %q, state %q: operator state is of kind %s or %s, not %q", o.operator, state, KindList, KindBroadcast, kind)
	}
	h, err := o.Section(ctx, state, func(w io.Writer) error {
		_, err := w.Write(EncodeList(items))
		return err
	})
	if err != nil {
		return job.StateHandle{}, fmt.Errorf("operator %q: snapshot of state %q for checkpoint %v: %w", o.operator, state, o.w.c.Checkpoint, err)
	}
	h.Name, h.Kind, h.Codec, h.Entries = state, kind, codec, int64(len(items))
	h.Groups = job.GroupRange{First: 0, Last: -1}
	return h, nil
}

// EncodeList is the bytes of a list.
func EncodeList(items [][]byte) []byte {
	b := append([]byte(listMagic), listVersion)
	b = binary.AppendUvarint(b, uint64(len(items)))
	for _, item := range items {
		b = binary.AppendUvarint(b, uint64(len(item)))
		b = append(b, item...)
	}
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b))
}

// DecodeList reads the bytes of a list. The items share data's memory.
func DecodeList(data []byte) ([][]byte, error) {
	const head = len(listMagic) + 1
	if len(data) < head+1+8 || string(data[:len(listMagic)]) != listMagic {
		return nil, corrupt("it is no list")
	}
	if v := data[len(listMagic)]; v != listVersion {
		return nil, fmt.Errorf("list of version %d: this program reads version %d", v, listVersion)
	}
	body := data[:len(data)-8]
	if xxh3.Hash(body) != binary.LittleEndian.Uint64(data[len(body):]) {
		return nil, corrupt("the hash of the list does not agree")
	}
	rest := body[head:]
	next := func() (uint64, bool) {
		v, n := binary.Uvarint(rest)
		if n <= 0 {
			return 0, false
		}
		rest = rest[n:]
		return v, true
	}
	count, ok := next()
	if !ok || count > uint64(len(rest)) { // An item takes a byte at least.
		return nil, corrupt("a list of %d items in %d bytes", count, len(rest))
	}
	items := make([][]byte, count)
	for i := range items {
		n, ok := next()
		if !ok || n > uint64(len(rest)) {
			return nil, corrupt("item %d of the list is cut short", i)
		}
		items[i], rest = rest[:n:n], rest[n:]
	}
	if len(rest) > 0 {
		return nil, corrupt("%d bytes behind the last item of the list", len(rest))
	}
	return items, nil
}

// Part is a share of a list: items First, First + Step, First + 2 Step, ... of the one that Handle refers to.
type Part struct {
	Handle      job.StateHandle
	First, Step int64
}

// Len is the number of items of the part.
func (p Part) Len() int64 {
	if p.First >= p.Handle.Entries {
		return 0
	}
	return (p.Handle.Entries - p.First + p.Step - 1) / p.Step
}

// Redistribute says which items of an operator's list or broadcast state a subtask gets when the operator is
// restored with the given parallelism. With the same one every subtask gets its own list back; with another
// one the items, counted over all old subtasks in order, are dealt out in turn. Every item of a list goes to
// exactly one subtask; of broadcast state each subtask gets all items that one old subtask had.
// The second result tells whether the checkpoint has such a state at all.
func Redistribute(old job.OperatorSnapshot, state string, subtask, parallelism int) ([]Part, bool) {
	var of []job.StateHandle // By old subtask; zero where there is none.
	found, broadcast := false, false
	for _, s := range old.Subtasks {
		var mine job.StateHandle
		for _, h := range s.States {
			if h.Name == state && (h.Kind == KindList || h.Kind == KindBroadcast) {
				mine, found, broadcast = h, true, h.Kind == KindBroadcast
			}
		}
		of = append(of, mine)
	}
	if !found {
		return nil, false
	}
	var parts []Part
	add := func(h job.StateHandle, first, step int64) {
		if p := (Part{h, first, step}); p.Len() > 0 {
			parts = append(parts, p)
		}
	}
	switch {
	case broadcast:
		for i := range of { // Its own, or the next that there is.
			if h := of[(subtask+i)%len(of)]; h.Kind != "" {
				add(h, 0, 1)
				break
			}
		}
	case len(of) == parallelism:
		add(of[subtask], 0, 1)
	default:
		p := int64(parallelism)
		before := int64(0) // Items of the subtasks before.
		for _, h := range of {
			add(h, ((int64(subtask)-before)%p+p)%p, p)
			before += h.Entries
		}
	}
	return parts, true
}

// ReadList reads the items of parts, in their order.
func (r *Reader) ReadList(ctx context.Context, parts []Part) ([][]byte, error) {
	var out [][]byte
	for _, p := range parts {
		data, err := r.ReadAll(ctx, p.Handle, maxList)
		if err != nil {
			return nil, err
		}
		items, err := DecodeList(data)
		if err == nil && int64(len(items)) != p.Handle.Entries {
			err = corrupt("a list of %d items, the checkpoint has %d", len(items), p.Handle.Entries)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", Place(p.Handle), err)
		}
		for i := p.First; i < int64(len(items)); i += p.Step {
			out = append(out, items[i])
		}
	}
	return out, nil
}

// Keyed lists the handles of an operator's keyed states, over all its old subtasks, as Backend.Restore takes them.
func Keyed(old job.OperatorSnapshot) []job.StateHandle {
	var out []job.StateHandle
	for _, s := range old.Subtasks {
		for _, h := range s.States {
			if h.Kind != KindList && h.Kind != KindBroadcast {
				out = append(out, h)
			}
		}
	}
	return out
}

// ListHead is how many bytes of a list come before the number of its items.
const ListHead = len(listMagic) + 1

// CheckListHead looks at the first ListHead bytes of a list, for who reads its items one by one.
func CheckListHead(head []byte) error {
	if string(head[:len(listMagic)]) != listMagic {
		return corrupt("it is no list")
	}
	if v := head[len(listMagic)]; v != listVersion {
		return fmt.Errorf("list of version %d: this program reads version %d", v, listVersion)
	}
	return nil
}
