// Package join joins two keyed streams in event time.
//
// [Windowed] pairs records of one window, [Interval] records whose times differ by no more than two
// bounds say, [Temporal] gives each record of the first stream the newest record of the second one
// at its time, and [Unbounded] pairs all with all. The first three keep a record as long as a later
// one can still meet it, by the watermark. Records that come behind that are counted as late and
// dropped.
//
// Each makes the handler of a co-process operator out of states that anybody may use: start reading at
// windowed.go.
package join
