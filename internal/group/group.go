// Package group runs named goroutines that live and end together. Every goroutine of the product that is not
// somebody's request handler is started by a Group, so that it has a name (in profiles, errors and shutdown
// reports), a context, and someone who waits for it.
//
// The first goroutine that fails cancels the context of all of them, and Wait returns its error. A panic counts
// as a failure and carries its stack: one subtask's bug does not take the process down.
package group

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"runtime/pprof"
	"slices"
	"sync"
)

// Label is the key of the pprof label that holds a goroutine's name.
const Label = "goroutine"

// Group is a set of goroutines. New is the only way to make one. Its methods may be called from any goroutine,
// Go also from those of the group itself, as long as Wait has not returned.
type Group struct {
	ctx    context.Context
	cancel context.CancelCauseFunc
	wg     sync.WaitGroup

	mu struct {
		sync.Mutex
		err     error
		running map[string]int
	}
}

// New returns an empty group whose goroutines end when ctx does.
func New(ctx context.Context) *Group {
	g := &Group{}
	g.ctx, g.cancel = context.WithCancelCause(ctx)
	g.mu.running = make(map[string]int)
	return g
}

// Context is cancelled when a goroutine of the group has failed (context.Cause is then its error), when the
// parent is, by Cancel, and when Wait returns.
func (g *Group) Context() context.Context { return g.ctx }

// Cancel asks all goroutines to end, without an error of its own: goroutines that then return the context's
// error, or the given cause, count as ended well. A nil cause is context.Canceled.
func (g *Group) Cancel(cause error) { g.cancel(cause) }

// Go runs f on a goroutine of that name. Names say what the goroutine does and need not be unique. f ends soon
// after its context does.
func (g *Group) Go(name string, f func(context.Context) error) {
	g.mu.Lock()
	g.mu.running[name]++
	g.mu.Unlock()
	g.wg.Add(1)
	go func() {
		defer g.wg.Done()
		err := ErrExited // unless the call returns
		defer func() { g.ended(name, err) }()
		pprof.Do(g.ctx, pprof.Labels(Label, name), func(ctx context.Context) { err = Call(ctx, name, f) })
	}()
}

func (g *Group) ended(name string, err error) {
	g.mu.Lock()
	if g.mu.running[name]--; g.mu.running[name] == 0 {
		delete(g.mu.running, name)
	}
	// What a goroutine says because it was cancelled is not news; what else it says is kept.
	told := g.ctx.Err() != nil && (errors.Is(err, g.ctx.Err()) || errors.Is(err, context.Cause(g.ctx)))
	failed := err != nil && !told
	if failed {
		err = fmt.Errorf("%s: %w", name, err)
		if g.mu.err == nil {
			g.mu.err = err
		}
	}
	g.mu.Unlock()
	if failed {
		g.cancel(err)
	}
}

// Wait returns when all goroutines have ended: the first failure, or nil when there was none. That the parent's
// context was cancelled is no failure.
func (g *Group) Wait() error {
	g.wg.Wait()
	g.cancel(nil)
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.mu.err
}

// Running lists the names of the goroutines that have not ended, sorted, one entry for each: what a shutdown
// that takes too long reports.
func (g *Group) Running() []string {
	g.mu.Lock()
	defer g.mu.Unlock()
	var names []string
	for name, n := range g.mu.running {
		names = append(names, slices.Repeat([]string{name}, n)...)
	}
	slices.Sort(names)
	return names
}

// PanicError is a panic that was turned into an error.
type PanicError struct {
	Name  string // of the goroutine or callback
	Value any    // what was panicked with
	Stack []byte // of the panic
}

// Error has the stack in it: nobody finds a bug without.
func (e *PanicError) Error() string { return fmt.Sprintf("panic: %v\n%s", e.Value, e.Stack) }

// Unwrap gives the value that was panicked with if it is an error.
func (e *PanicError) Unwrap() error {
	err, _ := e.Value.(error)
	return err
}

// ErrExited means that a function ended its goroutine by runtime.Goexit (as testing.T.FailNow does) instead of returning.
var ErrExited = errors.New("goroutine exited without returning")

// Call runs f on the caller's goroutine and returns a panic as a *PanicError.
func Call(ctx context.Context, name string, f func(context.Context) error) (err error) {
	returned := false
	defer func() {
		if returned {
			return
		}
		if v := recover(); v != nil {
			err = &PanicError{Name: name, Value: v, Stack: debug.Stack()}
		}
	}()
	err = f(ctx)
	returned = true
	return err
}
