// Package window groups the records of a key by event time and aggregates each group.
//
// Times are milliseconds since 1970 UTC. A window includes its start and not its end; it is
// complete when the watermark reaches its last millisecond.
//
// [Tumbling], [Sliding], [Session] and [Global] say which windows there are, a [Trigger] when they
// are emitted, an [Aggregator] what is kept of the records and what a window emits.
package window
