// Package window groups the records of a key by event time and aggregates each group.
//
// Times are milliseconds since 1970 UTC. A window includes its start and not its end; it is
// complete when the watermark reaches its last millisecond.
package window
