package pebble

import (
	"cmp"
	"context"
	"fmt"
	"io"
	"reflect"
	"slices"
	"unsafe"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// frozenValues is how the values of a state are encoded in a snapshot.
type frozenValues struct {
	cache  *statebackend.Cache
	decode []statebackend.Decoder // By number of the schema.
	now    byte
}

// canonicalBlocks is the memory for blocks of a tree that is read from one end to the other.
const canonicalBlocks = 1 << 20

// WriteCanonical implements statebackend.Snapshot. It reads the snapshot's own files, which are in the order of a segment: entries
// are copied as they are, but for values of older schemas, which are encoded anew. What snapshots build on is as if it had not been.
func (s *frozen) WriteCanonical(ctx context.Context, w statebackend.Writer) (out []job.StateHandle, err error) {
	fail := func(err error) ([]job.StateHandle, error) {
		return nil, fmt.Errorf("operator %q: savepoint %v: %w", s.p.Operator, s.id, err)
	}
	if err := s.flushed(ctx); err != nil {
		return fail(err)
	}
	var order []int
	for i := range s.states {
		if s.states[i].entries() > 0 {
			order = append(order, i)
		}
	}
	if len(order) == 0 {
		return nil, nil
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(s.states[a].name, s.states[b].name) })
	// Not with what the trees of the process share: the snapshot may outlive its backend.
	own := &shared{blocks: pebbledb.NewCache(canonicalBlocks), files: pebbledb.NewFileCache(1, openFiles)}
	defer own.blocks.Unref()
	defer own.files.Unref()
	db, err := pebbledb.Open(s.link, readOptions(own, newPartial(s.disk, nil), &troubles{}))
	if err != nil {
		return fail(fmt.Errorf("open the files of the local tree: %w", err))
	}
	defer func() {
		if e := db.Close(); e != nil && err == nil {
			out, err = fail(e)
		}
	}()
	var seg segment.SortedWriter
	for _, i := range order {
		st := &s.states[i]
		h, err := s.canonical(ctx, w, db, &seg, st, &s.values[i])
		if err != nil {
			return fail(fmt.Errorf("state %q: %w", st.name, err))
		}
		out = append(out, h)
	}
	return out, nil
}

// canonical writes one state.
func (s *frozen) canonical(ctx context.Context, w statebackend.Writer, db *pebbledb.DB, seg *segment.SortedWriter, st *treeState, v *frozenValues) (job.StateHandle, error) {
	var sum segment.Summary
	h, err := w.Section(ctx, st.name, func(out io.Writer) (err error) {
		seg.Reset(out, segment.Descriptor{
			Operator: s.p.Operator, Subtask: s.p.Task.Subtask, State: st.name, Key: st.key, Value: st.value, K: s.p.K,
			First: s.p.Groups.First, Last: s.p.Groups.Last, Checkpoint: uint64(s.id), Compression: s.p.Compression,
		})
		present := v.present(st, s.p.MaxValue)
		err = eachEntry(ctx, db, st, s.p.Groups, func(group int, key, value []byte) error {
			if value, err = present(key, value); err != nil {
				return err
			}
			return seg.Add(group, key, value)
		})
		if err != nil {
			return err
		}
		sum, err = seg.Finish()
		return err
	})
	h.Name, h.Kind, h.Key, h.Codec = st.name, statebackend.KindKeyed, st.key, st.value
	h.Groups, h.Entries, h.Index = s.p.Groups, sum.Entries, sum.Index
	return h, err
}

// present returns what gives the encoding under the present schema of a value of the tree, of limit bytes at most if that is not 0.
func (f *frozenValues) present(st *treeState, limit int64) func(key, v []byte) ([]byte, error) {
	var at unsafe.Pointer // Storage of a value.
	var buf []byte
	return func(key, v []byte) ([]byte, error) {
		if len(v) == 0 {
			return nil, fmt.Errorf("%w: a value of the local tree has no bytes", statebackend.ErrCorrupt)
		}
		schema := v[0] &^ agedFlag
		if schema == f.now {
			return v[1:], nil
		}
		if int(schema) >= len(f.decode) || f.decode[schema] == nil || st.schemas[schema] == "" {
			return nil, fmt.Errorf("%w: a value of the local tree is of schema %d, which none should be of", statebackend.ErrCorrupt, schema)
		}
		if at == nil {
			at = reflect.New(f.cache.Value.Type).UnsafePointer()
		}
		reflect.NewAt(f.cache.Value.Type, at).Elem().SetZero()
		n, err := f.decode[schema](v[1:], at)
		if err == nil && n != len(v)-1 {
			err = fmt.Errorf("%d bytes of it are left over", len(v)-1-n)
		}
		if err != nil {
			return nil, fmt.Errorf("%w: a value of the local tree, of schema %d: %w", statebackend.ErrCorrupt, schema, err)
		}
		if buf, err = f.cache.Value.Append(buf[:0], at); err != nil {
			return nil, fmt.Errorf("encode a value of schema %d anew: %w", schema, err)
		}
		if size := int64(len(buf)); limit > 0 && size > limit {
			k := reflect.New(f.cache.Key.Type).UnsafePointer()
			if _, err := f.cache.Key.Decode(key, k); err != nil {
				return nil, fmt.Errorf("%w: a key of the local tree: %w", statebackend.ErrCorrupt, err)
			}
			return nil, &job.Error{Class: job.ClassUser, Err: f.cache.TooLarge(k, size)}
		}
		return buf, nil
	}
}
