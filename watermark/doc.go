// Package watermark decides how far event time has come. A Strategy says how watermarks are made;
// a Generator makes those of one split; an IdleClock tells when a split has had no input for so
// long that it should hold nothing up; a Merge joins the watermarks of several inputs; an Alignment
// says how far the sources of a group may read.
//
// A watermark w says that no record with a time at or before w follows, but for late ones. Times
// are milliseconds since 1970 UTC. The package is pure: it is told the time.
package watermark

import "math"

// Min is the watermark before there is any. Max is the final one, at the end of the data; it is
// never made of the time of a record.
const (
	Min int64 = math.MinInt64
	Max int64 = math.MaxInt64
)
