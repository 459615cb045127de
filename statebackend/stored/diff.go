package stored

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
)

// Difference is how a state of one snapshot differs from that of another. Entries are compared by their keys: a map's entry
// by key and map key, a timer by key and time, a list as a whole. The age of entries with a TTL does not count.
type Difference struct {
	Operator, State               string
	Old, New                      *State // Nil in the snapshot that does not have it.
	Added, Removed, Changed, Same int64
	Note                          string // Why they were not compared, or not by their bytes; empty: they were.
}

// EntryChange is an entry that differs: Old is nil if it was added, New if it was removed. It is valid during the call.
type EntryChange struct{ Old, New *Entry }

// Diff compares two snapshots, state by state in the order of operators and names. change may be nil; it is called for each
// entry that differs, done after each state. Both snapshots have the same number of key groups.
func Diff(ctx context.Context, a, b *Snapshot, change func(EntryChange) error, done func(Difference) error) error {
	if a.Manifest.K != b.Manifest.K {
		return fmt.Errorf("the snapshots have %d and %d key groups: only those with the same number can be compared", a.Manifest.K, b.Manifest.K)
	}
	var all []Difference
	for i, s := range []*Snapshot{a, b} {
		for _, st := range s.states {
			at := slices.IndexFunc(all, func(d Difference) bool { return d.Operator == st.Operator && d.State == st.Name })
			if at < 0 {
				at = len(all)
				all = append(all, Difference{Operator: st.Operator, State: st.Name})
			}
			if i == 0 {
				all[at].Old = st
			} else {
				all[at].New = st
			}
		}
	}
	slices.SortFunc(all, func(x, y Difference) int {
		return cmp.Or(cmp.Compare(x.Operator, y.Operator), cmp.Compare(x.State, y.State))
	})
	for i := range all {
		if err := all[i].compare(ctx, a.Manifest.K, change); err != nil {
			return err
		}
		if err := done(all[i]); err != nil {
			return err
		}
	}
	return nil
}

// compare walks both states.
func (d *Difference) compare(ctx context.Context, k int, change func(EntryChange) error) error {
	if change == nil {
		change = func(EntryChange) error { return nil }
	}
	asText := false
	if a, b := d.Old, d.New; a != nil && b != nil {
		switch {
		case a.Entries == 0 || b.Entries == 0:
		case a.Kind != b.Kind && !(oneValue(a.Kind) && oneValue(b.Kind)):
			d.Note = fmt.Sprintf("not compared: it was a %s and is a %s", a.Kind, b.Kind)
		case a.KeySchema != b.KeySchema || mapKeyOf(a) != mapKeyOf(b):
			d.Note = "not compared: its keys are of another type"
		case a.ValueSchema != b.ValueSchema:
			d.Note = "its values are of another type: compared by their JSON"
			asText = true
		}
	}
	for _, st := range []*State{d.Old, d.New} {
		if st != nil && st.Unreadable != nil {
			d.Note = "not compared: " + st.Unreadable.Error()
		}
	}
	if d.Note != "" && !asText {
		return nil
	}
	var size int64
	for _, st := range []*State{d.Old, d.New} {
		if st != nil {
			size += st.main.weight() + st.items.weight()
		}
	}
	return batches(job.GroupRange{First: 0, Last: k - 1}, k, size, func(groups job.GroupRange) error {
		return d.batch(ctx, groups, asText, change)
	})
}

func oneValue(k Kind) bool { return k == Value || k == Reducing || k == Aggregating }

func mapKeyOf(st *State) string {
	if st.MapKey == nil {
		return ""
	}
	return st.MapKey.Schema().String()
}

func (d *Difference) batch(ctx context.Context, groups job.GroupRange, asText bool, change func(EntryChange) error) error {
	whole := func(st *State) bool { return st.Kind == OperatorList || st.Kind == Broadcast }
	type known struct {
		e       *Entry
		content []byte
	}
	old := map[string]known{}
	var order []string
	if d.Old != nil && !(whole(d.Old) && groups.First > 0) {
		err := d.Old.Each(ctx, groups, func(e *Entry) error {
			content, err := e.content(asText)
			if err != nil {
				return err
			}
			id := string(e.identity())
			order = append(order, id)
			old[id] = known{e.clone(), bytes.Clone(content)}
			return nil
		})
		if err != nil {
			return err
		}
	}
	if d.New != nil && !(whole(d.New) && groups.First > 0) {
		err := d.New.Each(ctx, groups, func(e *Entry) error {
			content, err := e.content(asText)
			if err != nil {
				return err
			}
			id := string(e.identity())
			was, ok := old[id]
			delete(old, id)
			switch {
			case !ok:
				d.Added++
				return change(EntryChange{New: e})
			case bytes.Equal(was.content, content):
				d.Same++
				return nil
			}
			d.Changed++
			return change(EntryChange{was.e, e})
		})
		if err != nil {
			return err
		}
	}
	for _, id := range order {
		if was, ok := old[id]; ok {
			d.Removed++
			if err := change(EntryChange{Old: was.e}); err != nil {
				return err
			}
		}
	}
	return nil
}

func (e *Entry) clone() *Entry {
	c := *e
	c.Key, c.MapKey, c.Value = bytes.Clone(e.Key), bytes.Clone(e.MapKey), bytes.Clone(e.Value)
	c.Elems = make([][]byte, len(e.Elems))
	for i, b := range e.Elems {
		c.Elems[i] = bytes.Clone(b)
	}
	return &c
}

// identity is what an entry is found by.
func (e *Entry) identity() []byte {
	b := append(slices.Clone(e.Key), e.MapKey...)
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Time))
	b = binary.LittleEndian.AppendUint64(b, uint64(e.Index))
	return binary.LittleEndian.AppendUint64(b, uint64(e.Subtask))
}

// content is what an entry is compared by.
func (e *Entry) content(asText bool) ([]byte, error) {
	if asText {
		r, err := e.Record()
		if err != nil {
			return nil, err
		}
		return codec.AppendJSON(nil, r[len(r)-1].Value) // The value comes last.
	}
	if e.State.Kind != List {
		return e.Value, nil
	}
	var b []byte
	var p codec.Parts
	for _, el := range e.Elems {
		if e.State.TTL {
			if _, err := e.State.mainLayout.value.Parts()[0].Split(el, &p); err != nil {
				return nil, e.State.fail(corrupt("element of a list: %v", err))
			}
			el = p.Vals[0]
		}
		b = append(binary.AppendUvarint(b, uint64(len(el))), el...)
	}
	return b, nil
}
