// Package nexmark is the Nexmark benchmark: its queries as jobs, a run of one that is timed, and a check of its answer
// against the hashes of an independent reference.
//
// Start reading at queries.go, the list of all queries; each has a file or shares one with its like, and is written with
// what any program has: package stream, keyed state, timers, windows. [Program] makes jobs of them, [Run] runs one:
// meter.go has the clock at the source and the discarding sink of a timed run, answer.go what makes the written answer
// of a checked one into rows and a hash, expected.go the reference's. The sorted lines of a long answer are spilled to
// temporary files (sorter.go).
package nexmark
