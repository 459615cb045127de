// Package segment is the format of one keyed state of one subtask in a checkpoint: encoded entries in
// compressed and checked blocks, ordered by key group, with an index by group at the end, so that who needs
// some groups reads only their blocks. snapshot/FORMAT.md gives the bytes.
//
// The package is pure: Writer writes to an io.Writer, Index and Scanner read from bytes that the caller
// fetched. It starts no goroutines. Nothing that it reads makes it panic or allocate more than the bytes at
// hand explain.
package segment
