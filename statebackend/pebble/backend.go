package pebble

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"time"

	pebbledb "github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/cairnstream/cairn/internal/table"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Backend implements statebackend.Backend. Its owner alone uses it, but for what flush and snapshot say.
type Backend struct {
	p        statebackend.Params
	factory  *Factory
	shared   *shared
	leave    func() // The budget.
	dir      string // Of the tree and of files on their way to it.
	fs       *treeFS
	opts     *pebbledb.Options
	tree     tree
	troubles troubles
	flusher  flusher

	states  []*state // In the order in which they were opened.
	byName  map[string]*state
	nextID  int      // Number of the next state of the tree.
	pending []*flush // Given to the flusher and not yet noted.
	alive   *statebackend.Alive

	restored bool
	restore  *restore // What Restore has been given for states that are not open yet.
	broken   error    // Set when a restore failed.
	closed   bool
	failed   *statebackend.Fault // The first one.

	base          job.CheckpointID // The checkpoint that the next snapshot may build on,
	snapshots     *snapshots       // and those that it may be.
	local         *local
	links         int       // Folders of snapshots,
	restoredFiles int       // and files of a restore, that there were.
	renewed       time.Time // When the tree's files were last let go of by reads.
}

var (
	_ statebackend.Backend = (*Backend)(nil)
	_ statebackend.Tender  = (*Backend)(nil)
)

// newBackend makes a backend with an empty tree.
func newBackend(p statebackend.Params, f *Factory) (*Backend, error) {
	if p.MaxConcurrent == 0 {
		p.MaxConcurrent = 1
	}
	if err := validate(p); err != nil {
		return nil, err
	}
	b := &Backend{
		p: p, factory: f, byName: map[string]*state{}, alive: &statebackend.Alive{}, leave: p.Budget.Join(),
		snapshots: newSnapshots(),
	}
	fail := func(err error) (*Backend, error) {
		b.leave()
		return nil, fmt.Errorf("state backend of operator %q: local state in %s: %w", p.Operator, p.Dir, err)
	}
	var err error
	if b.dir, err = os.MkdirTemp(p.Dir, "tree-"); err != nil {
		return fail(err)
	}
	b.shared = f.join(p.Budget)
	b.tree.b, b.tree.empty = b, true
	b.local = newLocal(p)
	if err := b.openTree(); err != nil {
		f.leave()
		return fail(errors.Join(err, os.RemoveAll(b.dir)))
	}
	b.flusher = flusher{b: b, jobs: make(chan *flush, p.MaxConcurrent+3)}
	b.flusher.wg.Go(b.flusher.run)
	return b, nil
}

func validate(p statebackend.Params) error {
	var errs []error
	if p.K < 1 || p.K > job.MaxMaxParallelism {
		errs = append(errs, fmt.Errorf("number of key groups is %d, want 1 to %d", p.K, job.MaxMaxParallelism))
	}
	if p.Groups.First < 0 || p.Groups.Last >= p.K || p.Groups.Last < p.Groups.First-1 {
		errs = append(errs, fmt.Errorf("key groups %v are not within %d", p.Groups, p.K))
	}
	if p.MaxConcurrent < 0 {
		errs = append(errs, fmt.Errorf("max-concurrent is %d", p.MaxConcurrent))
	}
	if p.Dir == "" {
		errs = append(errs, errors.New("it has no folder for local state"))
	}
	if len(errs) > 0 {
		return fmt.Errorf("state backend of operator %q: %w", p.Operator, errors.Join(errs...))
	}
	return nil
}

// openTree opens what is in the folder of the tree.
func (b *Backend) openTree() error {
	dir := b.treeDir()
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	disk := b.factory.disk
	if disk == nil {
		disk = vfs.Default
	}
	fs, err := newTreeFS(disk, b.dir)
	if err != nil {
		return err
	}
	b.fs, b.opts = fs, options(b.shared, fs, &b.troubles)
	b.tree.db, err = pebbledb.Open(dir, b.opts)
	return err
}

func (b *Backend) treeDir() string { return b.dir + "/tree" }

