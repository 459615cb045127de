package operator

import "github.com/cairnstream/cairn/statebackend"

// guard calls f and turns a panic into an error with its stack. Goroutines that call code of
// connectors use it: the task loop catches panics only on its own.
func guard(f func() error) (err error) {
	defer func() {
		if v := recover(); v != nil {
			err = statebackend.Recovered(v)
		}
	}()
	return f()
}
