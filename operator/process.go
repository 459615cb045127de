package operator

import (
	"fmt"
	"reflect"
	"slices"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

const timersState = "timers"

// Handler is what a keyed process operator does.
type Handler[K comparable, T, U any] struct {
	// Record is called for each record, under its key.
	Record func(c *KeyedContext[K, U], in *T)
	// Timer is called for each event-time timer that is due, under the key that set it; nil for an
	// operator without timers.
	Timer func(c *KeyedContext[K, U])
}

// KeyedContext is what a Handler works with during a call.
type KeyedContext[K comparable, U any] struct {
	*Collector[U]
	key    *K
	hash   uint64
	timers *timers[K]
	seg    *int64 // Current watermark.
}

// Key is the current key.
func (c *KeyedContext[K, U]) Key() K { return *c.key }

// Time is the event time of the record or timer, in milliseconds since 1970 UTC.
func (c *KeyedContext[K, U]) Time() int64 { return c.time }

// Watermark is the current watermark in milliseconds since 1970 UTC, record.MinTime before the
// first.
func (c *KeyedContext[K, U]) Watermark() int64 { return *c.seg }

// SetTimer has Timer called for the current key when the watermark reaches ms. Setting the same
// time twice sets one timer. A time that the watermark has passed fires at the next watermark,
// or after a restore. At the end of the data every timer fires, and also those that Timer sets then:
// one that always sets another looks at Watermark, which is record.MaxTime at the end, and stops.
func (c *KeyedContext[K, U]) SetTimer(ms int64) {
	if c.timers == nil {
		panic("SetTimer in a Handler without a Timer function")
	}
	c.timers.set(c.key, c.hash, ms)
}

// DeleteTimer takes back a timer of the current key.
func (c *KeyedContext[K, U]) DeleteTimer(ms int64) {
	if c.timers != nil {
		c.timers.remove(c.key, c.hash, ms)
	}
}

// States declares the states of a keyed process operator. Its constructor calls Value on it, once
// when the job is built and once for each subtask.
type States[K comparable] struct {
	decls    []job.StateDecl
	problems []string
	key      codec.Codec[K]
	// Of a running subtask:
	backend statebackend.Backend
	hash    func(*K) uint64
	cur     *cursor[K]
	ahead   []statebackend.Ahead // The states that are one.
	side    func(name string) Output
	now     *int64
	outs    sides

	sideNames []string
	sideTypes map[string]reflect.Type
}

// cursor is the key that the operator is at.
type cursor[K comparable] struct {
	key  *K
	hash uint64
}

// NewStates makes a States that only collects declarations.
func NewStates[K comparable](key codec.Codec[K]) *States[K] { return &States[K]{key: key} }

// Decls lists what was declared.
func (s *States[K]) Decls() []job.StateDecl { return s.decls }

// Problems lists what was wrong with the declarations.
func (s *States[K]) Problems() []string { return s.problems }

// Sides names the side outputs that were declared, with the types of their records.
func (s *States[K]) Sides() (names []string, types map[string]reflect.Type) {
	return s.sideNames, s.sideTypes
}

// Side declares a side output.
func (s *States[K]) Side[V any](name string) *Side[V] {
	if name == "" || slices.Contains(s.sideNames, name) {
		s.problems = append(s.problems, fmt.Sprintf("a side output may not be named %q: names are not empty and unique", name))
	}
	s.sideNames = append(s.sideNames, name)
	if s.sideTypes == nil {
		s.sideTypes = map[string]reflect.Type{}
	}
	s.sideTypes[name] = reflect.TypeFor[V]()
	if s.side == nil {
		return &Side[V]{}
	}
	o := &Side[V]{col: newCollector[V](s.side(name)), now: s.now}
	s.outs = append(s.outs, o.col)
	return o
}

func (s *States[K]) declare(name, kind string, value codec.Schema) {
	switch {
	case name == "" || name == timersState:
		s.problems = append(s.problems, fmt.Sprintf("a state may not be named %q", name))
	case slices.ContainsFunc(s.decls, func(d job.StateDecl) bool { return d.Name == name }):
		s.problems = append(s.problems, fmt.Sprintf("state %q is declared twice", name))
	}
	s.decls = append(s.decls, job.StateDecl{Name: name, Kind: kind, Key: s.key.Schema().String(), Value: value.String()})
}

// Value declares a state that holds one V per key, with the codec that codec.Default picks for V.
func (s *States[K]) Value[V any](name string) *ValueState[V] {
	c, err := codec.Default[V]()
	if err != nil {
		s.problems = append(s.problems, fmt.Sprintf("state %q: %v", name, err))
		return &ValueState[V]{}
	}
	return s.ValueWith(name, c)
}

// ValueWith is Value with a codec of the caller's choice.
func (s *States[K]) ValueWith[V any](name string, c codec.Codec[V]) *ValueState[V] {
	s.declare(name, "value", c.Schema())
	if s.backend == nil {
		return &ValueState[V]{}
	}
	hash := s.hash
	v, err := statebackend.OpenValue(s.backend, statebackend.ValueDesc[K, V]{
		Name: name, Key: s.key, Value: c,
		Hash: func(k *K) (uint64, uint64) { h := hash(k); return h, h },
	})
	if err != nil {
		s.problems = append(s.problems, err.Error())
		return &ValueState[V]{}
	}
	if a, ok := v.(statebackend.Ahead); ok {
		s.ahead = append(s.ahead, a)
	}
	return &ValueState[V]{at: boundValue[K, V]{v, s.cur}}
}

// valueAt is a state at the current key.
type valueAt[V any] interface {
	get() *V
	upsert() (*V, bool)
	set(*V)
	clear() bool
}

// ValueState holds one V for each key. Its methods work on the key of the record or timer being
// processed.
type ValueState[V any] struct{ at valueAt[V] }

// Get returns a copy of the value and whether there is one. What it points to is read-only.
func (s *ValueState[V]) Get() (v V, ok bool) {
	if p := s.at.get(); p != nil {
		return *p, true
	}
	return v, false
}

// Set stores a copy of v.
func (s *ValueState[V]) Set(v V) { s.at.set(&v) }

// Update gives f the value for changing in place, the zero V when there is none. The pointer is
// valid during the call.
func (s *ValueState[V]) Update(f func(v *V)) {
	p, _ := s.at.upsert()
	f(p)
}

// Ref returns the value for changing in place, created as the zero V when there is none. It is
// valid until the next use of any state, the cheapest way to read and write in one.
func (s *ValueState[V]) Ref() *V {
	p, _ := s.at.upsert()
	return p
}

// Clear removes the value; it tells whether there was one.
func (s *ValueState[V]) Clear() bool { return s.at.clear() }

type boundValue[K comparable, V any] struct {
	v   statebackend.Value[K, V]
	cur *cursor[K]
}

func (b boundValue[K, V]) get() *V            { return b.v.Get(b.cur.hash, b.cur.hash, b.cur.key) }
func (b boundValue[K, V]) upsert() (*V, bool) { return b.v.Upsert(b.cur.hash, b.cur.hash, b.cur.key) }
func (b boundValue[K, V]) set(v *V)           { b.v.Set(b.cur.hash, b.cur.hash, b.cur.key, v) }
func (b boundValue[K, V]) clear() bool        { return b.v.Delete(b.cur.hash, b.cur.hash, b.cur.key) }

type processOp[K comparable, T, U any] struct {
	key  func(*T) K
	kc   codec.Codec[K]
	make func(*States[K]) Handler[K, T, U]

	handler Handler[K, T, U]
	ctx     KeyedContext[K, U]
	cur     cursor[K]
	k       K // Storage of the current key.
	hash    func(*K) uint64
	outs    sides
	seg     segments[T]
	ahead   []statebackend.Ahead
	run     struct { // Of records whose keys were found; see recordsAhead.
		keys   [aheadRun]K
		hashes [aheadRun]uint64
	}
}

// aheadRun is how many records have their state fetched at a time: enough to keep the memory busy, few
// enough that what was fetched is still in the first-level cache when it is used.
const aheadRun = 32

// Process returns a keyed operator with state and timers. construct is called once for each
// subtask with a States that binds what it declares.
func Process[K comparable, T, U any](key func(*T) K, kc codec.Codec[K], construct func(*States[K]) Handler[K, T, U]) Operator {
	return &processOp[K, T, U]{key: key, kc: kc, make: construct}
}

func (p *processOp[K, T, U]) Open(c *Context) error {
	p.hash = codec.NewHasher(p.kc)
	p.cur.key = &p.k
	p.ctx = KeyedContext[K, U]{Collector: newCollector[U](c.Out), key: &p.k, seg: &p.seg.now}
	s := &States[K]{key: p.kc, backend: c.State, hash: p.hash, cur: &p.cur, side: c.Side, now: &p.ctx.time}
	p.handler = p.make(s)
	if len(s.problems) > 0 {
		return &job.Problems{What: fmt.Sprintf("operator %q", c.Name), List: s.problems}
	}
	p.outs, p.ahead = s.outs, s.ahead
	p.seg = segments[T]{process: p.records, fire: p.fire, pass: p.pass, done: p.done, now: c.Watermark}
	if p.handler.Timer != nil {
		var err error
		if p.ctx.timers, err = openTimers(c.State, p.kc, p.hash); err != nil {
			return err
		}
	}
	return nil
}

func (p *processOp[K, T, U]) pass(m record.Mark) {
	p.ctx.mark(m)
	p.outs.mark(m)
}

func (p *processOp[K, T, U]) done() error {
	if err := p.ctx.done(); err != nil {
		return err
	}
	return p.outs.done()
}

// Ready is called when the state has been restored.
func (p *processOp[K, T, U]) Ready() error {
	if p.ctx.timers != nil {
		p.ctx.timers.rebuild()
		// Timers that were due when the checkpoint was taken fire before anything else.
		p.seg.firing = p.ctx.timers.due(p.seg.now)
	}
	return nil
}

func (p *processOp[K, T, U]) Push(_ int, a record.Any) error { return p.seg.push(batchOf[T](a)) }
func (p *processOp[K, T, U]) Pending() bool                  { return p.seg.pending() }
func (p *processOp[K, T, U]) Resume() error                  { return p.seg.resume() }
func (p *processOp[K, T, U]) Interruptible() bool            { return p.seg.interruptible() }
func (p *processOp[K, T, U]) EndOfData() error               { return p.seg.advance(record.MaxTime) }

func (p *processOp[K, T, U]) records(b *record.Batch[T], from, to int) error {
	if slices.ContainsFunc(p.ahead, statebackend.Ahead.Far) {
		return p.recordsAhead(b, from, to)
	}
	hashes := b.Hash
	haveHash := len(hashes) == len(b.Rows) && len(hashes) > 0
	haveTime := len(b.Times) == len(b.Rows)
	f := p.handler.Record
	for n := from; n < to; n++ {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		row := &b.Rows[i]
		p.k = p.key(row)
		if haveHash {
			p.cur.hash = hashes[i]
		} else {
			p.cur.hash = p.hash(&p.k)
		}
		p.ctx.hash = p.cur.hash
		if haveTime {
			p.ctx.time = b.Times[i]
		} else {
			p.ctx.time = record.MinTime
		}
		f(&p.ctx, row)
	}
	return p.ctx.err
}

// recordsAhead is records for states that are far: the keys of a run of records are found before the
// first of them is handled, so that the states can fetch what belongs to them all at once.
func (p *processOp[K, T, U]) recordsAhead(b *record.Batch[T], from, to int) error {
	haveHash := len(b.Hash) == len(b.Rows)
	haveTime := len(b.Times) == len(b.Rows)
	f := p.handler.Record
	row := func(n int) int {
		if b.Sel != nil {
			return int(b.Sel[n])
		}
		return n
	}
	for ; from < to; from += aheadRun {
		n := min(to-from, aheadRun)
		keys, hashes := p.run.keys[:n], p.run.hashes[:n]
		for j := range keys {
			i := row(from + j)
			keys[j] = p.key(&b.Rows[i])
			if haveHash {
				hashes[j] = b.Hash[i]
			} else {
				hashes[j] = p.hash(&keys[j])
			}
		}
		for _, a := range p.ahead {
			if a.Far() {
				a.Fetch(hashes, hashes)
			}
		}
		for j := range keys {
			i := row(from + j)
			p.k = keys[j]
			p.cur.hash, p.ctx.hash = hashes[j], hashes[j]
			p.ctx.time = record.MinTime
			if haveTime {
				p.ctx.time = b.Times[i]
			}
			f(&p.ctx, &b.Rows[i])
		}
	}
	return p.ctx.err
}

func (p *processOp[K, T, U]) fire(w int64, limit int) (bool, error) {
	if p.ctx.timers == nil {
		return false, nil
	}
	for range limit {
		k, time, ok := p.ctx.timers.pop(w)
		if !ok {
			return false, p.ctx.err
		}
		p.k = k.key
		p.cur.hash, p.ctx.hash = k.hash, k.hash
		p.ctx.time = time
		p.handler.Timer(&p.ctx)
	}
	return p.ctx.timers.due(w), p.ctx.err
}

func (p *processOp[K, T, U]) Close() error {
	p.seg.close()
	p.outs.drop()
	if p.ctx.Collector != nil {
		p.ctx.drop()
	}
	return nil
}
