// Package gcfloor keeps the garbage collector from working all the time in a process whose live heap is small.
//
// The collector starts when the heap has doubled. A job without much state has a few MiB that live, so that it would
// start hundreds of times a second, and while it marks every write of a pointer costs several times as much: a third of
// the CPU time of such a job. With a floor it starts when the heap has doubled or grown by Bytes, whichever is more.
package gcfloor

import (
	"math"
	"os"
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
)

// Bytes is by how much the heap grows at least before a collection starts, unless the process may only have less than
// eight times as much memory.
const Bytes = 96 << 20

var once sync.Once

// Keep sets the floor for this process, from now on. The environment's GOGC wins: who sets it has decided.
func Keep() {
	if os.Getenv("GOGC") != "" {
		return
	}
	once.Do(func() { (&tuner{floor: min(Bytes, memoryLimit()/8), percent: normal}).adjust() })
}

// normal is the collector's own setting: it starts when the heap has doubled.
const normal = 100

type tuner struct {
	floor   uint64
	percent int // As set.
}

// adjust sets by how much the heap may grow now, and has itself called again after the next collection.
func (t *tuner) adjust() {
	marked := []metrics.Sample{{Name: "/gc/heap/live:bytes"}, {Name: "/gc/scan/stack:bytes"}, {Name: "/gc/scan/globals:bytes"}}
	metrics.Read(marked)
	base := uint64(0)
	for _, s := range marked {
		base += s.Value.Uint64()
	}
	if p := percentFor(base, uint64(max(cached.Load(), 0)), t.floor); far(p, t.percent) {
		t.percent = p
		debug.SetGCPercent(p)
	}
	sentinel := new([16]byte)
	runtime.AddCleanup(sentinel, func(t *tuner) { t.adjust() }, t)
}

// leastHeap is what the runtime takes a smaller heap for.
const leastHeap = 4 << 20

// percentFor is growth by floor, or by as much as lives besides what is cached, in percent of what lives, stacks and globals
// included.
func percentFor(live, cached, floor uint64) int {
	live = max(live, leastHeap)
	return int(max(floor, live-min(cached, live)) * 100 / live)
}

// cached is what AddCached was told.
var cached atomic.Int64

// AddCached says that so many more bytes, or fewer, of what lives are a cache of bytes that somebody counts: they make no
// garbage, and the heap grows by as much less before a collection.
func AddCached(bytes int64) { cached.Add(bytes) }

// far tells whether it is worth stopping the world for a new setting.
func far(p, q int) bool { return p != q && (p == normal || 8*p > 9*q || 9*p < 8*q) }

// memoryLimit is how much memory the process may have: what GOMEMLIMIT says, or its control group.
func memoryLimit() uint64 {
	limit := uint64(debug.SetMemoryLimit(-1))
	for _, f := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		raw, err := os.ReadFile(f)
		if err != nil {
			continue
		}
		if n, err := strconv.ParseUint(strings.TrimSpace(string(raw)), 10, 64); err == nil {
			limit = min(limit, n)
		}
	}
	return min(limit, math.MaxInt64)
}
