// Package tables is what the backends memory and fs have in common: every state is a table in memory, and a
// snapshot is encoded as a segment per state. Start reading at Backend. It starts no goroutines.
package tables

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Config describes a Backend.
type Config struct {
	statebackend.Params
	// Inline keeps snapshots in their handles; InlineLimit is then the most bytes per state.
	Inline      bool
	InlineLimit int64
	// FullBelow is the number of entries below which a state is written in full each time, as long as that is small. Zero
	// means DefaultFullBelow.
	FullBelow int
	// Trees reads what the backend pebble wrote. Nil for a backend that refuses it.
	Trees statebackend.OpenTrees
}

// Validate lists what is wrong with c.
func (c Config) Validate() error {
	var errs []error
	if c.K < 1 || c.K > job.MaxMaxParallelism {
		errs = append(errs, fmt.Errorf("number of key groups is %d, want 1 to %d", c.K, job.MaxMaxParallelism))
	}
	if c.Groups.First < 0 || c.Groups.Last >= c.K || c.Groups.Last < c.Groups.First-1 {
		errs = append(errs, fmt.Errorf("key groups %v are not within %d", c.Groups, c.K))
	}
	if c.MaxConcurrent < 0 {
		errs = append(errs, fmt.Errorf("max-concurrent is %d", c.MaxConcurrent))
	}
	if c.Inline && c.InlineLimit < 1 {
		errs = append(errs, fmt.Errorf("limit of inline state is %d bytes", c.InlineLimit))
	}
	if len(errs) > 0 {
		return fmt.Errorf("state backend of operator %q: %w", c.Operator, errors.Join(errs...))
	}
	return nil
}

// Backend implements statebackend.Backend.
type Backend struct {
	cfg    Config
	states []*state // In the order in which they were opened.
	byName map[string]*state
	alive  *statebackend.Alive // Snapshots not yet released.

	restored bool
	pending  *restore         // What Restore has been given for states that are not open yet.
	written  *written         // Snapshots that may come to be committed.
	newest   job.CheckpointID // The newest that is known to be committed: what the states' base is of.
	objects  objects
	build    bool  // The next snapshot may build on it.
	broken   error // Set when a restore failed.
	closed   bool
}

type state struct {
	name       string
	key, value string // Schemas.
	typ        statebackend.Type
	table      statebackend.Table

	base    *part    // What the newest committed snapshot has of it, if a later one may build on that.
	changes *changes // Nil when changes are not noted.
	full    int64    // Bytes of the newest full segment.
	backoff
}

// backoff counts snapshots for which changes are not noted, after they were too many.
type backoff struct{ skip, next int }

func (b *backoff) failed() {
	b.next = min(2*b.next+1, maxSkip)
	b.skip = b.next
}

// part is what a snapshot has of one state.
type part struct {
	state *state
	epoch uint32 // Of the table's Freeze.
	chain statebackend.Chain
	old   int  // Of the chain, how many handles were there before.
	many  bool // So much had changed that it was written in full.
}

var _ statebackend.Backend = (*Backend)(nil)

// New makes a backend without states.
func New(c Config) (*Backend, error) {
	if c.MaxConcurrent == 0 {
		c.MaxConcurrent = 1
	}
	if err := c.Validate(); err != nil {
		return nil, err
	}
	if c.FullBelow == 0 {
		c.FullBelow = DefaultFullBelow
	}
	b := &Backend{cfg: c, byName: map[string]*state{}, alive: &statebackend.Alive{}, written: &written{}, objects: objects{}}
	if c.Own {
		b.newest = c.Restored
	}
	return b, nil
}

// Open implements statebackend.Backend.
func (b *Backend) Open(t statebackend.Type) (statebackend.Table, error) {
	name := t.StateName()
	fail := func(err error) (statebackend.Table, error) {
		return nil, fmt.Errorf("operator %q: open state %q: %w", b.cfg.Operator, name, err)
	}
	switch {
	case b.closed:
		return fail(errors.New("the backend is closed"))
	case b.broken != nil:
		return fail(b.broken)
	case b.byName[name] != nil:
		return fail(errors.New("it is open already"))
	}
	tab, err := t.NewTable(statebackend.TableParams{
		First: b.cfg.Groups.First, Count: b.cfg.Groups.Len(), K: b.cfg.K, MaxFrozen: b.cfg.MaxConcurrent + 1,
		Operator: b.cfg.Operator, MaxValue: b.cfg.MaxValue,
	})
	if err != nil {
		return fail(err)
	}
	key, value := t.Schemas()
	s := &state{name: name, key: key, value: value, typ: t, table: tab}
	if b.pending != nil {
		if err := b.load(s); err != nil {
			b.broken = err
			tab.Close()
			return nil, err
		}
	}
	b.states = append(b.states, s)
	b.byName[name] = s
	return tab, nil
}

// Restore implements statebackend.Backend.
func (b *Backend) Restore(ctx context.Context, r statebackend.Reader, handles []job.StateHandle) error {
	switch {
	case b.closed:
		return fmt.Errorf("operator %q: restore: the backend is closed", b.cfg.Operator)
	case b.restored:
		return fmt.Errorf("operator %q: restore: it has been restored already", b.cfg.Operator)
	}
	b.restored = true
	chains, err := statebackend.Chains(handles)
	if err != nil {
		b.broken = fmt.Errorf("operator %q: restore: %w", b.cfg.Operator, err)
		return b.broken
	}
	b.pending = newRestore(ctx, r, b.cfg, chains)
	if err := b.pending.openTrees(handles); err != nil {
		b.broken = err
		return err
	}
	for _, s := range b.states {
		if s.table.Len() > 0 {
			b.broken = fmt.Errorf("operator %q: restore: state %q has entries already", b.cfg.Operator, s.name)
			return b.broken
		}
	}
	for _, s := range b.states {
		if err := b.pending.check(s); err != nil {
			b.broken = err
			return err
		}
	}
	for _, s := range b.states {
		if err := b.load(s); err != nil {
			b.broken = err
			return err
		}
	}
	return nil
}

