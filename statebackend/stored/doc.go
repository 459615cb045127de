// Package stored looks into checkpoints and savepoints without the program that wrote them: the schemas that are kept with
// the states say how keys and values are encoded.
//
// Start reading at Snapshot (snapshot.go): it is a manifest whose states can be read. A State (state.go) is a state as the
// program declares it: a value, a map, a list, timers, windows. It consists of one table or two, and a Source (source.go)
// gives the entries of a table; segments.go is the Source of what the backends on maps write, others are passed in as an
// Opener. record.go makes JSON of what is found.
//
// Verify (verify.go) reads a snapshot to the last entry and lists what is wrong with it.
//
// Rehash (rehash.go) makes a savepoint of a snapshot, with another number of key groups or the same; it sorts by sort.go.
//
// Memory is bounded by the largest key group of a state, not by its size. Only Verify has goroutines, and waits for them.
package stored
