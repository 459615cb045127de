package streamtest

import (
	"context"
	"encoding/binary"
	"errors"
	"slices"
	"strconv"
	"sync"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// Input is a source that the test feeds. It keeps all that was ever pushed, so that a restored job
// reads on from its checkpoint.
//
// An input has one part or several, which are its splits: the records of one part are read in their
// order, each push as a batch of its own. Every method of Input but Part goes to the first part,
// except Watermark and End, which go to all.
type Input[T any] struct {
	parts []*Part[T]
	mu    sync.Mutex // Guards the parts.
}

// Part is a split of an Input.
type Part[T any] struct {
	in     *Input[T]
	pushes []push[T]
	ended  bool
	wake   func() // Of the reader that has it, or nil.
}

type push[T any] struct {
	rows  []T
	times []int64 // As many as rows, or none.
	marks []record.Mark
}

func newInput[T any](parts int) *Input[T] {
	in := &Input[T]{}
	for range max(1, parts) {
		in.parts = append(in.parts, &Part[T]{in: in})
	}
	return in
}

// Push gives the job a batch of records without times of their own, such as for a program that
// takes them from the records by Timestamps.
func (in *Input[T]) Push(rows ...T) { in.parts[0].Push(rows...) }

// PushAt gives the job a batch of records with that event time, in milliseconds since 1970 UTC.
func (in *Input[T]) PushAt(ms int64, rows ...T) { in.parts[0].PushAt(ms, rows...) }

// Watermark says that no record with that time or an earlier one follows, in milliseconds since
// 1970 UTC. It has no effect in a program that makes watermarks by a strategy of its own.
func (in *Input[T]) Watermark(ms int64) {
	for _, p := range in.parts {
		p.Watermark(ms)
	}
}

// End says that nothing follows.
func (in *Input[T]) End() {
	for _, p := range in.parts {
		p.End()
	}
}

// Part is part i, counted from 0.
func (in *Input[T]) Part(i int) *Part[T] { return in.parts[i] }

// Push is like Input.Push.
func (p *Part[T]) Push(rows ...T) { p.push(push[T]{rows: slices.Clone(rows)}) }

// PushAt is like Input.PushAt.
func (p *Part[T]) PushAt(ms int64, rows ...T) {
	p.push(push[T]{rows: slices.Clone(rows), times: slices.Repeat([]int64{ms}, len(rows))})
}

// Watermark is like Input.Watermark. The watermark of the input is the lowest of its parts'.
func (p *Part[T]) Watermark(ms int64) {
	p.push(push[T]{marks: []record.Mark{{Kind: record.Watermark, Time: ms}}})
}

// End says that nothing follows in this part.
func (p *Part[T]) End() {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	p.ended = true
	p.awake()
}

func (p *Part[T]) push(e push[T]) {
	p.in.mu.Lock()
	defer p.in.mu.Unlock()
	if p.ended {
		panic("streamtest: push behind the end of an input")
	}
	p.pushes = append(p.pushes, e)
	p.awake()
}

func (p *Part[T]) awake() {
	if p.wake != nil {
		p.wake()
	}
}

// Splits implements operator.Source.
func (in *Input[T]) Splits(context.Context, operator.SourceContext) ([]operator.Split, error) {
	var list []operator.Split
	for i := range in.parts {
		list = append(list, split(i, 0))
	}
	return list, nil
}

func split(part, next int) operator.Split {
	body := binary.AppendUvarint(binary.AppendUvarint(nil, uint64(part)), uint64(next))
	return operator.Split{ID: strconv.Itoa(part), Body: body}
}

// Open implements operator.Source.
func (in *Input[T]) Open(_ context.Context, c operator.SourceContext, s operator.Split) (operator.SplitReader[T], error) {
	part, n := binary.Uvarint(s.Body)
	if n <= 0 || part >= uint64(len(in.parts)) {
		return nil, job.Errorf(job.ClassRefused, "split %q is not one of the %d of this input", s.ID, len(in.parts))
	}
	next, m := binary.Uvarint(s.Body[n:])
	p := in.parts[part]
	in.mu.Lock()
	defer in.mu.Unlock()
	if m <= 0 || next > uint64(len(p.pushes)) {
		return nil, job.Errorf(job.ClassRefused, "split %q is at push %d of %d", s.ID, next, len(p.pushes))
	}
	p.wake = c.Wake
	r := &partReader[T]{part: p, index: int(part), next: int(next), watermark: record.MinTime}
	for _, e := range p.pushes[:next] {
		for _, k := range e.marks {
			r.watermark = max(r.watermark, k.Time)
		}
	}
	return r, nil
}

// Bounded implements operator.Source.
func (in *Input[T]) Bounded() bool { return true }

// Validate implements operator.Source.
func (in *Input[T]) Validate() error {
	if in == nil || len(in.parts) == 0 {
		return errors.New("an empty streamtest.Input; make it with Harness.Input")
	}
	return nil
}

type partReader[T any] struct {
	part      *Part[T]
	index     int
	next      int
	watermark int64 // Reached before the restore and not told yet; record.MinTime when there is none.
}

// Read implements operator.SplitReader. A push is one batch, however long: the test decides.
func (r *partReader[T]) Read(b *record.Batch[T], _ int) (operator.ReadStatus, error) {
	in := r.part.in
	in.mu.Lock()
	defer in.mu.Unlock()
	if r.watermark != record.MinTime {
		b.Mark(record.Watermark, r.watermark)
		r.watermark = record.MinTime
	}
	if r.next < len(r.part.pushes) {
		e := r.part.pushes[r.next]
		r.next++
		b.Rows = append(b.Rows, e.rows...)
		b.Times = append(b.Times, e.times...)
		b.Marks = append(b.Marks, e.marks...)
	}
	switch {
	case r.next < len(r.part.pushes):
		return operator.ReadMore, nil
	case r.part.ended:
		return operator.ReadEnd, nil
	}
	return operator.ReadWait, nil
}

// Position implements operator.SplitReader.
func (r *partReader[T]) Position() operator.Split { return split(r.index, r.next) }

// Close implements operator.SplitReader.
func (r *partReader[T]) Close() error { return nil }
