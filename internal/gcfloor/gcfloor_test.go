package gcfloor

import (
	"runtime"
	"runtime/debug"
	"runtime/metrics"
	"testing"
	"time"
)

func TestPercent(t *testing.T) {
	const mib = 1 << 20
	for _, c := range []struct {
		live, cached, floor uint64
		want                int
	}{
		{4 * mib, 0, 96 * mib, 2400}, {0, 0, 96 * mib, 2400}, {48 * mib, 0, 96 * mib, 200}, {96 * mib, 0, 96 * mib, normal},
		{500 * mib, 0, 96 * mib, normal}, {4 * mib, 0, 0, normal}, {500 * mib, 250 * mib, 96 * mib, 50}, {200 * mib, 300 * mib, 96 * mib, 48},
	} {
		if got := percentFor(c.live, c.cached, c.floor); got != c.want {
			t.Errorf("%d live, %d cached, floor %d: %d %%, want %d %%", c.live, c.cached, c.floor, got, c.want)
		}
	}
}

var sink []byte

// Garbage of many times the usual limit makes a few collections only, and a heap that outgrows the floor is collected as
// ever.
func TestKeep(t *testing.T) {
	t.Setenv("GOGC", "")
	runtime.GC()
	before := debug.SetGCPercent(normal)
	defer debug.SetGCPercent(before)
	Keep()
	collections := func(total int) uint32 {
		var a, b runtime.MemStats
		runtime.ReadMemStats(&a)
		for range total >> 10 {
			sink = make([]byte, 1<<10)
		}
		runtime.ReadMemStats(&b)
		return b.NumGC - a.NumGC
	}
	if n := collections(2 * Bytes); n > 8 {
		t.Errorf("%d collections for %d MiB of garbage over a small heap, want 2 or so", n, 2*Bytes>>20)
	}
	large := make([][]byte, 0)
	for range 2 * Bytes >> 20 {
		large = append(large, make([]byte, 1<<20))
	}
	runtime.GC()
	for deadline := time.Now().Add(10 * time.Second); ; time.Sleep(time.Millisecond) { // Set by a goroutine of the runtime.
		percent := []metrics.Sample{{Name: "/gc/gogc:percent"}}
		metrics.Read(percent)
		p := percent[0].Value.Uint64()
		if p == normal {
			break
		}
		if time.Now().After(deadline) {
			t.Fatalf("the heap may grow by %d %% with %d MiB alive", p, 2*Bytes>>20)
		}
	}
	runtime.KeepAlive(large)
}
