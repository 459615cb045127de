package state

import (
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/s3"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/internal/gcfloor"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/stored"
	"github.com/cairnstream/cairn/test/servers"
)

// RestoreLoad is a state of a size in an S3 gateway.
type RestoreLoad struct {
	Bytes  int64 // Of the checkpoint, about.
	Budget int64
	Dir    string
}

// The bars.
const (
	restoreShare = 0.6 // Of what the gateway delivers.
	firstLimit   = 5   // Seconds to the first record.
	localLimit   = 1   // The same with copies on this machine.
	getLimit     = 1   // Seconds,
	getBytes     = 5   // and MiB, of a look at one key.
)

// payload are bytes that no compression makes smaller.
const payload = 100

// texts is a backend with one state of texts.
type texts struct {
	b     statebackend.Backend
	state statebackend.Value[uint64, []byte]
	hash  func(*uint64) uint64
}

func (l RestoreLoad) open(ctx context.Context, dir, local string, restored job.CheckpointID) (*texts, error) {
	dir = filepath.Join(l.Dir, dir)
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	f := &pebble.Factory{}
	b, err := f.New(ctx, statebackend.Params{
		Job: "state", Operator: "texts", K: job.DefaultMaxParallelism, Groups: job.GroupsOf(0, job.DefaultMaxParallelism, 1), MaxConcurrent: 1,
		Incremental: true, Own: true, Restored: restored, Dir: dir, Local: local, Budget: statebackend.NewBudget(l.Budget),
	})
	if err != nil {
		return nil, err
	}
	t := &texts{b: b}
	keys, err := codec.Default[uint64]()
	if err != nil {
		return nil, err
	}
	values, err := codec.Default[[]byte]()
	if err != nil {
		return nil, err
	}
	t.hash = codec.NewHasher(keys)
	t.state, err = statebackend.OpenValue(b, statebackend.ValueDesc[uint64, []byte]{
		Name: "texts", Key: keys, Value: values, Hash: func(k *uint64) (uint64, uint64) { h := t.hash(k); return h, h },
	})
	return t, err
}

func (t *texts) fill(entries uint64) {
	random := rand.NewChaCha8([32]byte{1})
	for k := range entries {
		h := t.hash(&k)
		p, _ := t.state.Upsert(h, h, &k)
		*p = make([]byte, payload)
		_, _ = random.Read(*p) // It never fails.
		if k%256 == 0 {
			t.b.Merge(100 * time.Microsecond)
		}
	}
}

// MeasureRestore restores a checkpoint of the backend pebble from an S3 gateway and from copies on this machine, and looks at one
// key of it. The gateway's own speed is that of reading all objects, as many at a time as a restore reads.
func MeasureRestore(ctx context.Context, l RestoreLoad) (out []Figure, err error) {
	gcfloor.Keep()
	server, err := servers.StartS3(ctx, l.Dir)
	if err != nil {
		return nil, err
	}
	defer server.Kill()
	loc, err := blob.ParseLocation(server.URL("bench"))
	if err != nil {
		return nil, err
	}
	store, err := s3.Open(loc, s3.Options{Credentials: s3.Credentials{AccessKey: server.AccessKey, SecretKey: server.SecretKey}})
	if err != nil {
		return nil, err
	}
	defer store.Close()

	local := filepath.Join(l.Dir, "local")
	entries := uint64(l.Bytes / (payload + 20))
	key, handles, err := l.store(ctx, store, local, entries)
	if err != nil {
		return nil, err
	}
	read, bytes, err := readThrough(ctx, store, handles, "")
	if err != nil {
		return nil, err
	}
	gateway := float64(bytes) / read.Seconds()
	copied, _, err := readThrough(ctx, store, handles, filepath.Join(l.Dir, "copied"))
	if err != nil {
		return nil, err
	}

	remote, err := l.restore(ctx, store, handles, "remote", "", entries)
	if err != nil {
		return nil, err
	}
	near, err := l.restore(ctx, store, handles, "near", local, entries)
	if err != nil {
		return nil, err
	}
	mb := float64(bytes) / 1e6
	out = []Figure{
		{What: "restore from an S3 gateway, part of the speed that it delivers", Value: float64(bytes) / remote.Seconds() / gateway, Limit: restoreShare, AtLeast: true,
			Note: fmt.Sprintf("%.0f MB, %d entries; %.0f MB/s of %.0f", mb, entries, mb/remote.Seconds(), gateway/1e6)},
		{What: "  part of the speed at which its objects are copied to files", Value: copied.Seconds() / remote.Seconds(), Note: fmt.Sprintf("%.0f MB/s", mb/copied.Seconds())},
		{What: "  to the first record", Value: remote.Seconds(), Unit: "s", Limit: firstLimit},
		{What: "restore from copies on this machine, to the first record", Value: near.Seconds(), Unit: "s", Limit: localLimit},
	}
	looked, err := look(ctx, store, key, entries)
	return append(out, looked...), err
}

