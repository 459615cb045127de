// Package blob is the contract for the object store that holds checkpoints, savepoints and other large
// objects. A store maps keys to immutable byte strings; S3-compatible storage, a local directory and memory
// implement it (blob/s3, blob/local, blob/mem). Which one is used is decided by the wiring, from a Location:
// this package imports none of them.
//
// Start reading at [Store]; [CheckKey] says what a key may be, [Location] what a URL may be, and [IsTransient]
// which errors are worth another try. blobtest.Run is the specification that every implementation passes.
//
// The package starts no goroutines and has no state.
package blob
