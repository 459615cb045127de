package stream

import (
	"fmt"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/join"
	"github.com/cairnstream/cairn/operator/window"
)

// Joined are two keyed streams on the way to a join.
type Joined[K comparable, A, B any] struct{ c Connected[K, A, B] }

// Join joins k with another keyed stream: records of both with the same key meet.
func (k Keyed[K, T]) Join[B any](right Keyed[K, B]) Joined[K, T, B] {
	return Joined[K, T, B]{k.Connect(right)}
}

// Window joins records that are in the same window.
func (j Joined[K, A, B]) Window(w window.TumblingWindows) WindowJoined[K, A, B] {
	return WindowJoined[K, A, B]{j.c, w, join.Inner}
}

// WindowJoined is a join of records in the same window: an inner join, unless Kind says otherwise.
type WindowJoined[K comparable, A, B any] struct {
	c    Connected[K, A, B]
	w    window.TumblingWindows
	kind join.Kind
}

// Kind says what becomes of records without a partner.
func (w WindowJoined[K, A, B]) Kind(k join.Kind) WindowJoined[K, A, B] {
	w.kind = k
	return w
}

// Apply adds the join. When a window is complete f is called for each pair, and for a record without a
// partner, where the kind of the join keeps it, with nil for the other.
func (w WindowJoined[K, A, B]) Apply[U any](name string, f func(a *A, b *B) U) Stream[U] {
	j := w.c.left.s.j
	windows := w.w
	if err := windows.Validate(); err != nil {
		j.bad("join %q: %v", name, err)
		windows = window.Tumbling(time.Hour) // Of no consequence: the job is refused.
	}
	op := job.Operator{Name: name, Kind: job.KindJoin, Stateful: true, Params: fmt.Sprintf("%v join in %v", w.kind, windows)}
	assign, kind := windows.Assigner(), w.kind
	return w.c.add(op, func(s *operator.States[K]) operator.CoHandler[K, A, B, U] {
		return join.Windowed(s, assign, kind, f)
	})
}

// IntervalJoin joins k with another keyed stream by the distance of times.
func (k Keyed[K, T]) IntervalJoin[B any](right Keyed[K, B]) IntervalJoined[K, T, B] {
	return IntervalJoined[K, T, B]{c: k.Connect(right)}
}

// IntervalJoined is a join of records whose times are close.
type IntervalJoined[K comparable, A, B any] struct {
	c      Connected[K, A, B]
	lo, hi time.Duration
}

// Between joins a with b when b's time is from a's time + lo to a's time + hi, both included. They may be
// negative and are whole numbers of milliseconds.
func (i IntervalJoined[K, A, B]) Between(lo, hi time.Duration) IntervalJoined[K, A, B] {
	i.lo, i.hi = lo, hi
	return i
}

// Apply adds the join. f is called for each pair when the later one comes.
func (i IntervalJoined[K, A, B]) Apply[U any](name string, f func(a *A, b *B) U) Stream[U] {
	lo, hi := i.lo.Milliseconds(), i.hi.Milliseconds()
	if i.lo%time.Millisecond != 0 || i.hi%time.Millisecond != 0 || !join.CheckInterval(lo, hi) {
		i.c.left.s.j.bad("join %q: between %v and %v: the bounds are whole numbers of milliseconds, the first not above the second", name, i.lo, i.hi)
		lo, hi = 0, 0
	}
	op := job.Operator{Name: name, Kind: job.KindJoin, Stateful: true, Params: fmt.Sprintf("interval join from %v to %v", i.lo, i.hi)}
	return i.c.add(op, func(s *operator.States[K]) operator.CoHandler[K, A, B, U] {
		return join.Interval(s, lo, hi, f)
	})
}

// TemporalJoin joins k with a versioned table: each record of versions is the row of its key from its time
// on.
func (k Keyed[K, T]) TemporalJoin[B any](versions Keyed[K, B]) TemporalJoined[K, T, B] {
	return TemporalJoined[K, T, B]{k.Connect(versions), join.Inner, 0}
}

// TemporalJoined is a join with a versioned table.
type TemporalJoined[K comparable, A, B any] struct {
	c    Connected[K, A, B]
	kind join.Kind
	ttl  time.Duration
}

// Left joins a record older than every version of its row with nil.
func (t TemporalJoined[K, A, B]) Left() TemporalJoined[K, A, B] {
	t.kind = join.Left
	return t
}

// TTL forgets a version that long after it came, in processing time. Without it the newest version of
// every key is kept for ever.
func (t TemporalJoined[K, A, B]) TTL(after time.Duration) TemporalJoined[K, A, B] {
	t.ttl = after
	return t
}

// Apply adds the join. f is called for each record with the version at its time once the watermark has
// reached it.
func (t TemporalJoined[K, A, B]) Apply[U any](name string, f func(a *A, version *B) U) Stream[U] {
	op := job.Operator{Name: name, Kind: job.KindJoin, Stateful: true, Params: fmt.Sprintf("temporal %v join", t.kind),
		Warnings: forEver(t.ttl, "the newest version of every key")}
	kind, ttl := t.kind, ttlOf(t.ttl)
	return t.c.add(op, func(s *operator.States[K]) operator.CoHandler[K, A, B, U] {
		return join.Temporal(s, kind, f, ttl...)
	})
}

// Unbounded joins all records of a key of one stream with all of the other, whenever they come.
func (j Joined[K, A, B]) Unbounded() UnboundedJoined[K, A, B] {
	return UnboundedJoined[K, A, B]{j.c, 0}
}

// UnboundedJoined is an inner join without bounds in time.
type UnboundedJoined[K comparable, A, B any] struct {
	c   Connected[K, A, B]
	ttl time.Duration
}

// TTL forgets a record that long after it came, in processing time. Without it every record is kept for
// ever.
func (u UnboundedJoined[K, A, B]) TTL(after time.Duration) UnboundedJoined[K, A, B] {
	u.ttl = after
	return u
}

// Apply adds the join. f is called for each pair when the later one comes.
func (u UnboundedJoined[K, A, B]) Apply[U any](name string, f func(a *A, b *B) U) Stream[U] {
	op := job.Operator{Name: name, Kind: job.KindJoin, Stateful: true, Params: "inner join without bounds",
		Warnings: forEver(u.ttl, "every record of both inputs")}
	ttl := ttlOf(u.ttl)
	return u.c.add(op, func(s *operator.States[K]) operator.CoHandler[K, A, B, U] {
		return join.Unbounded(s, f, ttl...)
	})
}

// forEver is the warning of an operator that keeps something for ever when it has no TTL.
func forEver(ttl time.Duration, what string) []string {
	if ttl != 0 {
		return nil
	}
	return []string{"state grows without bound: it keeps " + what + " for ever: give it a TTL, unless there is a limited number of them"}
}

// ttlOf is the TTL of a state that lives that long behind its last change; none for 0.
func ttlOf(after time.Duration) []operator.TTL {
	if after == 0 {
		return nil
	}
	return []operator.TTL{{After: after}}
}