// store writes a checkpoint.
func (l RestoreLoad) store(ctx context.Context, store blob.Store, local string, entries uint64) (key string, handles []job.StateHandle, err error) {
	t, err := l.open(ctx, "first", local, 0)
	if err != nil {
		return "", nil, err
	}
	defer func() { err = errors.Join(err, t.b.Close()) }()
	t.fill(entries)
	frozen, err := t.b.Freeze(1)
	if err != nil {
		return "", nil, err
	}
	w := &world{store: store}
	var c checkpoint
	if err = w.write(ctx, frozen, 1, &c); err != nil {
		return "", nil, err
	}
	t.b.Committed(1)
	frozen.Release()
	m := &snapshot.Manifest{
		Job: "state", JobName: "state", Program: "state", Checkpoint: 1, Attempt: 1, Epoch: 1, Mode: job.ExactlyOnce,
		Created: time.Now(), K: job.DefaultMaxParallelism, Hash: snapshot.HashName,
		Operators: map[string]job.OperatorSnapshot{"count": {Parallelism: 1, Subtasks: []job.SubtaskSnapshot{{States: c.handles}}}},
	}
	all, err := snapshot.NewStore(store, "bench")
	if err != nil {
		return "", nil, err
	}
	key, err = all.WriteManifest(ctx, m)
	return key, c.handles, err
}

// restores is how many objects are read at a time.
const restores = 4

// readThrough reads all objects of a checkpoint, and writes them to files in dir if there is one.
func readThrough(ctx context.Context, store blob.Store, handles []job.StateHandle, dir string) (took time.Duration, bytes int64, err error) {
	if dir != "" {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return 0, 0, err
		}
	}
	seen := map[string]bool{}
	var sum atomic.Int64
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(restores)
	start := time.Now()
	for _, h := range handles {
		if h.Object == "" || seen[h.Object] {
			continue
		}
		seen[h.Object] = true
		g.Go(func() error {
			body, _, err := store.Get(gctx, h.Object)
			if err != nil {
				return err
			}
			defer body.Close()
			to := io.Discard
			if dir != "" {
				f, err := os.Create(filepath.Join(dir, filepath.Base(h.Object)))
				if err != nil {
					return err
				}
				defer f.Close()
				to = f
			}
			n, err := io.CopyBuffer(struct{ io.Writer }{to}, body, make([]byte, 256<<10))
			sum.Add(n)
			return err
		})
	}
	err = g.Wait()
	return time.Since(start), sum.Load(), err
}

// restore is the time from nothing to the first value.
func (l RestoreLoad) restore(ctx context.Context, store blob.Store, handles []job.StateHandle, dir, local string, entries uint64) (took time.Duration, err error) {
	start := time.Now()
	t, err := l.open(ctx, dir, local, 1)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, t.b.Close()) }()
	if err := t.b.Restore(ctx, snapshot.NewReader(store), handles); err != nil {
		return 0, err
	}
	k := entries / 2
	h := t.hash(&k)
	p, fresh := t.state.Upsert(h, h, &k)
	took = time.Since(start)
	if fresh || len(*p) != payload || t.state.Len() != int(entries) {
		return 0, fmt.Errorf("the restored state has %d entries of %d, key %d there: %v", t.state.Len(), entries, k, !fresh)
	}
	return took, nil
}

// counted counts what is read of a store.
type counted struct {
	blob.Store
	bytes atomic.Int64
}

func (c *counted) Get(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	r, info, err := c.Store.Get(ctx, key)
	return c.count(r), info, err
}

func (c *counted) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	r, err := c.Store.GetRange(ctx, key, off, n)
	return c.count(r), err
}

func (c *counted) count(r io.ReadCloser) io.ReadCloser {
	if r == nil {
		return nil
	}
	return struct {
		io.Reader
		io.Closer
	}{io.TeeReader(r, writerFunc(func(b []byte) (int, error) { c.bytes.Add(int64(len(b))); return len(b), nil })), r}
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(b []byte) (int, error) { return f(b) }

// look gets one key, as `cairn state get` does.
func look(ctx context.Context, store blob.Store, key string, entries uint64) ([]Figure, error) {
	keys, err := codec.Default[uint64]()
	if err != nil {
		return nil, err
	}
	text, err := keys.Append(nil, new(entries/3))
	if err != nil {
		return nil, err
	}
	c := &counted{Store: store}
	start := time.Now()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	s, err := stored.Open(ctx, c, key, stored.Options{Openers: map[string]stored.Opener{statebackend.KindTree: pebble.OpenStored}})
	if err != nil {
		return nil, err
	}
	found, err := s.States()[0].Get(ctx, text)
	took := time.Since(start)
	if err != nil {
		return nil, err
	}
	if len(found) != 1 {
		return nil, fmt.Errorf("%d entries of key %d", len(found), entries/3)
	}
	return []Figure{
		{What: "a look at one key of it", Value: took.Seconds(), Unit: "s", Limit: getLimit},
		{What: "  what it reads", Value: float64(c.bytes.Load()) / (1 << 20), Unit: "MiB", Limit: getBytes},
	}, nil
}
