// Package snapshot writes and reads what a checkpoint consists of in the blob store: an object per task
// with the sections of its operators' states, and a manifest that lists them all. FORMAT.md gives the bytes.
//
// A task writes with a Writer and restores with a Reader; the coordinator keeps manifests in a Store. How
// operator state is dealt out again after a rescale is decided by Redistribute, a pure function. Start reading
// at Writer (writer.go) and Manifest (manifest.go). The package starts no goroutines; all methods that take a
// context block on the store.
package snapshot
