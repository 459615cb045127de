// Package nexmark makes the events of the Nexmark auction benchmark, in the deterministic variant that bench/nexmark
// measures: persons, auctions and bids as a pure function of a seed and the event's number, byte for byte the same in
// every program and language.
//
// [Events] is the source of all events, [Keys] and [Draws] are those of the micro-benchmarks; their input is dealt out
// in blocks of 1,000 records, and a watermark follows each block. Start reading at [Generator.Fill]; draw.go has the
// random draws, tables.go the texts. The package starts no goroutines.
package nexmark
