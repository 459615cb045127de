package stored

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// Write makes the savepoint in a folder of a store, a key, in which there is nothing yet: else it is blob.ErrExists. All
// objects lie in the folder, beside the manifest whose key it returns, so that it needs nothing else and can be copied. After
// an error nothing is left there, as far as the store lets it. It can be called once.
func (e *Editor) Write(ctx context.Context, store blob.Store, folder string) (manifest string, err error) {
	if e.written {
		return "", errors.New("the editor has written its savepoint")
	}
	w, err := newSavepointWriter(ctx, e.s, store, folder)
	if err != nil {
		return "", err
	}
	w.e, e.written = e, true
	defer func() { err = w.undo(ctx, err) }()
	m := *e.s.Manifest
	m.Created = time.UnixMilli(e.now)
	m.Derived = derived(&m)
	m.Operators = map[string]job.OperatorSnapshot{}
	for _, name := range slices.Sorted(maps.Keys(e.s.Manifest.Operators)) {
		if m.Operators[name], err = w.operator(ctx, name); err != nil {
			return "", fmt.Errorf("write a savepoint to %s: %w", folder, err)
		}
	}
	return snapshot.WriteSavepoint(ctx, store, folder, &m)
}

// token makes names of objects that nobody else writes.
func token() string {
	var b [6]byte
	_, _ = rand.Read(b[:]) // It never fails.
	return hex.EncodeToString(b[:])
}

// savepointWriter writes the objects of a savepoint.
type savepointWriter struct {
	s       *Snapshot // What it is made from,
	e       *Editor   // and how it is changed; nil where it is not.
	store   blob.Store
	folder  string
	token   string
	objects []string // That may have been written.
	inline  int      // Bytes in the manifest so far.
}

// newSavepointWriter fails when there is something in the folder.
func newSavepointWriter(ctx context.Context, s *Snapshot, store blob.Store, folder string) (*savepointWriter, error) {
	if err := blob.CheckKey(folder); err != nil {
		return nil, fmt.Errorf("folder of a savepoint: %w", err)
	}
	for info, err := range store.List(ctx, folder+"/") {
		if err != nil {
			return nil, err
		}
		return nil, fmt.Errorf("write a savepoint to %s: %w: there is %s", folder, blob.ErrExists, info.Key)
	}
	return &savepointWriter{s: s, store: store, folder: folder, token: token()}, nil
}

// undo removes what was written if err is not nil, and returns it.
func (w *savepointWriter) undo(ctx context.Context, err error) error {
	if err == nil || len(w.objects) == 0 {
		return err
	}
	clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Minute)
	defer cancel()
	return errors.Join(err, w.store.Delete(clean, w.objects...))
}

// object begins what a subtask of an operator has.
func (w *savepointWriter) object(operator string, i int) (*snapshot.Writer, *snapshot.OperatorWriter, error) {
	m := w.s.Manifest
	object := fmt.Sprintf("%s/%s.%d.%s", w.folder, objectName(operator), i, w.token)
	sw, err := snapshot.NewWriter(snapshot.WriterConfig{
		Store: w.store, Job: m.Job, Checkpoint: m.Checkpoint, Attempt: m.Attempt, Epoch: m.Epoch, Object: object,
		Task: job.Task{Vertex: operator, Subtask: i}, InlineLimit: w.inlineLimit(),
	})
	if err != nil {
		return nil, nil, err
	}
	w.objects = append(w.objects, object)
	return sw, sw.Operator(operator), nil
}

// finish ends it.
func (w *savepointWriter) finish(ctx context.Context, sw *snapshot.Writer, out job.SubtaskSnapshot) error {
	for _, h := range out.States {
		w.inline += len(h.Inline)
	}
	return sw.Finish(ctx)
}

// inlineLimit is what a subtask of an operator may have in the manifest: there are more of these than of a checkpoint's tasks,
// and all together must stay below statebackend.MaxInlineCheckpoint.
func (w *savepointWriter) inlineLimit() int {
	left := statebackend.MaxInlineCheckpoint/2 - w.inline
	if left < snapshot.DefaultInlineLimit {
		return -1
	}
	return snapshot.DefaultInlineLimit
}

