// Package pebble is the state backend for state larger than memory: an LSM tree of github.com/cockroachdb/pebble on the
// local disk, with a cache of decoded values before it that takes all changes and writes them in sorted files, which the
// tree then takes as they are: no write-ahead log and no memtable. A snapshot is the tree's files at a barrier; those that
// the snapshot it builds on has already are not uploaded again.
//
// Start reading at Backend (backend.go), then state (state.go: the cache and what lies below it), flusher (flush.go: from
// the cache to the tree), frozen (snapshot.go), restore (restore.go). Each backend has one goroutine, the flusher's, and
// those of its tree; Close ends them.
package pebble
