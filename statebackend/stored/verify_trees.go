package stored

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// tree verifies the states of one subtask that are in a tree. Its files are read once, into one that has no name.
func (v *verifier) tree(ctx context.Context, operator string, i int, sub job.SubtaskSnapshot, handles []job.StateHandle) error {
	of := func(h job.StateHandle) []Concern { return concernsOf(operator, i, sub, h) }
	all := of(job.StateHandle{Kind: statebackend.KindFile})
	files, err := newSpool(v.o.Dir)
	if err != nil {
		return err
	}
	defer files.close()
	r := &spooled{Reader: v.reader, spool: files, at: map[spot]int64{}}
	whole := struct {
		sync.Mutex
		bad bool
	}{}
	var offset int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(4)
	for _, h := range handles {
		if v.lost[h.Object] {
			whole.Lock()
			whole.bad = true
			whole.Unlock()
			continue
		}
		at := offset
		r.at[spotOf(h)] = at
		offset += h.Length
		g.Go(func() error {
			err := v.fetch(gctx, h, io.NewOffsetWriter(files, at))
			if err != nil {
				whole.Lock()
				whole.bad = true
				whole.Unlock()
			}
			return v.failed(gctx, v.at(h), of(h), wrapWhere(h, err))
		})
	}
	if err := g.Wait(); err != nil || whole.bad {
		return err // Of a tree that is not whole nothing can be said.
	}
	if v.o.Trees == nil {
		v.fault(v.key, FaultContent, all, content("this program does not read trees"))
		return nil
	}
	var entries int64
	err = v.o.Trees(ctx, r, v.m.K, handles, func(h job.StateHandle, group int, schema string, key, value []byte) error {
		entries++
		l := v.treeLayouts(r, Concern{operator, i, h.Name}, h.Key, schema)
		if l.key != nil {
			if n, err := l.key.Len(key); err != nil || n != len(key) {
				return content("key group %d: a key takes %d bytes of %d (%v)", group, n, len(key), err)
			}
			if got, err := l.groupOf(key, v.m.K); err != nil || got != group {
				return content("key group %d has a key of key group %d (%v)", group, got, err)
			}
		}
		if l.value != nil {
			if n, err := l.value.Len(value); err != nil || n != len(value) {
				return content("key group %d: a value takes %d bytes of %d (%v)", group, n, len(value), err)
			}
		}
		return nil
	}, func(h job.StateHandle, err error) { v.fault(v.at(h), FaultContent, of(h), where(h, err)) })
	v.entries(entries)
	if err != nil {
		return v.failed(ctx, v.key, all, fmt.Errorf("the tree of subtask %d of operator %q: %w", i, operator, err))
	}
	return nil
}

// treeLayouts are layoutsOf, without its lock for every entry.
func (v *verifier) treeLayouts(r *spooled, of Concern, key, value string) layouts {
	if r.of != of || r.key != key || r.value != value {
		r.of, r.key, r.value = of, key, value
		r.layouts = v.layoutsOf(of, key, value)
	}
	return r.layouts
}

// errSpool marks errors of the folder for the files of trees.
var errSpool = errors.New("keep the files of a tree in a temporary file: set TMPDIR to a folder with room for the largest")

// spool is a file without a name.
type spool struct{ f *os.File }

func newSpool(dir string) (*spool, error) {
	f, err := os.CreateTemp(dir, "cairn-verify-")
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errSpool, err)
	}
	_ = os.Remove(f.Name()) // Where a file in use cannot be removed, close does it.
	return &spool{f}, nil
}

func (s *spool) WriteAt(p []byte, off int64) (int, error) {
	n, err := s.f.WriteAt(p, off)
	if err != nil {
		err = fmt.Errorf("%w: %w", errSpool, err)
	}
	return n, err
}

func (s *spool) close() {
	_ = s.f.Close()
	_ = os.Remove(s.f.Name())
}

// spot is where the bytes of a handle are.
type spot struct {
	object string
	offset int64
	name   string // Of what is inline.
}

func spotOf(h job.StateHandle) spot { return spot{h.Object, h.Offset, h.Name} }

// spooled is a Reader of what was fetched.
type spooled struct {
	statebackend.Reader
	spool *spool
	at    map[spot]int64

	of         Concern // The last state that an entry was of, and how it is encoded.
	key, value string
	layouts    layouts
}

// Range implements statebackend.Reader.
func (s *spooled) Range(ctx context.Context, h job.StateHandle, off, n int64) (io.ReadCloser, error) {
	at, ok := s.at[spotOf(h)]
	if !ok || off < 0 || n < 0 || off > h.Length || n > h.Length-off {
		return s.Reader.Range(ctx, h, off, n)
	}
	return io.NopCloser(io.NewSectionReader(s.spool.f, at+off, n)), nil
}
