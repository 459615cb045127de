package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"syscall"
	"time"
)

// processSignals gives a context that ends with the first SIGTERM or SIGINT. The second one ends the process at once:
// whoever sends it does not want to wait for the drain.
func (a *App) processSignals() (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	c := make(chan os.Signal, 2)
	signal.Notify(c, syscall.SIGTERM, os.Interrupt)
	done := make(chan struct{})
	go func() {
		for first := true; ; first = false {
			select {
			case <-done:
				return
			case s := <-c:
				if !first {
					fmt.Fprintf(a.Stderr, "second %v: stopping at once\n", s)
					os.Exit(Failed)
				}
				cancel()
			}
		}
	}()
	return ctx, func() {
		signal.Stop(c)
		close(done)
		cancel()
	}
}

// giveUp ends a process whose drain does not end.
func (a *App) giveUp(timeout time.Duration) {
	fmt.Fprintf(a.Stderr, "error: not drained within %v: stopping at once\n", timeout)
	os.Exit(Failed)
}
