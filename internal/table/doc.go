// Package table is the hash table behind keyed state in memory: typed keys and values, unencoded and in
// place, one extendible hash table per key group, and snapshots that cost nothing to take.
//
// # Layout
//
// The entries of a group lie in pages of 8, 16, 32 or 48 slots. A directory of page numbers, indexed by
// the top bits of the hash, finds the page; within a page one-byte tags, all in one cache line with the
// page's epoch, find the slot. A page that is full moves to the next size, and one of the largest size
// splits in two, so growing never moves more than one page: there is no rehash of a whole table and no
// pause that depends on its size. Two pages that deletions have emptied become one again.
//
// Pages are numbered, not pointed to, and lie in large chunks. When keys and values are free of pointers
// the garbage collector has nothing to follow, whatever the number of entries, and the chunks lie outside
// its heap, so that they do not raise the size at which it starts. Freed pages are used again by
// the table itself: at a steady state nothing is allocated.
//
// # Snapshots
//
// Freeze copies one small header per group and raises the epoch. From then on a page is copied before it
// is first changed; the frozen one stays as it was for the snapshot to read, from any goroutine, and is
// used again once no snapshot needs it. So a read never looks into more than one place, there are no
// tombstones and nothing has to be merged afterwards, and an aborted snapshot costs no more than a
// finished one. What a snapshot keeps in memory are the pages that were changed since: for a page of
// 48 entries of 16 bytes 832 bytes, whichever and however many of its entries changed. The
// alternative, an overlay per snapshot that collects changed entries and is merged back, keeps less
// when few scattered entries change, but inserts every changed entry twice: at one million
// keys that are all touched between two checkpoints it spends more than ten times as long.
//
// A value with pointers shares what it points to with its copy in a frozen page. A bit per slot
// remembers that, and the value is copied deeply before it is handed out for changing.
//
// # Goroutines
//
// The package starts none. The owner alone calls methods of Table; a Frozen is used by one goroutine at a
// time, and Release by any. Start reading at Table (table.go), which has what is compiled for each pair of types: the way
// of a record. Then core.go, the rest, which is compiled once; page.go and frozen.go.
package table
