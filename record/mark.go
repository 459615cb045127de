package record

import "math"

// MarkKind says what a Mark means.
type MarkKind uint8

// The kinds of marks.
const (
	// Watermark: no record with a time at or before Time follows, but for late ones.
	Watermark MarkKind = iota
	// Idle: the channel holds no watermark back until Active or a Watermark comes.
	Idle
	// Active ends Idle.
	Active
)

// MinTime is the watermark before any was seen; MaxTime is the final one, at the end of the data.
// Times are milliseconds since 1970 UTC.
const (
	MinTime int64 = math.MinInt64
	MaxTime int64 = math.MaxInt64
)

// Mark is a watermark at a position of a batch: it comes after the rows before Pos and before the
// row at Pos. Pos counts all rows of the batch, selected or not.
type Mark struct {
	Time int64
	Pos  int32
	Kind MarkKind
}
