// Package invariant checks at run time what must always hold, in builds with the tag cairndebug.
// Elsewhere Enabled is a false constant and the checks cost nothing.
package invariant

import "fmt"

// Check panics when cond is false. Guard calls on hot paths with Enabled.
func Check(cond bool, format string, args ...any) {
	if Enabled && !cond {
		panic("invariant broken: " + fmt.Sprintf(format, args...))
	}
}
