// Package tables is what the backends memory and fs have in common: every state is a table in memory, and a
// snapshot is encoded as a segment per state. Start reading at Backend. It starts no goroutines.
package tables

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
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
	alive  *alive // Snapshots not yet released.

	restored bool
	pending  *restore // What Restore has been given for states that are not open yet.
	broken   error    // Set when a restore failed.
	closed   bool
}

type state struct {
	name       string
	key, value string // Schemas.
	typ        statebackend.Type
	table      statebackend.Table
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
	return &Backend{cfg: c, byName: map[string]*state{}, alive: &alive{}}, nil
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
		if err := b.pending.load(s); err != nil {
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
	b.pending = newRestore(ctx, r, b.cfg, handles)
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
		if err := b.pending.load(s); err != nil {
			b.broken = err
			return err
		}
	}
	return nil
}

// Unopened implements statebackend.Backend.
func (b *Backend) Unopened() []string {
	if b.pending == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(b.pending.handles))
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
	if !b.alive.add(b.cfg.MaxConcurrent + 1) {
		return fail(fmt.Errorf("%w: %d", statebackend.ErrTooManySnapshots, b.cfg.MaxConcurrent+1))
	}
	s := &snapshot{id: id, cfg: b.cfg, alive: b.alive}
	for _, st := range b.states {
		f, err := st.table.Freeze()
		if err != nil {
			s.Release()
			return fail(fmt.Errorf("state %q: %w", st.name, err))
		}
		s.states = append(s.states, frozenState{state: st, frozen: f})
	}
	return s, nil
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

// Committed implements statebackend.Backend. Full snapshots build on nothing, so there is nothing to note.
func (b *Backend) Committed(job.CheckpointID) {}

// Close implements statebackend.Backend.
func (b *Backend) Close() error {
	for _, s := range b.states {
		s.table.Close()
	}
	b.states, b.byName, b.pending, b.closed = nil, nil, nil, true
	return nil
}

// alive counts snapshots that are not released. Release is called on other goroutines.
type alive struct {
	mu struct {
		sync.Mutex
		n int
	}
}

func (a *alive) add(limit int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	if a.mu.n >= limit {
		return false
	}
	a.mu.n++
	return true
}

func (a *alive) done() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.n--
}
