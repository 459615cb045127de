package operator

import "sync/atomic"

// Counters are the counts of one operator of one subtask. The subtask's goroutine writes, others
// read.
type Counters struct {
	In, Out atomic.Int64 // Records.
	Late    atomic.Int64 // Records dropped because their window had closed.
	Bytes   atomic.Int64
	// NoTime counts records without a usable event time, Ahead those further ahead of the wall clock
	// than was allowed.
	NoTime, Ahead atomic.Int64
}
