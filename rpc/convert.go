package rpc

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/durationpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// decoder notes the first thing that is wrong with a message, so that conversions need not check at every step.
type decoder struct{ err error }

func (d *decoder) bad(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// need tells whether a message that must be there is.
func need[M any](d *decoder, m *M, what string) bool {
	if m == nil {
		d.bad("%s is missing", what)
	}
	return m != nil
}

// duration converts without saturating: durationpb covers all of time.Duration.
func (d *decoder) duration(p *durationpb.Duration) time.Duration {
	if p == nil {
		return 0
	}
	if err := p.CheckValid(); err != nil {
		d.bad("%v", err)
		return 0
	}
	return p.AsDuration()
}

func (d *decoder) time(p *timestamppb.Timestamp) time.Time {
	if p == nil {
		return time.Time{}
	}
	if err := p.CheckValid(); err != nil {
		d.bad("%v", err)
		return time.Time{}
	}
	return p.AsTime()
}

func timestamp(t time.Time) *timestamppb.Timestamp {
	if t.IsZero() {
		return nil
	}
	return timestamppb.New(t)
}

// enum maps the constants of a domain type to those of a proto enum and back.
type enum[D ~string, P ~int32] struct {
	what string
	to   map[D]P
	from map[P]D
}

func newEnum[D ~string, P ~int32](what string, to map[D]P) enum[D, P] {
	e := enum[D, P]{what: what, to: to, from: make(map[P]D, len(to))}
	for d, p := range to {
		e.from[p] = d
	}
	return e
}

// encode maps what it does not know to UNSPECIFIED, which the receiver refuses with the field's name.
func (e enum[D, P]) encode(v D) P { return e.to[v] }

func (e enum[D, P]) decode(d *decoder, p P) D {
	v, ok := e.from[p]
	if !ok {
		d.bad("%s %d is unknown", e.what, p)
	}
	return v
}

// optional is decode for fields that may be unspecified.
func (e enum[D, P]) optional(d *decoder, p P) D {
	if p == 0 {
		return ""
	}
	return e.decode(d, p)
}

func convertAll[A, B any](in []A, f func(A) B) []B {
	if len(in) == 0 {
		return nil
	}
	out := make([]B, len(in))
	for i, v := range in {
		out[i] = f(v)
	}
	return out
}

func convertValues[A, B any](in map[string]A, f func(A) B) map[string]B {
	if len(in) == 0 {
		return nil
	}
	out := make(map[string]B, len(in))
	for k, v := range in {
		out[k] = f(v)
	}
	return out
}

// text makes a string that may hold anything, such as the bytes of a bad record, one that proto can carry.
func text(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }

var errEmptyMessage = errors.New("the message is empty or of a later version")
