package operator

import (
	"context"
	"fmt"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Names of an enumerator's list states. The splits that no reader has yet, in order, and one byte
// that says how far it got.
const (
	splitsState = "splits"
	phaseState  = "phase"
)

// Phases of an enumerator, as kept in its snapshot.
const (
	phaseListing byte = iota // The input was not listed yet.
	phaseGiving              // splits holds what no reader has.
	phaseDone                // Every reader was told that there are no more.
)

// enumerator lists the splits of a source and gives them to readers as they ask. Each reader gets
// one at the start, so that none is left without while another hoards.
type enumerator struct {
	list    func(ctx context.Context, c SourceContext) ([]Split, error)
	deal    bool // All splits are given out at once.
	readers int
	c       *Context
	phase   byte
	splits  []Split
	waiting []int // Readers that asked while there was nothing to give.
	started bool
	stop    context.CancelFunc
	listed  chan struct{} // Closed when the listing goroutine is gone.
	gather  gathering
}

// Enumerator returns the enumerator of a source. Its output is an edge of SplitMessage.
func Enumerator[T any](s Source[T]) Operator { return AlignedEnumerator(s, Peers{}) }

// AlignedEnumerator is the enumerator of a source that is aligned with others.
func AlignedEnumerator[T any](s Source[T], p Peers) Operator {
	o, ok := s.(InOrder)
	return &enumerator{
		list: s.Splits, gather: gathering{Peers: p},
		// A split that may never end makes no room for another: its reader would not ask.
		deal: !s.Bounded() && !(ok && o.SplitsInOrder()),
	}
}

// SetReaders tells the number of its readers before Open.
func (e *enumerator) SetReaders(n int) { e.readers = n }

func (e *enumerator) Open(c *Context) error {
	e.c = c
	if p := c.Union[phaseState]; len(p) > 0 && len(p[0]) == 1 {
		e.phase = p[0][0]
	}
	for _, b := range c.Union[splitsState] {
		s, err := decodeSplit(b)
		if err != nil {
			return err
		}
		e.splits = append(e.splits, s.Split)
	}
	e.openAlignment()
	return nil
}

func (e *enumerator) Start() error {
	e.started = true
	switch e.phase {
	case phaseDone:
		return e.sayNoMore()
	case phaseGiving:
		return e.serve()
	}
	ctx, cancel := context.WithCancel(e.c.Context)
	e.stop = cancel
	e.listed = make(chan struct{})
	sc := SourceContext{Name: e.c.Name, Subtask: -1, Parallelism: e.readers, Now: e.c.Now, Wake: func() {}}
	go func() {
		defer close(e.listed)
		var splits []Split
		err := guard(func() (err error) {
			splits, err = e.list(ctx, sc)
			return err
		})
		if ctx.Err() != nil {
			return
		}
		e.c.Post(func() error {
			if err != nil {
				return fmt.Errorf("list the splits of source %q: %w", e.c.Name, err)
			}
			e.splits, e.phase = splits, phaseGiving
			for i := 0; len(e.splits) > 0 && (i < e.readers || e.deal); i++ {
				if err := e.give(i % e.readers); err != nil {
					return err
				}
			}
			return e.serve()
		})
	}()
	return nil
}

// serve gives splits to those who wait, and says so once there are none left.
func (e *enumerator) serve() error {
	for len(e.waiting) > 0 && len(e.splits) > 0 {
		r := e.waiting[0]
		e.waiting = e.waiting[1:]
		if err := e.give(r); err != nil {
			return err
		}
	}
	if len(e.splits) == 0 {
		e.phase = phaseDone
		return e.sayNoMore()
	}
	return nil
}

func (e *enumerator) give(reader int) error {
	s := e.splits[0]
	e.splits = e.splits[1:]
	b := record.PoolOf[SplitMessage]().Get()
	b.Append(SplitMessage{Reader: int64(reader), ID: s.ID, Body: s.Body}, record.MinTime)
	return e.c.Out.Emit(b)
}

func (e *enumerator) sayNoMore() error {
	b := record.PoolOf[SplitMessage]().Get()
	for i := range e.readers {
		b.Append(SplitMessage{Reader: int64(i), NoMore: true}, record.MinTime)
	}
	return e.c.Out.Emit(b)
}

func (e *enumerator) Receive(from job.Task, body []byte) error {
	if len(body) != 1 {
		e.receiveAlign(from, body)
		return nil
	}
	if body[0] != mailRequestSplit || from.Subtask < 0 || from.Subtask >= e.readers {
		return nil // Advice of another version: not understood, not needed.
	}
	switch e.phase {
	case phaseDone:
		return nil
	case phaseGiving:
		if e.started {
			e.waiting = append(e.waiting, from.Subtask)
			return e.serve()
		}
	}
	return nil
}

// Exhausted tells that every split was given out.
func (e *enumerator) Exhausted() bool { return e.started && e.phase == phaseDone }

// Poll and Deadline make the enumerator a Poller that acts on mail alone.
func (e *enumerator) Poll() (bool, error)         { return false, nil }
func (e *enumerator) Deadline() (time.Time, bool) { return time.Time{}, false }

func (e *enumerator) Prepare(job.CheckpointID) error   { return nil }
func (e *enumerator) Committed(job.CheckpointID) error { return nil }

func (e *enumerator) Snapshot(job.CheckpointID) (map[string][][]byte, error) {
	m := map[string][][]byte{phaseState: {{e.phase}}}
	for _, s := range e.splits {
		m[splitsState] = append(m[splitsState], encodeSplit(s))
	}
	return m, nil
}

func (e *enumerator) Push(int, record.Any) error { return fmt.Errorf("an enumerator has no input") }
func (e *enumerator) EndOfData() error           { return nil }

func (e *enumerator) Close() error {
	if e.stop != nil {
		e.stop()
		<-e.listed
	}
	return nil
}
