package checkpoint

import (
	"fmt"
	"slices"
	"time"

	"github.com/cairnstream/cairn/job"
)

// phase is where a checkpoint is on its way. It only moves forward, except that publishing and
// unknown alternate until the outcome is known.
type phase string

const (
	collecting phase = "collecting" // Some task has not acknowledged.
	acked      phase = "acked"      // All have; another one is being published.
	publishing phase = "publishing" // Publish or Resolve was emitted and is not answered.
	unknown    phase = "unknown"    // The outcome is unknown; Resolve follows at retryAt.
)

// pending is a checkpoint on its way.
type pending struct {
	id        job.CheckpointID
	attempt   job.Attempt
	base      job.CheckpointID // Committed when it was triggered. Its objects may be in the acks.
	triggered time.Time
	final     bool
	savepoint *Savepoint // Taken with it, or nil.
	phase     phase
	retryAt   time.Time
	tasks     []job.Task
	acks      map[job.Task]Snapshot
	// spare holds objects of duplicate acks. Several tasks share an object, so whether one is of use
	// is known only at the end.
	spare   []string
	waiters []Token
}

// waiting lists the tasks that have not acknowledged.
func (p *pending) waiting() []job.Task {
	var out []job.Task
	for _, t := range p.tasks {
		if _, ok := p.acks[t]; !ok {
			out = append(out, t)
		}
	}
	return out
}

// objects lists every object of the accepted acks, sorted, without duplicates.
func (p *pending) objects() []string {
	var out []string
	for _, s := range p.acks {
		out = append(out, s.Objects()...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

func (p *pending) bytes() int64 {
	var n int64
	for _, s := range p.acks {
		n += s.Stats.Bytes
	}
	return n
}

// endOfData tells whether every task had reached the end of its data.
func (p *pending) endOfData() bool {
	for _, s := range p.acks {
		if !s.endOfData() {
			return false
		}
	}
	return p.phase != collecting
}

func (p *pending) String() string {
	s := fmt.Sprintf("%v%s%s %s", p.id, finalText(p.final), p.savepoint.text(), p.phase)
	if w := p.waiting(); len(w) > 0 {
		s += fmt.Sprintf(" waiting=%v", w)
	}
	return s
}
