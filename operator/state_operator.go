package operator

import (
	"fmt"
	"iter"
	"slices"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// The kinds of operator state, as StateDecl and snapshots have them.
const (
	kindList      = "list"
	kindBroadcast = "broadcast"
)

// Broadcaster is implemented by Checkpointed operators some of whose lists are the same in every
// subtask: each subtask stores its own, and after a restore with any parallelism each gets one whole.
type Broadcaster interface {
	// Broadcast tells whether the list is such a one.
	Broadcast(state string) bool
}

// Itemized is implemented by Checkpointed operators that tell what the items of a list are. It is kept with the
// list, and given back in Context.Items.
type Itemized interface {
	// ItemSchema is the text of the schema of the list's items; empty if only the operator knows.
	ItemSchema(state string) string
}

// operatorState holds the states of an operator that belong to no key. The zero value has none.
type operatorState struct {
	parts    []operatorPart
	restored map[string][][]byte
	schemas  map[string]string // Of the items restored.
	operator string
	running  bool // A subtask's, not one that only collects declarations.
	writable bool // The broadcast states may be changed now.
}

// operatorPart is one of them.
type operatorPart interface {
	state() (name, kind string)
	// schema is that of the items.
	schema() codec.Schema
	encode() ([][]byte, error)
}

func (o *operatorState) snapshot() (map[string][][]byte, error) {
	if o == nil || len(o.parts) == 0 {
		return nil, nil
	}
	out := make(map[string][][]byte, len(o.parts))
	for _, p := range o.parts {
		name, _ := p.state()
		items, err := p.encode()
		if err != nil {
			return nil, fmt.Errorf("state %q: %w", name, err)
		}
		out[name] = items
	}
	return out, nil
}

func (o *operatorState) isBroadcast(state string) bool {
	return o != nil && slices.ContainsFunc(o.parts, func(p operatorPart) bool {
		name, kind := p.state()
		return name == state && kind == kindBroadcast
	})
}

func (o *operatorState) itemSchema(state string) string {
	if o != nil {
		for _, p := range o.parts {
			if name, _ := p.state(); name == state {
				return p.schema().String()
			}
		}
	}
	return ""
}

// olderItems returns the n schemas that the items of a restored list are made of, nil if they are those of now.
func olderItems(schemas map[string]string, state string, now codec.Schema, n int) ([]codec.Schema, error) {
	text := schemas[state]
	if text == "" || text == now.String() { // Lists of an older release say nothing.
		return nil, nil
	}
	old, err := codec.ParseSchema(text)
	if err != nil {
		return nil, err
	}
	return codec.PartsOf(old, now, n)
}

// refusedItems is the error about the items of a restored list that cannot be read.
func refusedItems(operator, state, old string, now codec.Schema, err error) error {
	return &job.Error{Class: job.ClassRefused, Err: &statebackend.SchemaError{
		Operator: operator, State: state, Part: "value", Old: old, New: now.String(), Err: err,
	}}
}

// OperatorStates declares the states of an operator without keys: lists of its own, which are dealt out
// again when the parallelism changes, and side outputs. The constructor calls List and Side, once
// when the job is built and once for each subtask.
type OperatorStates struct {
	declarations
	operatorState
}

// NewOperatorStates makes an OperatorStates that only collects declarations.
func NewOperatorStates() *OperatorStates { return &OperatorStates{} }

func (o *operatorState) open(c *Context) {
	o.restored, o.schemas, o.operator, o.running = c.List, c.Items, c.Name, true
}

// List declares a list of the subtask, with the codec that codec.Default picks for V. A restore with the
// same parallelism gives each subtask its list back; with another one the elements of all are dealt
// out in turn.
func (s *OperatorStates) List[V any](name string) *OperatorList[V] {
	c, err := codec.Default[V]()
	if err != nil {
		s.bad("state %q: %v", name, err)
		return &OperatorList[V]{}
	}
	l := &OperatorList[V]{name: name, codec: c}
	s.declare(name, kindList, "", c.Schema().String())
	from, err := olderItems(s.schemas, name, l.schema(), 1)
	if err == nil && from != nil {
		c, err = codec.Evolve(c, from[0])
	}
	if err != nil {
		s.refused = refusedItems(s.operator, name, s.schemas[name], l.schema(), err)
		return l
	}
	for i, item := range s.restored[name] {
		var v V
		if n, err := c.Decode(item, &v); err != nil || n != len(item) {
			s.bad("state %q: element %d: %v of %d bytes decoded: %v", name, i, n, len(item), err)
			return l
		}
		l.vs = append(l.vs, v)
	}
	s.parts = append(s.parts, l)
	return l
}

// OperatorList is a list of one subtask, kept in memory and stored whole with each checkpoint.
type OperatorList[V any] struct {
	name  string
	codec codec.Codec[V]
	vs    []V
}

// Append adds v.
func (l *OperatorList[V]) Append(v V) { l.vs = append(l.vs, v) }

// Set replaces the list by a copy of vs.
func (l *OperatorList[V]) Set(vs []V) { l.vs = append(l.vs[:0:0], vs...) }

// Values is the list. The caller may change its elements; it is valid until the list changes.
func (l *OperatorList[V]) Values() []V { return l.vs }

// Len is the number of elements.
func (l *OperatorList[V]) Len() int { return len(l.vs) }

func (l *OperatorList[V]) state() (name, kind string) { return l.name, kindList }

func (l *OperatorList[V]) schema() codec.Schema {
	return codec.Schema{Codec: "item", Version: 1, Shape: l.codec.Schema().String()}
}

func (l *OperatorList[V]) encode() ([][]byte, error) {
	items := make([][]byte, len(l.vs))
	for i := range l.vs {
		b, err := l.codec.Append(nil, &l.vs[i])
		if err != nil {
			return nil, fmt.Errorf("element %d: %w", i, err)
		}
		items[i] = b
	}
	return items, nil
}

// Broadcast declares a map that is the same in every subtask, since only the records of the broadcast
// side change it. It is kept in memory, and each subtask stores it whole with each checkpoint. Only
// operators with a broadcast side may have one.
func (s *States[K]) Broadcast[MK comparable, V any](name string) *BroadcastState[MK, V] {
	b := &BroadcastState[MK, V]{name: name, vs: map[MK]V{}}
	if s.shared == nil {
		s.bad("state %q: only an operator with a broadcast side has broadcast state: use ConnectBroadcast", name)
		return b
	}
	var ok1, ok2 bool
	b.key, ok1 = s.defaultCodec[MK](name)
	b.val, ok2 = s.defaultCodec[V](name)
	if !ok1 || !ok2 {
		return b
	}
	if err := codec.CheckKey(b.key); err != nil {
		s.bad("state %q: %v", name, err)
		return b
	}
	s.declare(name, kindBroadcast, "", codec.JoinSchemas(b.key.Schema(), b.val.Schema()))
	b.of = s.shared
	val := b.val
	from, err := olderItems(s.shared.schemas, name, b.schema(), 2)
	if err == nil && from != nil {
		if err = codec.Unchanged("[key]", from[0], b.key.Schema()); err == nil {
			val, err = codec.Evolve(val, from[1])
		}
	}
	if err != nil {
		s.refused = refusedItems(s.shared.operator, name, s.shared.schemas[name], b.schema(), err)
		return b
	}
	for i, item := range s.shared.restored[name] {
		if err := b.decode(item, val); err != nil {
			s.bad("state %q: entry %d: %v", name, i, err)
			return b
		}
	}
	s.shared.parts = append(s.shared.parts, b)
	return b
}

// BroadcastState is a map that is the same in every subtask. Records of the keyed side read it; those
// of the broadcast side change it too, by what the record says alone, so that it stays the same
// everywhere: not by clocks, random numbers or the subtask.
type BroadcastState[MK comparable, V any] struct {
	of    *operatorState
	name  string
	key   codec.Codec[MK]
	val   codec.Codec[V]
	vs    map[MK]V
	order []MK // Of first insertion.
}

// Get returns the value of k and whether there is one.
func (b *BroadcastState[MK, V]) Get(k MK) (V, bool) {
	v, ok := b.vs[k]
	return v, ok
}

// Len is the number of entries.
func (b *BroadcastState[MK, V]) Len() int { return len(b.vs) }

// All goes over the entries in the order of their insertion.
func (b *BroadcastState[MK, V]) All() iter.Seq2[MK, V] {
	return func(yield func(MK, V) bool) {
		for _, k := range b.order {
			if !yield(k, b.vs[k]) {
				return
			}
		}
	}
}

// Put sets the value of k. It panics outside the Broadcast callback.
func (b *BroadcastState[MK, V]) Put(k MK, v V) {
	b.mayWrite()
	if _, ok := b.vs[k]; !ok {
		b.order = append(b.order, k)
	}
	b.vs[k] = v
}

// Delete removes k; it tells whether there was a value. It panics outside the Broadcast callback.
func (b *BroadcastState[MK, V]) Delete(k MK) bool {
	b.mayWrite()
	if _, ok := b.vs[k]; !ok {
		return false
	}
	delete(b.vs, k)
	b.order = slices.DeleteFunc(b.order, func(o MK) bool { return o == k })
	return true
}

func (b *BroadcastState[MK, V]) mayWrite() {
	if b.of == nil || !b.of.writable {
		panic(fmt.Sprintf("broadcast state %q is changed by something else than a record of the broadcast side", b.name))
	}
}

func (b *BroadcastState[MK, V]) state() (name, kind string) { return b.name, kindBroadcast }

func (b *BroadcastState[MK, V]) schema() codec.Schema {
	return codec.Schema{Codec: "entry", Version: 1, Shape: codec.JoinSchemas(b.key.Schema(), b.val.Schema())}
}

func (b *BroadcastState[MK, V]) encode() ([][]byte, error) {
	items := make([][]byte, 0, len(b.order))
	for _, k := range b.order {
		v := b.vs[k]
		item, err := b.key.Append(nil, &k)
		if err == nil {
			item, err = b.val.Append(item, &v)
		}
		if err != nil {
			return nil, fmt.Errorf("entry of %v: %w", k, err)
		}
		items = append(items, item)
	}
	return items, nil
}

func (b *BroadcastState[MK, V]) decode(item []byte, val codec.Codec[V]) error {
	var k MK
	var v V
	n, err := b.key.Decode(item, &k)
	if err != nil {
		return err
	}
	m, err := val.Decode(item[n:], &v)
	if err != nil {
		return err
	}
	if n+m != len(item) {
		return fmt.Errorf("%d bytes of %d decoded", n+m, len(item))
	}
	if _, ok := b.vs[k]; ok {
		return fmt.Errorf("key %v is there twice", k)
	}
	b.order = append(b.order, k)
	b.vs[k] = v
	return nil
}

// PlainHandler is what a process operator without keys does.
type PlainHandler[T, U any] struct {
	// Record is called for each record.
	Record func(c *PlainContext[U], in *T)
	// End is called behind the last record, or nil.
	End func(c *PlainContext[U])
}

// PlainContext is what a PlainHandler works with during a call.
type PlainContext[U any] struct {
	*Collector[U]
	watermark   int64
	subtask     int
	parallelism int
}

// Time is the event time of the record, in milliseconds since 1970 UTC.
func (c *PlainContext[U]) Time() int64 { return c.time }

// Watermark is the current watermark in milliseconds since 1970 UTC.
func (c *PlainContext[U]) Watermark() int64 { return c.watermark }

// Subtask is the number of this subtask, of Parallelism.
func (c *PlainContext[U]) Subtask() int { return c.subtask }

// Parallelism is the number of subtasks of the operator.
func (c *PlainContext[U]) Parallelism() int { return c.parallelism }

// problem makes one error of what was wrong with an operator's states.
func (d *declarations) problem(c *Context) error {
	switch {
	case d.refused != nil:
		return d.refused
	case len(d.problems) == 0:
		return nil
	}
	return &job.Problems{What: fmt.Sprintf("operator %q", c.Name), List: d.problems}
}