// load fills a state with what the checkpoint has of it. If that is this subtask's alone the next snapshot may build on it.
func (b *Backend) load(s *state) error {
	chain, err := b.pending.load(s)
	if err != nil || chain == nil || !b.cfg.Own || b.cfg.Restored == 0 {
		return err
	}
	s.full = chain[0].Length
	if !b.large(s) {
		return nil
	}
	f, err := s.table.Freeze()
	if err != nil {
		return err
	}
	f.Release()
	s.table.Merge(0) // The table need not copy anything for it.
	s.changes = track(s.table, b.cfg.Groups.Len(), f.Epoch())
	s.base = &part{state: s, epoch: f.Epoch(), chain: chain}
	return nil
}

// large tells whether it pays to write what changed of a state by itself.
func (b *Backend) large(s *state) bool {
	return b.cfg.Incremental && !b.cfg.Inline && (s.table.Len() >= b.cfg.FullBelow || s.full >= smallBytes)
}

// Unopened implements statebackend.Backend.
func (b *Backend) Unopened() []string {
	if b.pending == nil {
		return nil
	}
	return b.pending.unopened()
}

// Freeze implements statebackend.Backend.
func (b *Backend) Freeze(id job.CheckpointID) (statebackend.Snapshot, error) {
	fail := func(err error) (statebackend.Snapshot, error) {
		return nil, fmt.Errorf("operator %q: freeze for checkpoint %v: %w", b.cfg.Operator, id, err)
	}
	switch names := b.Unopened(); {
	case b.closed:
		return fail(errors.New("the backend is closed"))
	case b.broken != nil:
		return fail(b.broken)
	case len(names) > 0:
		return fail(fmt.Errorf("the checkpoint restored from has states that the operator did not open: %q", names))
	}
	if !b.alive.Add(b.cfg.MaxConcurrent + 1) {
		return fail(fmt.Errorf("%w: %d", statebackend.ErrTooManySnapshots, b.cfg.MaxConcurrent+1))
	}
	s := &snapshot{id: id, cfg: b.cfg, alive: b.alive, written: b.written}
	for _, st := range b.states {
		f, err := st.table.Freeze()
		if err != nil {
			s.Release()
			return fail(fmt.Errorf("state %q: %w", st.name, err))
		}
		s.states = append(s.states, b.plan(st, f))
	}
	return s, nil
}

// plan says how a state is to be written, and sees to it that changes are noted from now on if it is large.
func (b *Backend) plan(st *state, f statebackend.FrozenTable) frozenState {
	p := frozenState{state: st, frozen: f}
	if c := st.changes; c != nil && c.over {
		st.changes, st.base = nil, nil
		st.failed()
	}
	switch {
	case !b.large(st):
		if st.changes != nil {
			st.changes.stop()
		}
		st.changes, st.base = nil, nil
	case st.changes == nil && st.skip > 0:
		st.skip--
	case st.changes == nil:
		st.changes = track(st.table, b.cfg.Groups.Len(), f.Epoch())
	default:
		st.changes.seal(f.Epoch())
		if st.base != nil && b.build && !b.objects.crowded(st.base.chain) {
			p.base, p.removed = st.base.chain, slices.Clone(st.changes.sealed)
		}
	}
	return p
}

// Merge implements statebackend.Backend. The budget is for all states together.
func (b *Backend) Merge(budget time.Duration) bool {
	more := false
	var start time.Time
	for _, s := range b.states {
		left := budget
		if more || !start.IsZero() {
			left -= time.Since(start)
		} else {
			start = time.Now()
		}
		if left <= 0 {
			return true
		}
		if s.table.Merge(left) {
			more = true
		}
	}
	return more
}

// Sizes implements statebackend.Backend.
func (b *Backend) Sizes() []statebackend.Size {
	out := make([]statebackend.Size, len(b.states))
	for i, s := range b.states {
		out[i] = statebackend.Size{State: s.name, Entries: int64(s.table.Len()), Bytes: s.table.Bytes()}
	}
	return out
}

// Committed implements statebackend.Backend.
func (b *Backend) Committed(id job.CheckpointID) {
	parts, found := b.written.take(id)
	b.build = found || id != 0 && id == b.newest
	if !found {
		return
	}
	b.newest = id
	for _, st := range b.states {
		st.base = nil
	}
	for _, p := range parts {
		st := p.state
		switch {
		case len(p.chain) == 0:
			continue
		case p.many && st.changes != nil:
			st.changes.stop() // The next Freeze counts it.
		case len(p.chain) > 1:
			st.next = 0
		}
		st.full = p.chain[0].Length
		// What changed between the two is known only if it was noted all the time.
		if c := st.changes; c != nil && !c.over && p.epoch >= c.since {
			st.base = &p
			c.rebase(p.epoch)
		}
	}
	for _, p := range parts {
		b.objects.wrote(p)
	}
	b.objects.recount(b.states)
}

// Close implements statebackend.Backend.
func (b *Backend) Close() error {
	for _, s := range b.states {
		s.table.Close()
	}
	var err error
	if b.pending != nil {
		err = b.pending.closeTrees()
	}
	b.states, b.byName, b.pending, b.closed = nil, nil, nil, true
	return err
}
