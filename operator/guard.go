package operator

import (
	"fmt"
	"runtime/debug"

	"github.com/cairnstream/cairn/job"
)

// guard calls f and turns a panic into an error with its stack. Goroutines that call code of
// connectors use it: the task loop catches panics only on its own.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = &job.Error{Class: job.ClassUser, Stack: string(debug.Stack()), Err: fmt.Errorf("panic: %v", v)}
		}
	}()
	return f()
}
