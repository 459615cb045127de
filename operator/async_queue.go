package operator

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/fnv"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// asyncCall is a record under way, or a mark that waits for its turn.
type asyncCall[T, U any] struct {
	in   T
	time int64
	// results and err belong to the call's goroutine until it has handed the call back.
	results []U
	err     error

	done       bool
	stretch    int64 // Number of marks that were queued before it.
	isMark     bool
	mark       record.Mark
	prev, next *asyncCall[T, U]
}

// asyncQueue holds what was taken and not emitted, in the order of input. The zero value is an
// empty queue. The operator's goroutine alone uses it.
type asyncQueue[T, U any] struct {
	ordered    bool
	head, tail *asyncCall[T, U]
	records    int
	marks      int64 // Queued so far.
	passed     int64 // Of those, emitted.
	// ready are, in an unordered queue, the finished calls that no mark holds back.
	ready []*asyncCall[T, U]
}

func (q *asyncQueue[T, U]) push(e *asyncCall[T, U]) {
	e.stretch, e.prev = q.marks, q.tail
	if q.tail == nil {
		q.head = e
	} else {
		q.tail.next = e
	}
	q.tail = e
	if !e.isMark {
		q.records++
	}
}

// pushMark queues m, or joins it with the mark just before it, so that marks without records do not
// add up while a record is under way.
func (q *asyncQueue[T, U]) pushMark(m record.Mark) {
	if t := q.tail; t != nil && t.isMark {
		switch {
		case t.mark.Kind == record.Watermark && m.Kind == record.Watermark:
			t.mark.Time = m.Time
			return
		case t.mark.Kind == record.Idle && m.Kind == record.Active:
			q.remove(t)
			q.marks--
			return
		}
	}
	q.push(&asyncCall[T, U]{isMark: true, mark: m})
	q.marks++
}

func (q *asyncQueue[T, U]) remove(e *asyncCall[T, U]) {
	if e.prev == nil {
		q.head = e.next
	} else {
		e.prev.next = e.next
	}
	if e.next == nil {
		q.tail = e.prev
	} else {
		e.next.prev = e.prev
	}
	e.prev, e.next = nil, nil
	if !e.isMark {
		q.records--
	}
}

// finish notes that the results of e are there.
func (q *asyncQueue[T, U]) finish(e *asyncCall[T, U]) {
	e.done = true
	if !q.ordered && e.stretch == q.passed {
		q.ready = append(q.ready, e)
	}
}

// emittable tells whether pop has something.
func (q *asyncQueue[T, U]) emittable() bool {
	return len(q.ready) > 0 || q.head != nil && (q.head.isMark || q.ordered && q.head.done)
}

// pop takes what is to be emitted next.
func (q *asyncQueue[T, U]) pop() *asyncCall[T, U] {
	var e *asyncCall[T, U]
	if len(q.ready) > 0 {
		e = q.ready[0]
		q.ready[0] = nil
		q.ready = q.ready[1:]
	} else {
		e = q.head
	}
	next := e.next
	q.remove(e)
	if !e.isMark {
		return e
	}
	// What is behind the mark, up to the next one, is held back no longer.
	q.passed++
	for n := next; !q.ordered && n != nil && !n.isMark; n = n.next {
		if n.done {
			q.ready = append(q.ready, n)
		}
	}
	return e
}

// A record under way, in list state, version 1: byte version, 8 bytes FNV-1a of the codec's schema
// (little-endian), varint event time, the record as its codec has it.
const callVersion = 1

func encodeCall[T any](c codec.Codec[T], in *T, time int64) ([]byte, error) {
	b := binary.LittleEndian.AppendUint64([]byte{callVersion}, schemaHash(c.Schema()))
	return c.Append(binary.AppendVarint(b, time), in)
}

// CallSchema is that of a record under way in CallsState, from that of the record.
func CallSchema(record codec.Schema) codec.Schema {
	return codec.Schema{Codec: "call", Version: callVersion, Shape: record.String()}
}

// decodeCall reads what was encoded under the schema old, which c decodes.
func decodeCall[T any](c codec.Codec[T], old codec.Schema, b []byte) (in T, time int64, err error) {
	if len(b) < 9 || b[0] != callVersion {
		return in, 0, fmt.Errorf("record under way, in state: not of version %d", callVersion)
	}
	if binary.LittleEndian.Uint64(b[1:]) != schemaHash(old) {
		return in, 0, job.Errorf(job.ClassRefused, "record under way, in state: it was written with another schema than that of its codec now, %v", c.Schema())
	}
	time, n := binary.Varint(b[9:])
	if n <= 0 {
		return in, 0, errors.New("record under way, in state: truncated")
	}
	b = b[9+n:]
	took, err := c.Decode(b, &in)
	if err == nil && took != len(b) {
		err = fmt.Errorf("%d bytes left over", len(b)-took)
	}
	if err != nil {
		return in, 0, fmt.Errorf("record under way, in state: %w", err)
	}
	return in, time, nil
}

func schemaHash(s codec.Schema) uint64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(s.String()))
	return h.Sum64()
}
