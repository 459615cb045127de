package stream

import (
	"reflect"
	"slices"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/watermark"
)

// sourceDef is a source whose timestamps may still be set.
type sourceDef[T any] struct {
	source operator.Source[T]
	timing operator.Timing[T]
}

// sourceUse is a source directly behind which a stream is.
type sourceUse struct {
	def  any  // A *sourceDef.
	used bool // Another operator reads the stream already.
}

// aligned is what a source says of its alignment once the job is built.
type aligned struct {
	enumerator, reader int
	strategy           func() watermark.Strategy
}

// Timestamps gives the records their event time and the stream its watermarks. Directly behind a
// source each of its splits has a watermark of its own. Idleness and alignment are of sources:
// elsewhere a strategy with them is refused.
//
// A record whose time is the zero time.Time or out of range fails the job, and one that is more than
// a day ahead of the wall clock moves no watermark: see watermark.Strategy's BadTimes and MaxAhead.
//
// As to the type parameter see Windowed.Reduce.
func (s Stream[T]) Timestamps[F ~func(*T) time.Time](f F, w watermark.Strategy) Stream[T] {
	needTime(s.flow, f != nil)
	return timestamps(s, operator.Timing[T]{Time: f, Strategy: w})
}

// Watermarks gives the stream its watermarks, directly behind a source that gives its records their
// times itself. Where the source marks watermarks as well, both count; watermark.FromSource, which
// makes none, is to set idleness or alignment alone.
func (s Stream[T]) Watermarks(w watermark.Strategy) Stream[T] {
	if s.source == nil || s.source.used {
		s.j.bad("watermarks of %q: they are set directly behind a source; elsewhere use Timestamps", s.j.ops[s.op].Name)
		return s
	}
	return stampSource(s, operator.Timing[T]{Strategy: w})
}

// TimestampsWithMarkers is Timestamps for records some of which carry a watermark: mark says that
// behind this record none follows with a time at or before the one it returns. w makes further ones;
// watermark.None is for markers alone.
func (s Stream[T]) TimestampsWithMarkers[F ~func(*T) time.Time](f F, mark func(*T) (at time.Time, ok bool), w watermark.Strategy) Stream[T] {
	if mark == nil {
		s.j.bad("timestamps of %q: the function of markers is nil", s.j.ops[s.op].Name)
	}
	needTime(s.flow, f != nil)
	return timestamps(s, operator.Timing[T]{Time: f, Mark: mark, Strategy: w})
}

func needTime(f *flow, have bool) {
	if !have {
		f.j.bad("timestamps of %q: the function is nil", f.j.ops[f.op].Name)
	}
}

// timestamps sets the timing of the source that s is of, or adds an operator.
func timestamps[T any](s Stream[T], t operator.Timing[T]) Stream[T] {
	if s.source != nil && !s.source.used {
		return stampSource(s, t)
	}
	checkTiming(s.flow, t.Strategy, false, false)
	out := add[T, T](s, job.Operator{Kind: job.KindTimestamps}, func() operator.Operator { return operator.TimestampsOf(t) }).withCodecOf(s.flow)
	divertTo(out.flow, t.Strategy, reflect.TypeFor[T]())
	return out
}

// stampSource sets the timing of the source that s is of.
func stampSource[T any](s Stream[T], t operator.Timing[T]) Stream[T] {
	checkTiming(s.flow, t.Strategy, true, t.Mark == nil && t.Time != nil)
	s.source.used = true
	s.source.def.(*sourceDef[T]).timing = t
	out := *s.flow
	out.source = nil
	divertTo(&out, t.Strategy, reflect.TypeFor[T]())
	return Stream[T]{&out}
}

// divertTo declares the side output of records whose times cannot be right, where there is one.
func divertTo(f *flow, w watermark.Strategy, t reflect.Type) {
	if w.Action() == watermark.Divert {
		op := &f.j.ops[f.op]
		op.Sides = append(op.Sides, watermark.SideOutput)
		f.j.sides[f.op] = map[string]reflect.Type{watermark.SideOutput: t}
	}
}

// checkTiming records what does not fit; timesOnly tells that watermarks come from nothing but the strategy.
func checkTiming(f *flow, w watermark.Strategy, atSource, timesOnly bool) {
	name := f.j.ops[f.op].Name
	if err := w.Validate(); err != nil {
		f.j.bad("timestamps of %q: %v", name, err)
	}
	group, _ := w.Alignment()
	if atSource {
		if group != "" && timesOnly && !w.MakesWatermarks() && !w.TakesSourceMarks() {
			f.j.bad("timestamps of %q: alignment in group %q needs watermarks", name, group)
		}
		return
	}
	if w.IdleTimeout() > 0 || group != "" {
		f.j.bad("timestamps of %q: a watermark strategy with an idle timeout or an alignment belongs directly behind a source", name)
	}
	if w.TakesSourceMarks() {
		f.j.bad("timestamps of %q: watermarks of the source are taken directly behind a source only", name)
	}
}

// peers are the others of the group that source i of the job is aligned in.
func (j *Job) peers(i int) operator.Peers {
	group, _ := j.sources[i].strategy().Alignment()
	if group == "" {
		return operator.Peers{}
	}
	p := operator.Peers{Align: true, Reader: j.ops[j.sources[i].reader].Name}
	for n, s := range j.sources {
		if g, _ := s.strategy().Alignment(); n != i && g == group {
			p.Enumerators = append(p.Enumerators, j.ops[s.enumerator].Name)
		}
	}
	slices.Sort(p.Enumerators)
	return p
}