// newTable is a table that is written anew.
type newTable struct {
	table   *table
	src     Source
	layouts layouts
	overlay overlay
}

// operator writes the states of one operator: an object for each subtask, unless they are small enough for the manifest.
func (w *savepointWriter) operator(ctx context.Context, name string) (job.OperatorSnapshot, error) {
	old := w.s.Manifest.Operators[name]
	out := job.OperatorSnapshot{Parallelism: old.Parallelism, Subtasks: make([]job.SubtaskSnapshot, len(old.Subtasks))}
	tables := map[string]*newTable{}
	lists := map[string]map[string][]Change{} // Broadcast states, by map key.
	var order []string
	for _, st := range w.s.states {
		if st.Operator != name || len(w.e.changed[st]) == 0 {
			continue
		}
		if st.Kind == Broadcast {
			lists[st.Name] = w.e.changed[st][0]
			continue
		}
		main, items, err := w.e.overlays(ctx, st)
		if err != nil {
			return out, err
		}
		for _, t := range []struct {
			t *table
			l layouts
			o overlay
		}{{st.main, st.mainLayout, main}, {st.items, st.itemsLayout, items}} {
			if t.t == nil || len(t.o) == 0 {
				continue
			}
			src, err := w.s.source(ctx, name, t.t)
			if err != nil {
				return out, err
			}
			tables[t.t.name] = &newTable{t.t, src, t.l, t.o}
			order = append(order, t.t.name)
		}
	}
	for i, sub := range old.Subtasks {
		s, err := w.subtask(ctx, name, i, sub, len(old.Subtasks), tables, order, lists)
		if err != nil {
			return out, err
		}
		out.Subtasks[i] = s
	}
	return out, nil
}

func (w *savepointWriter) subtask(ctx context.Context, operator string, i int, old job.SubtaskSnapshot, parallelism int, tables map[string]*newTable, order []string, lists map[string]map[string][]Change) (job.SubtaskSnapshot, error) {
	m := w.s.Manifest
	sw, ow, err := w.object(operator, i)
	if err != nil {
		return old, err
	}
	defer sw.Close()
	out := old
	out.States = nil
	for _, h := range old.States {
		if tables[h.Name] != nil && h.Kind != snapshot.KindList && h.Kind != snapshot.KindBroadcast {
			continue // Below.
		}
		var n job.StateHandle
		if changes := lists[h.Name]; changes != nil && h.Kind == snapshot.KindBroadcast {
			n, err = w.broadcast(ctx, ow, operator, h, changes)
		} else {
			n, err = w.copy(ctx, ow, h)
		}
		if err != nil {
			return old, fmt.Errorf("operator %q, subtask %d: %w", operator, i, err)
		}
		out.States = append(out.States, n)
	}
	for _, name := range order {
		h, err := w.table(ctx, ow, operator, i, job.GroupsOf(i, m.K, parallelism), tables[name])
		if err != nil {
			return old, fmt.Errorf("operator %q, subtask %d, state %q: %w", operator, i, name, err)
		}
		if h.Entries > 0 {
			out.States = append(out.States, h)
		}
	}
	return out, w.finish(ctx, sw, out)
}

// objectName is an operator's name as a part of a key; different ones stay different.
func objectName(operator string) string {
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || r == '-' || r == '_' {
			return r
		}
		return '_'
	}, operator)
	return fmt.Sprintf("%s-%016x", plain[:min(len(plain), 40)], xxh3.HashString(operator))
}

// copy carries a section over, and verifies it.
func (w *savepointWriter) copy(ctx context.Context, ow *snapshot.OperatorWriter, h job.StateHandle) (job.StateHandle, error) {
	n, err := ow.Section(ctx, h.Name, func(out io.Writer) error {
		body, err := w.s.reader.Range(ctx, h, 0, h.Length)
		if err != nil {
			return err
		}
		_, err = io.Copy(out, body)
		return errors.Join(err, body.Close())
	})
	if err == nil && (n.Hash != h.Hash || n.Length != h.Length) {
		err = corrupt("%d bytes with hash %s, the checkpoint has %d with %s", n.Length, n.Hash, h.Length, h.Hash)
	}
	if err != nil {
		return h, fmt.Errorf("state %q in %s: %w", h.Name, place(h), err)
	}
	c := h // With what else there is of it.
	c.Inline, c.Object, c.Offset, c.Length, c.Hash = n.Inline, n.Object, n.Offset, n.Length, n.Hash
	return c, nil
}

