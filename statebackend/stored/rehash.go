package stored

import (
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// RehashOptions say how Rehash works.
type RehashOptions struct {
	// Memory is about how many bytes it takes for entries. What is more goes to temporary files. Zero means 64 MiB.
	Memory int
	// TempDir is for those files, which take about what the largest operator's entries take without compression. Empty: the
	// system's.
	TempDir string
}

// Rehash makes a savepoint of a snapshot whose keyed states are of n key groups, in a folder of a store in which there is nothing
// yet: else it is blob.ErrExists. It returns the key of its manifest. All objects lie in the folder, as canonical segments and
// lists. n may be the number that the snapshot has: then it is the snapshot as a savepoint. Entries, operators, their parallelism
// and lists stay the same. After an error nothing is left, as far as the store lets it.
func Rehash(ctx context.Context, from *Snapshot, to blob.Store, folder string, n int, o RehashOptions) (manifest string, err error) {
	if n < 1 || n > job.MaxMaxParallelism {
		return "", fmt.Errorf("number of key groups is %d, want 1 to %d", n, job.MaxMaxParallelism)
	}
	for _, name := range slices.Sorted(maps.Keys(from.Manifest.Operators)) {
		if p := len(from.Manifest.Operators[name].Subtasks); p > n {
			return "", fmt.Errorf("operator %q has parallelism %d in the snapshot, which is more than %d key groups: choose more, or take a snapshot after the job was rescaled to at most %d",
				name, p, n, n)
		}
	}
	w, err := newSavepointWriter(ctx, from, to, folder)
	if err != nil {
		return "", err
	}
	defer func() { err = w.undo(ctx, err) }()
	m := *from.Manifest
	m.K, m.Derived = n, derived(&m)
	m.Operators = map[string]job.OperatorSnapshot{}
	for _, name := range slices.Sorted(maps.Keys(from.Manifest.Operators)) {
		r := rehash{w: w, operator: name, k: n, sorter: newSorter(o.TempDir, o.Memory)}
		m.Operators[name], err = r.run(ctx)
		r.sorter.close()
		if err != nil {
			return "", fmt.Errorf("write a savepoint of %d key groups to %s: operator %q: %w", n, folder, name, err)
		}
	}
	return snapshot.WriteSavepoint(ctx, to, folder, &m)
}

// derived says what a savepoint was made from.
func derived(m *snapshot.Manifest) string {
	return cmp.Or(m.Derived, fmt.Sprintf("checkpoint %d of job %s", uint64(m.Checkpoint), m.Job))
}

// rehash is for one operator.
type rehash struct {
	w        *savepointWriter
	operator string
	k        int
	tables   []*table // By name.
	sorter   *sorter
	next     entry
	in       entries
}

// entry is one that was read and not written yet.
type entry struct {
	subtask, table, group int
	key, value            []byte
	end                   bool // There are no more.
}

// placeLen is what an entry's key begins with while it is sorted: numbers of subtask, table and key group. So the entries come in
// the order in which they are written.
const placeLen = 6

func (r *rehash) run(ctx context.Context) (job.OperatorSnapshot, error) {
	old := r.w.s.Manifest.Operators[r.operator]
	out := job.OperatorSnapshot{Parallelism: old.Parallelism, Subtasks: make([]job.SubtaskSnapshot, len(old.Subtasks))}
	for _, st := range r.w.s.states {
		for _, t := range []*table{st.main, st.items} {
			if st.Operator == r.operator && t != nil && len(t.handles) > 0 && !isList(t.kind) {
				r.tables = append(r.tables, t)
			}
		}
	}
	slices.SortFunc(r.tables, func(a, b *table) int { return cmp.Compare(a.name, b.name) })
	for i, t := range r.tables {
		if err := r.read(ctx, i, t, len(old.Subtasks)); err != nil {
			return out, err
		}
	}
	var err error
	if r.in, err = r.sorter.sorted(); err != nil {
		return out, err
	}
	if err := r.advance(); err != nil {
		return out, err
	}
	for i, sub := range old.Subtasks {
		if out.Subtasks[i], err = r.subtask(ctx, i, sub, len(old.Subtasks)); err != nil {
			return out, fmt.Errorf("subtask %d: %w", i, err)
		}
	}
	if !r.next.end {
		return out, fmt.Errorf("entries of subtask %d are left over", r.next.subtask)
	}
	return out, nil
}

func isList(kind string) bool { return kind == snapshot.KindList || kind == snapshot.KindBroadcast }

// read gives the entries of a table to the sorter.
func (r *rehash) read(ctx context.Context, i int, t *table, parallelism int) error {
	src, err := r.w.s.source(ctx, r.operator, t)
	if err != nil {
		return err
	}
	l, err := layoutsOf(t.handles[0])
	if err != nil {
		return fmt.Errorf("state %q: %w", t.name, err)
	}
	var place [placeLen]byte
	binary.BigEndian.PutUint16(place[2:], uint16(i))
	var n int64
	err = src.Each(ctx, job.GroupRange{First: 0, Last: r.w.s.Manifest.K - 1}, func(_ int, key, value []byte) error {
		g, err := l.groupOf(key, r.k)
		if err != nil {
			return err
		}
		n++
		binary.BigEndian.PutUint16(place[:], uint16(job.OwnerOf(g, r.k, parallelism)))
		binary.BigEndian.PutUint16(place[4:], uint16(g))
		return r.sorter.add(ctx, place[:], key, value)
	})
	if err == nil && n != t.entries {
		err = corrupt("state %q has %d entries, the checkpoint has %d", t.name, n, t.entries)
	}
	return err
}

// advance reads the next entry.
func (r *rehash) advance() error {
	key, value, err := r.in.next()
	if errors.Is(err, io.EOF) {
		r.next = entry{end: true}
		return nil
	}
	if err != nil {
		return err
	}
	at := func(i int) int { return int(binary.BigEndian.Uint16(key[i:])) }
	r.next = entry{subtask: at(0), table: at(2), group: at(4), key: key[placeLen:], value: value}
	return nil
}

// subtask writes what a subtask has: an object, unless it is small enough for the manifest.
func (r *rehash) subtask(ctx context.Context, i int, old job.SubtaskSnapshot, parallelism int) (job.SubtaskSnapshot, error) {
	sw, ow, err := r.w.object(r.operator, i)
	if err != nil {
		return old, err
	}
	defer sw.Close()
	out := old
	out.States = nil
	for !r.next.end && r.next.subtask == i {
		t := r.tables[r.next.table]
		h, err := r.segment(ctx, ow, i, r.next.table, job.GroupsOf(i, r.k, parallelism))
		if err != nil {
			return old, fmt.Errorf("state %q: %w", t.name, err)
		}
		out.States = append(out.States, h)
	}
	for _, h := range old.States {
		if !isList(h.Kind) {
			continue
		}
		n, err := r.w.copy(ctx, ow, h)
		if err != nil {
			return old, err
		}
		out.States = append(out.States, n)
	}
	return out, r.w.finish(ctx, sw, out)
}

// segment writes what a subtask has of a table.
func (r *rehash) segment(ctx context.Context, ow *snapshot.OperatorWriter, i, of int, groups job.GroupRange) (job.StateHandle, error) {
	t := r.tables[of]
	var sum segment.Summary
	h, err := ow.Section(ctx, t.name, func(out io.Writer) error {
		var w segment.SortedWriter
		w.Reset(out, segment.Descriptor{
			Operator: r.operator, Subtask: i, State: t.name, Key: t.key, Value: t.value, K: r.k,
			First: groups.First, Last: groups.Last, Checkpoint: uint64(r.w.s.Manifest.Checkpoint),
		})
		for n := 0; !r.next.end && r.next.subtask == i && r.next.table == of; n++ {
			if n%4096 == 0 && ctx.Err() != nil {
				return ctx.Err()
			}
			if err := w.Add(r.next.group, r.next.key, r.next.value); err != nil {
				return err
			}
			if err := r.advance(); err != nil {
				return err
			}
		}
		var err error
		sum, err = w.Finish()
		return err
	})
	h.Name, h.Kind, h.Key, h.Codec = t.name, statebackend.KindKeyed, t.key, t.value
	h.Groups, h.Entries, h.Index = groups, sum.Entries, sum.Index
	return h, err
}
