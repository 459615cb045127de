package pebble

import (
	"context"
	"errors"
	"fmt"

	pebbledb "github.com/cockroachdb/pebble/v2"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// VerifyStored is the inspect.TreeReader of what the backend writes.
func VerifyStored(ctx context.Context, r statebackend.Reader, k int, handles []job.StateHandle,
	visit func(h job.StateHandle, group int, schema string, key, value []byte) error, fault func(h job.StateHandle, err error),
) (err error) {
	var files []job.StateHandle
	var states [256]*verified
	next := 0
	whole := true
	var groups job.GroupRange
	for _, h := range handles {
		groups = h.Groups
		if h.Kind == statebackend.KindFile {
			files = append(files, h)
			continue
		}
		data, err := snapshot.ReadSection(ctx, r, h, maxDescription)
		if err != nil {
			return err
		}
		s, err := decodeTreeState(h, data)
		switch {
		case err != nil:
		case s.k != k:
			err = fmt.Errorf("it is of %d key groups, the checkpoint of %d", s.k, k)
		case states[s.id] != nil:
			err = fmt.Errorf("it has the number of state %q in the tree", states[s.id].h.Name)
		}
		if err != nil {
			whole = false
			fault(h, err)
			continue
		}
		states[s.id] = &verified{h: h, s: s, counts: make([]int64, len(s.counts))}
		next = max(next, s.next)
	}
	if len(files) == 0 {
		return fmt.Errorf("%w: it has no files", statebackend.ErrCorrupt)
	}
	fs, err := newRemote(ctx, r, files)
	if err != nil {
		return err
	}
	shared := &shared{blocks: pebbledb.NewCache(remoteBlocks), files: pebbledb.NewFileCache(1, openFiles)}
	defer shared.blocks.Unref()
	defer shared.files.Unref()
	db, err := pebbledb.Open(remoteDir, readOptions(shared, fs, &troubles{}))
	if err != nil {
		return fmt.Errorf("%w: open it: %w", statebackend.ErrCorrupt, err)
	}
	defer func() { err = errors.Join(err, db.Close()) }()
	it, err := db.NewIterWithContext(ctx, nil)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, it.Close()) }()
	var n int64
	for ok := it.First(); ok; ok = it.Next() {
		if n++; n%4096 == 0 && ctx.Err() != nil {
			return ctx.Err()
		}
		key := it.Key()
		value, err := it.ValueAndErr()
		if err != nil {
			return err
		}
		if len(key) < prefixLen || len(value) == 0 {
			return fmt.Errorf("%w: an entry with %d and %d bytes", statebackend.ErrCorrupt, len(key), len(value))
		}
		group, id := int(key[0])<<8|int(key[1]), key[2]
		v := states[id]
		switch {
		case v == nil && int(id) >= next && whole:
			return fmt.Errorf("%w: key group %d has entries of state number %d, which there never was", statebackend.ErrCorrupt, group, id)
		case v == nil || v.bad: // Of a state that was given up.
			continue
		case !groups.Contains(group):
			v.fail(fault, fmt.Errorf("there are entries of key group %d, the handle is of %v", group, groups))
			continue
		}
		v.counts[group-v.s.first]++
		schema := int(value[0] &^ agedFlag)
		if schema >= len(v.s.schemas) || v.s.schemas[schema] == "" {
			v.fail(fault, fmt.Errorf("key group %d: a value is of schema %d, which there is none", group, schema))
			continue
		}
		if err := visit(v.h, group, v.s.schemas[schema], key[prefixLen:], value[1:]); err != nil {
			v.fail(fault, err)
		}
	}
	if err := it.Error(); err != nil {
		return err
	}
	for _, v := range states {
		if v == nil || v.bad {
			continue
		}
		for i, want := range v.s.counts {
			if v.counts[i] != want {
				v.fail(fault, fmt.Errorf("%d entries of key group %d, the checkpoint has %d", v.counts[i], v.s.first+i, want))
				break
			}
		}
	}
	return nil
}

// verified is a state and what was found of it.
type verified struct {
	h      job.StateHandle
	s      *treeState
	counts []int64
	bad    bool
}

func (v *verified) fail(fault func(job.StateHandle, error), err error) {
	v.bad = true
	fault(v.h, err)
}
