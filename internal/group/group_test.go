package group

import (
	"context"
	"errors"
	"runtime"
	"runtime/pprof"
	"slices"
	"strings"
	"testing"
)

func untilCancelled(ctx context.Context) error {
	<-ctx.Done()
	return ctx.Err()
}

func TestFirstFailureCancelsAndIsReturned(t *testing.T) {
	broken := errors.New("disk on fire")
	g := New(t.Context())
	g.Go("waiter", untilCancelled)
	g.Go("writer", func(context.Context) error { return broken })
	err := g.Wait()
	if !errors.Is(err, broken) || !strings.HasPrefix(err.Error(), "writer: ") {
		t.Errorf("got %v, want writer's error with its name", err)
	}
	if cause := context.Cause(g.Context()); !errors.Is(cause, broken) {
		t.Errorf("the context's cause is %v, want the failure", cause)
	}
}

func TestEndingWell(t *testing.T) {
	done := errors.New("drained")
	for name, end := range map[string]func(g *Group, parent context.CancelFunc){
		"all returned":     func(*Group, context.CancelFunc) {},
		"parent cancelled": func(_ *Group, parent context.CancelFunc) { parent() },
		"cancelled":        func(g *Group, _ context.CancelFunc) { g.Cancel(nil) },
		"with a cause":     func(g *Group, _ context.CancelFunc) { g.Cancel(done) },
	} {
		t.Run(name, func(t *testing.T) {
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			g := New(ctx)
			g.Go("short", func(context.Context) error { return nil })
			if name != "all returned" {
				g.Go("long", untilCancelled)
				g.Go("says why", func(ctx context.Context) error { <-ctx.Done(); return context.Cause(ctx) })
			}
			end(g, cancel)
			if err := g.Wait(); err != nil {
				t.Errorf("got %v, want nil", err)
			}
			if g.Context().Err() == nil {
				t.Error("the context outlives Wait")
			}
		})
	}
}

func TestFailureDuringCancellationIsKept(t *testing.T) {
	lost := errors.New("flush failed")
	g := New(t.Context())
	g.Go("writer", func(ctx context.Context) error { <-ctx.Done(); return lost })
	g.Cancel(nil)
	if err := g.Wait(); !errors.Is(err, lost) {
		t.Errorf("got %v, want %v", err, lost)
	}
}

func TestPanicBecomesAnError(t *testing.T) {
	g := New(t.Context())
	g.Go("waiter", untilCancelled)
	g.Go("map orders", func(context.Context) error { panic(errors.ErrUnsupported) })
	err := g.Wait()
	var p *PanicError
	if !errors.As(err, &p) || p.Name != "map orders" || !errors.Is(err, errors.ErrUnsupported) {
		t.Fatalf("got %#v, want a PanicError of map orders", err)
	}
	if !strings.Contains(err.Error(), "TestPanicBecomesAnError") {
		t.Errorf("the error does not show where the panic was:\n%v", err)
	}
}

func TestGoexitIsAFailure(t *testing.T) {
	g := New(t.Context())
	g.Go("waiter", untilCancelled)
	g.Go("quitter", func(context.Context) error { runtime.Goexit(); return nil })
	if err := g.Wait(); !errors.Is(err, ErrExited) {
		t.Errorf("got %v, want %v", err, ErrExited)
	}
}

func TestNames(t *testing.T) {
	g := New(t.Context())
	labels := make(chan string)
	for _, name := range []string{"b", "a", "a"} {
		g.Go(name, func(ctx context.Context) error {
			label, _ := pprof.Label(ctx, Label)
			labels <- label
			return untilCancelled(ctx)
		})
	}
	got := []string{<-labels, <-labels, <-labels}
	slices.Sort(got)
	want := []string{"a", "a", "b"}
	if running := g.Running(); !slices.Equal(running, want) || !slices.Equal(got, want) {
		t.Errorf("running %v, labels %v, want %v", running, got, want)
	}
	g.Cancel(nil)
	if err := g.Wait(); err != nil || len(g.Running()) != 0 {
		t.Errorf("after Wait: %v, running %v", err, g.Running())
	}
}

func TestGroupGrowsFromInside(t *testing.T) {
	g := New(t.Context())
	ended := make(chan struct{}, 1)
	g.Go("outer", func(context.Context) error {
		g.Go("inner", func(context.Context) error { ended <- struct{}{}; return nil })
		return nil
	})
	if err := g.Wait(); err != nil || len(ended) != 1 {
		t.Errorf("err %v, inner ended %d times, want once", err, len(ended))
	}
}
