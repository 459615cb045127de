package window

import "github.com/cairnstream/cairn/record"

// GlobalWindows are one window per key. Global makes them.
type GlobalWindows struct{}

// Global puts all records of a key into one window. Without a Trigger it is emitted at the end of the
// data only. Its Start and End are record.MinTime and record.MaxTime; what it emits has the event
// time of its latest record.
func Global() GlobalWindows { return GlobalWindows{} }

// Validate implements Windows.
func (GlobalWindows) Validate() error { return nil }

// String names the windows in plans.
func (GlobalWindows) String() string { return "global" }

func (GlobalWindows) shape() shape {
	return shape{
		assign:  func(int64) (int64, int64) { return record.MinTime, record.MaxTime },
		endOf:   func(int64) int64 { return record.MaxTime },
		endless: true,
	}
}
