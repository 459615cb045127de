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
	used   bool // Another operator reads the stream already.
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
func (s Stream[T]) Timestamps(f func(*T) time.Time, w watermark.Strategy) Stream[T] {
	s.needTime(f != nil)
	return s.timestamps(operator.Timing[T]{Time: f, Strategy: w})
}

// Watermarks gives the stream its watermarks, directly behind a source that gives its records their
// times itself. Where the source marks watermarks as well, both count; watermark.FromSource, which
// makes none, is to set idleness or alignment alone.
func (s Stream[T]) Watermarks(w watermark.Strategy) Stream[T] {
	if s.j != nil && (s.source == nil || s.source.used) {
		s.j.bad("watermarks of %q: they are set directly behind a source; elsewhere use Timestamps", s.j.ops[s.op].Name)
		return s
	}
	return s.timestamps(operator.Timing[T]{Strategy: w})
}

// TimestampsWithMarkers is Timestamps for records some of which carry a watermark: mark says that
// behind this record none follows with a time at or before the one it returns. w makes further ones;
// watermark.None is for markers alone.
func (s Stream[T]) TimestampsWithMarkers(f func(*T) time.Time, mark func(*T) (at time.Time, ok bool), w watermark.Strategy) Stream[T] {
	if mark == nil && s.j != nil {
		s.j.bad("timestamps of %q: the function of markers is nil", s.j.ops[s.op].Name)
	}
	s.needTime(f != nil)
	return s.timestamps(operator.Timing[T]{Time: f, Mark: mark, Strategy: w})
}

func (s Stream[T]) needTime(have bool) {
	if s.j != nil && !have {
		s.j.bad("timestamps of %q: the function is nil", s.j.ops[s.op].Name)
	}
}

func (s Stream[T]) timestamps(t operator.Timing[T]) Stream[T] {
	if s.j == nil {
		panic("stream of no job: streams come from Job.Source")
	}
	d := s.source
	atSource := d != nil && !d.used
	s.checkTiming(t, atSource)
	out := s
	if atSource {
		d.timing, d.used = t, true
		out.source = nil
	} else {
		out = add[T, T](s, job.Operator{Kind: job.KindTimestamps}, func() operator.Operator { return operator.TimestampsOf(t) }).withCodec(s.codec)
	}
	if t.Strategy.Action() == watermark.Divert {
		op := &s.j.ops[out.op]
		op.Sides = append(op.Sides, watermark.SideOutput)
		s.j.sides[out.op] = map[string]reflect.Type{watermark.SideOutput: reflect.TypeFor[T]()}
	}
	return out
}

func (s Stream[T]) checkTiming(t operator.Timing[T], atSource bool) {
	name := s.j.ops[s.op].Name
	w := t.Strategy
	if err := w.Validate(); err != nil {
		s.j.bad("timestamps of %q: %v", name, err)
	}
	group, _ := w.Alignment()
	if atSource {
		if group != "" && t.Mark == nil && t.Time != nil && !w.MakesWatermarks() && !w.TakesSourceMarks() {
			s.j.bad("timestamps of %q: alignment in group %q needs watermarks", name, group)
		}
		return
	}
	if w.IdleTimeout() > 0 || group != "" {
		s.j.bad("timestamps of %q: a watermark strategy with an idle timeout or an alignment belongs directly behind a source", name)
	}
	if w.TakesSourceMarks() {
		s.j.bad("timestamps of %q: watermarks of the source are taken directly behind a source only", name)
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