// fault ends the task: the state API has no errors. Who catches the panic gets it again with the next access that is more than a
// look into the cache, and no snapshot: a change may have been made by half.
func (b *Backend) fault(err error) {
	if b.failed == nil {
		b.failed = &statebackend.Fault{Err: fmt.Errorf("operator %q: local state: %w", b.p.Operator, err), Path: b.dir}
	}
	for _, s := range b.states {
		s.cache.Limit = 0 // Every change asks for room.
	}
	panic(*b.failed)
}

// stillGood panics again after a fault.
func (b *Backend) stillGood() {
	if b.failed != nil {
		panic(*b.failed)
	}
}

// Open implements statebackend.Backend. It returns no table.
func (b *Backend) Open(t statebackend.Type) (statebackend.Table, error) {
	name := t.StateName()
	fail := func(err error) (statebackend.Table, error) {
		return nil, fmt.Errorf("operator %q: open state %q: %w", b.p.Operator, name, err)
	}
	switch {
	case b.closed:
		return fail(errors.New("the backend is closed"))
	case b.broken != nil:
		return fail(b.broken)
	case b.byName[name] != nil:
		return fail(errors.New("it is open already"))
	}
	s, err := b.open(t)
	if err != nil {
		return fail(err)
	}
	b.states = append(b.states, s)
	b.byName[name] = s
	if b.restore != nil {
		if err := b.restore.load(s); err != nil {
			b.broken = err
			return nil, err
		}
	}
	return nil, nil
}

// Unopened implements statebackend.Backend.
func (b *Backend) Unopened() []string {
	if b.restore == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(b.restore.names))
}

// Freeze implements statebackend.Backend.
func (b *Backend) Freeze(id job.CheckpointID) (statebackend.Snapshot, error) {
	fail := func(err error) (statebackend.Snapshot, error) {
		return nil, fmt.Errorf("operator %q: freeze for checkpoint %v: %w", b.p.Operator, id, err)
	}
	switch names := b.Unopened(); {
	case b.closed:
		return fail(errors.New("the backend is closed"))
	case b.broken != nil:
		return fail(b.broken)
	case len(names) > 0:
		return fail(fmt.Errorf("the checkpoint restored from has states that the operator did not open: %q", names))
	}
	if b.failed != nil {
		return fail(*b.failed)
	}
	if err := b.troubles.err(); err != nil {
		return fail(err)
	}
	if !b.alive.Add(b.p.MaxConcurrent + 1) {
		return fail(fmt.Errorf("%w: %d", statebackend.ErrTooManySnapshots, b.p.MaxConcurrent+1))
	}
	b.harvest()
	for len(b.pending) > b.p.MaxConcurrent+1 { // Of snapshots that were given up.
		<-b.pending[0].done
		b.harvest()
	}
	s := b.newSnapshot(id)
	f, err := b.freeze(s.link)
	if err != nil {
		b.alive.Done()
		return fail(err)
	}
	s.flush = f
	b.snapshots.hold()
	return s, nil
}

// freeze hands the caches over to the flusher.
func (b *Backend) freeze(link string) (*flush, error) {
	f := &flush{link: link, done: make(chan struct{})}
	for _, s := range b.states {
		if err := s.cache.Settle(); err != nil {
			return nil, err
		}
	}
	for _, s := range b.states {
		main, err := s.cache.Main.Freeze()
		if err != nil {
			f.release()
			return nil, fmt.Errorf("state %q: %w", s.name, err)
		}
		f.states = append(f.states, frozenState{s: s, main: main, tag: s.tag()})
		if s.cache.Gone.Len() == 0 {
			continue
		}
		gone, err := s.cache.Gone.Freeze()
		if err != nil {
			f.release()
			return nil, fmt.Errorf("state %q: %w", s.name, err)
		}
		f.states[len(f.states)-1].gone = gone
	}
	slices.SortFunc(f.states, func(a, b frozenState) int { return cmp.Compare(a.s.id, b.s.id) }) // The order of keys.
	b.pending = append(b.pending, f)
	b.flusher.jobs <- f // There is room: see Freeze, and one spill at a time.
	return f, nil
}

// harvest takes note of flushes that are done: what they wrote may leave the caches.
func (b *Backend) harvest() {
	for len(b.pending) > 0 {
		f := b.pending[0]
		select {
		case <-f.done:
		default:
			return
		}
		b.pending = b.pending[1:]
		if f.err != nil {
			continue // What it was to write is still noted as changed; the next one writes it.
		}
		for _, s := range f.states {
			s.s.cache.Main.Rebase(s.main.Epoch())
			if s.gone != nil {
				s.s.cache.Gone.Rebase(s.gone.Epoch())
			}
			if s.size > 0 {
				s.s.size = s.size
			}
			s.s.newest = max(s.s.newest, s.newest)
		}
		if f.written > 0 {
			b.tree.renew()
			b.tree.empty = false
		}
	}
}

