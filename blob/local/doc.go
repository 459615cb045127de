// Package local is a blob.Store in a directory of a file system: one object is one file, named by its key. It serves
// `file:///DIR`; where several processes use it, the directory is on a file system that all of them share.
//
// A file is written under a temporary name beside its place, fsynced and renamed, and the directory is fsynced, so
// an object is there whole or not at all, after a power failure too. Temporary names begin with ".tmp-", which no
// key can. A writer holds a lock (flock) on its temporary file; whoever lists the directory removes those that nobody
// holds any more, so that a crash leaves nothing for long.
//
// Start reading at [Open]. The package starts no goroutines.
package local
