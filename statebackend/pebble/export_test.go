package pebble

import (
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// SetLeastShare sets the least memory that a backend's caches have, and returns what it was.
func SetLeastShare(bytes int64) int64 {
	old := leastShare
	leastShare = bytes
	return old
}

// SetDisk has f's backends use another file system, which must be one of real files.
func (f *Factory) SetDisk(fs vfs.FS) { f.disk = fs }

// SetRewriteAtOnce sets how many entries of older types a restore rewrites before the first record, and returns what it was.
func SetRewriteAtOnce(n int64) int64 {
	old := rewriteAtOnce
	rewriteAtOnce = n
	return old
}

// SetRenewEvery sets how long a cache may have more than its share, and returns what it was.
func SetRenewEvery(d time.Duration) time.Duration {
	old := renewEvery
	renewEvery = d
	return old
}
