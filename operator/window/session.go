package window

import (
	"fmt"
	"time"
)

// SessionWindows are as long as records follow each other. Session makes them.
type SessionWindows struct{ gap time.Duration }

// Session puts the records of a key of which each is less than gap away from another into one
// window. It starts at its first record and ends a gap behind its last one. A record exactly one gap
// behind the last starts a new session: windows that merely touch are not merged, since the answer
// would depend on when the first of them is emitted. The gap is a whole number of milliseconds, at
// least one.
//
// A record between two sessions merges them: the aggregation needs Merge.
func Session(gap time.Duration) SessionWindows { return SessionWindows{gap: gap} }

// Validate says what is wrong with the gap.
func (w SessionWindows) Validate() error { return wholeMillis("session with a gap", "gap", w.gap) }

// String names the windows in plans.
func (w SessionWindows) String() string { return fmt.Sprintf("session(%v)", w.gap) }

func (w SessionWindows) shape() shape {
	return shape{gap: w.gap.Milliseconds()}
}
