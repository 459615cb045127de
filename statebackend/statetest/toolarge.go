package statetest

import (
	"context"
	"errors"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// A value above the limit is refused with its name: when it is written, when the next one is, or at the latest by the
// snapshot. One below it is not, however it came to be.
func (s suite) testTooLarge(t *testing.T) {
	const limit = 64 << 10
	fresh := func(t *testing.T) (statebackend.Backend, keyed[string, Order]) {
		b, err := s.f.New(context.Background(), statebackend.Params{
			Task: job.Task{Vertex: "sum"}, Operator: "sum", Groups: job.GroupsOf(0, groups, 1), K: groups, MaxConcurrent: 2,
			MaxValue: limit, Dir: t.TempDir(), Local: t.TempDir(),
		})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = b.Close() })
		return b, open(t, b, orders())
	}
	// refused does what f does, uses another value, and takes a snapshot, until an error comes.
	refused := func(b statebackend.Backend, v keyed[string, Order], f func()) (err error) {
		defer func() {
			if p := recover(); p != nil {
				err = statebackend.Recovered(p)
			}
		}()
		f()
		o, _ := v.upsert("other")
		o.Name = "x"
		snap, err := b.Freeze(1)
		if err != nil {
			return err
		}
		defer snap.Release()
		_, err = snap.Write(context.Background(), NewObjects())
		return err
	}
	large := strings.Repeat("x", limit)
	for name, f := range map[string]func(v keyed[string, Order]){
		"set": func(v keyed[string, Order]) { v.set("k", Order{Name: large}) },
		"set again": func(v keyed[string, Order]) {
			v.set("k", Order{Name: "small"})
			v.set("k", Order{Name: large})
		},
		"changed in place": func(v keyed[string, Order]) {
			o, _ := v.upsert("k")
			o.Name = large
		},
		"grown": func(v keyed[string, Order]) {
			for range limit {
				o, _ := v.upsert("k")
				o.Items = append(o.Items, 1<<40)
			}
		},
	} {
		t.Run(name, func(t *testing.T) {
			b, v := fresh(t)
			err := refused(b, v, func() { f(v) })
			var e *statebackend.ValueError
			if !errors.As(err, &e) {
				t.Fatalf("it is taken: %v", err)
			}
			if e.Operator != "sum" || e.State != "orders" || e.Key != "k" || e.Limit != limit || e.Size <= limit {
				t.Errorf("%+v", e)
			}
			if f := job.FailureOf("", "", err); f.Class != job.ClassUser || f.Stack != "" {
				t.Errorf("%v", f)
			}
		})
	}
	b, v := fresh(t)
	if err := refused(b, v, func() {
		for range 10 { // Of what is only just small enough.
			v.set("k", Order{Name: large[:limit-100]})
			o, _ := v.upsert("k")
			o.Name = large[:limit-99]
		}
	}); err != nil {
		t.Errorf("below the limit: %v", err)
	}
}