// Merge implements statebackend.Backend. The budget is for all states together.
func (b *Backend) Merge(budget time.Duration) bool {
	start := time.Now()
	b.harvest()
	if start.Sub(b.renewed) > renewEvery && b.troubles.err() == nil {
		// Else the files of a tree that is not written to are kept for ever. What fails here the next read tells.
		if err := b.tree.files.list(&b.tree); err != nil {
			b.tree.renew()
		}
		// There may be more backends than there were. A cache that has all that is used is asked for nothing, else.
		b.tree.files.trim(&b.tree, lookupFiles)
		if b.memory() > b.share() {
			for _, s := range b.states {
				s.cache.Limit = 0
			}
		}
		b.renewed = start
	}
	for _, s := range b.states {
		if err := s.cache.Settle(); err != nil {
			panic(statebackend.Fault{Err: err})
		}
		for _, c := range []interface{ Merge(time.Duration) bool }{s.cache.Main, s.cache.Gone} {
			left := budget - time.Since(start)
			if left <= 0 || c.Merge(left) {
				return true
			}
		}
	}
	for _, s := range b.states {
		for _, c := range []*table.Core{s.cache.Main, s.cache.Gone} {
			if c.Sparse() && s.walks == 0 && c.Tidy(budget-time.Since(start)) {
				return true
			}
		}
	}
	more := len(b.pending) > 0
	for _, s := range b.states {
		for s.stale && time.Since(start) < budget {
			s.rewrite()
		}
		more = more || s.stale
	}
	return more
}

// Due implements statebackend.Tender.
func (b *Backend) Due() bool {
	for _, s := range b.states {
		if s.cache.Main.Sparse() || s.cache.Gone.Sparse() {
			return true
		}
	}
	return false
}

// renewEvery is how long reads may keep files that the tree has replaced, and a cache more than its share. A variable for tests
// that do not wait.
var renewEvery = 5 * time.Second

// Sizes implements statebackend.Backend.
func (b *Backend) Sizes() []statebackend.Size {
	out := make([]statebackend.Size, len(b.states))
	for i, s := range b.states {
		out[i] = statebackend.Size{State: s.name, Entries: s.n, Bytes: s.memory(), Disk: int64(s.size * float64(s.n))}
	}
	return out
}

// Committed implements statebackend.Backend.
func (b *Backend) Committed(id job.CheckpointID) {
	b.base = id
	b.snapshots.committed(id)
}

// Close implements statebackend.Backend.
func (b *Backend) Close() error {
	if b.closed {
		return nil
	}
	b.closed = true
	b.tree.files.close()
	close(b.flusher.jobs)
	b.flusher.wg.Wait()
	closed, err := b.closeTree()
	for _, s := range b.states {
		s.cache.Main.Close()
		s.cache.Gone.Close()
	}
	b.states, b.byName, b.restore = nil, nil, nil
	if closed {
		b.factory.leave()
	}
	b.leave()
	b.snapshots.leave(b.dir)
	if err != nil {
		return fmt.Errorf("operator %q: close the local tree: %w", b.p.Operator, err)
	}
	return nil
}

// lostGrace is how long the end of a tree that is lost may take.
const lostGrace = time.Second

// closeTree closes the tree; it tells whether that came to an end, which that of a tree that is lost may not: the goroutine that lost
// it has ended with locks held. Then it stays, with its part of what all share.
func (b *Backend) closeTree() (closed bool, err error) {
	if b.tree.db == nil {
		return true, nil
	}
	if b.troubles.err() == nil {
		return true, b.tree.db.Close()
	}
	done := make(chan struct{})
	go func(db *pebbledb.DB) {
		defer func() {
			if r := recover(); r == nil {
				close(done)
			}
		}()
		_ = db.Close() // It is known to be lost.
	}(b.tree.db)
	select {
	case <-done:
		return true, nil
	case <-time.After(lostGrace):
		return false, nil
	}
}