// broadcast writes a subtask's copy of a broadcast state anew.
func (w *savepointWriter) broadcast(ctx context.Context, ow *snapshot.OperatorWriter, operator string, h job.StateHandle, changes map[string][]Change) (job.StateHandle, error) {
	items, err := w.s.reader.ReadList(ctx, []snapshot.Part{{Handle: h, Step: 1}})
	if err != nil {
		return h, err
	}
	st, err := w.s.State(operator, h.Name)
	if err != nil {
		return h, err
	}
	for _, c := range changes[""] { // They have no key.
		at := slices.IndexFunc(items, func(b []byte) bool {
			n, err := st.MapKey.Len(b)
			return err == nil && string(b[:n]) == string(c.MapKey)
		})
		item := append(slices.Clone(c.MapKey), c.Value...)
		switch {
		case c.Delete && at >= 0:
			items = slices.Delete(items, at, at+1)
		case c.Delete:
		case at >= 0:
			items[at] = item
		default:
			items = append(items, item)
		}
	}
	return ow.List(ctx, h.Name, h.Kind, h.Codec, items)
}

// runBytes is about how much of a key group is collected before it goes into the segment.
const runBytes = 32 << 10

// table writes what a subtask has of a table anew.
func (w *savepointWriter) table(ctx context.Context, ow *snapshot.OperatorWriter, operator string, i int, groups job.GroupRange, t *newTable) (job.StateHandle, error) {
	var sum segment.Summary
	h, err := ow.Section(ctx, t.table.name, func(out io.Writer) error {
		sw := segment.NewWriter(out, segment.Descriptor{
			Operator: operator, Subtask: i, State: t.table.name, Key: t.table.key, Value: t.table.value, K: w.s.Manifest.K,
			First: groups.First, Last: groups.Last, Checkpoint: uint64(w.s.Manifest.Checkpoint),
		})
		r := runWriter{w: sw, group: groups.First}
		left := overlay{} // Those that the snapshot does not have.
		for g := groups.First; g <= groups.Last; g++ {
			if o := t.overlay[g]; o != nil {
				left[g] = maps.Clone(o)
			}
		}
		rest := func(upTo int) error {
			for ; r.group < upTo; r.group++ {
				for _, k := range slices.Sorted(maps.Keys(left[r.group])) {
					if v := left[r.group][k]; v != nil {
						if err := r.add([]byte(k), v); err != nil {
							return err
						}
					}
				}
				if err := r.flush(); err != nil {
					return err
				}
			}
			return ctx.Err()
		}
		if t.src != nil {
			err := t.src.Each(ctx, groups, func(g int, key, value []byte) error {
				if g != r.group {
					if err := rest(g); err != nil {
						return err
					}
				}
				if v, ok := left[g][string(key)]; ok {
					delete(left[g], string(key))
					if v == nil {
						return nil
					}
					value = v
				}
				return r.add(key, value)
			})
			if err != nil {
				return err
			}
		}
		if err := rest(groups.Last + 1); err != nil {
			return err
		}
		var err error
		sum, err = sw.Finish()
		return err
	})
	h.Name, h.Kind, h.Key, h.Codec = t.table.name, statebackend.KindKeyed, t.table.key, t.table.value
	h.Groups, h.Entries, h.Index = groups, sum.Entries, sum.Index
	return h, err
}

// runWriter collects entries of one group into runs.
type runWriter struct {
	w       *segment.Writer
	group   int
	entries int64
	data    []byte
}

func (r *runWriter) add(key, value []byte) error {
	r.data = append(append(r.data, key...), value...)
	if r.entries++; len(r.data) > runBytes {
		return r.flush()
	}
	return nil
}

func (r *runWriter) flush() error {
	err := r.w.Add(r.group, r.entries, r.data)
	r.data, r.entries = r.data[:0], 0
	return err
}
