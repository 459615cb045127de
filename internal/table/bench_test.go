package table_test

import (
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/cairnstream/cairn/internal/table"
)

func hashInt(k *int64) (uint64, uint64) {
	h := uint64(*k) * 0x9E3779B97F4A7C15
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 32
	return h, h
}

func ints(maxFrozen int) *table.Table[int64, int64] {
	return table.New(table.Config[int64, int64]{Count: 720, K: 720, Hash: hashInt, MaxFrozen: maxFrozen})
}

func fill(t *table.Table[int64, int64], n int) {
	k := new(int64) // One for all, since what is passed to a func value escapes.
	for *k = 0; *k < int64(n); *k++ {
		g, s := hashInt(k)
		v, _ := t.Upsert(g, s, k)
		*v = *k
	}
}

// keys are drawn with their hashes, since in a job the hash comes with the record.
type drawn struct {
	key  int64
	hash uint64
}

func draw(n, keys int) []drawn {
	r := rand.New(rand.NewPCG(1, 2))
	out := make([]drawn, n)
	for i := range out {
		out[i].key = r.Int64N(int64(keys))
		out[i].hash, _ = hashInt(&out[i].key)
	}
	return out
}

// cpuTime is the CPU time of the process. Beside the time by the clock it tells what a busy machine hides.
func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano())
}

func reportCPU(b *testing.B, start time.Duration, ops int) {
	b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N)/float64(ops), "cpu-ns/op")
}

func BenchmarkUpsert(b *testing.B) {
	for _, n := range []int{100, 10_000, 100_000, 1_000_000, 10_000_000} {
		ks := draw(1<<20, n)
		b.Run(fmt.Sprintf("table/%d", n), func(b *testing.B) {
			t := ints(2)
			fill(t, n)
			b.ReportAllocs()
			i := 0
			start := cpuTime()
			for b.Loop() {
				d := &ks[i&(1<<20-1)]
				v, _ := t.Upsert(d.hash, d.hash, &d.key)
				*v++
				i++
			}
			reportCPU(b, start, 1)
			t.Core().Close()
		})
		b.Run(fmt.Sprintf("gomap/%d", n), func(b *testing.B) {
			m := make(map[int64]int64)
			for k := range int64(n) {
				m[k] = k
			}
			b.ReportAllocs()
			i := 0
			start := cpuTime()
			for b.Loop() {
				m[ks[i&(1<<20-1)].key]++
				i++
			}
			reportCPU(b, start, 1)
		})
	}
}

func BenchmarkInsert(b *testing.B) {
	const n = 1_000_000
	b.Run("table", func(b *testing.B) {
		for b.Loop() {
			fill(ints(2), n)
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
	})
	b.Run("gomap", func(b *testing.B) {
		for b.Loop() {
			m := make(map[int64]int64)
			for k := range int64(n) {
				m[k]++
			}
		}
		b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/key")
	})
}

func BenchmarkFreeze(b *testing.B) {
	for _, n := range []int{1_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			t := ints(2)
			fill(t, n)
			for b.Loop() {
				f, err := t.Core().Freeze()
				if err != nil {
					b.Fatal(err)
				}
				f.Release()
			}
		})
	}
}

// BenchmarkCheckpoint is what a snapshot costs the owner: every key is updated once between freeze and
// release, and merging runs to its end.
func BenchmarkCheckpoint(b *testing.B) {
	const n = 1_000_000
	ks := draw(n, n)
	for _, frozen := range []bool{false, true} {
		b.Run(fmt.Sprintf("frozen=%v", frozen), func(b *testing.B) {
			t := ints(2)
			fill(t, n)
			var worst, total time.Duration
			b.ReportAllocs()
			start := cpuTime()
			for b.Loop() {
				var f *table.Frozen
				if frozen {
					f, _ = t.Core().Freeze()
				}
				for i := range ks {
					v, _ := t.Upsert(ks[i].hash, ks[i].hash, &ks[i].key)
					*v++
				}
				if frozen {
					f.Release()
					for more := true; more; {
						start := time.Now()
						more = t.Core().Merge(200 * time.Microsecond)
						d := time.Since(start)
						worst, total = max(worst, d), total+d
					}
				}
			}
			reportCPU(b, start, n)
			b.ReportMetric(float64(worst.Microseconds()), "us-worst-merge")
			b.ReportMetric(float64(total.Microseconds())/float64(b.N), "us-merge/snapshot")
		})
	}
}

// BenchmarkMemory is the memory of a key and what it does to the resident set.
func BenchmarkMemory(b *testing.B) {
	for _, n := range []int{720, 10_000, 100_000, 1_000_000, 2_000_000, 3_000_000, 5_000_000, 10_000_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			for b.Loop() {
				debug.FreeOSMemory()
				before := resident(b)
				t := ints(2)
				fill(t, n)
				b.ReportMetric(float64(t.Core().Bytes())/float64(n), "B/key")
				b.ReportMetric(float64(resident(b)-before)/float64(n), "rss-B/key")
				start := time.Now()
				runtime.GC()
				b.ReportMetric(float64(time.Since(start).Microseconds()), "us/gc")
				t.Core().Close()
			}
		})
	}
}

func resident(b *testing.B) int64 {
	data, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		b.Skip(err)
	}
	var size, pages int64
	if _, err := fmt.Sscan(string(data), &size, &pages); err != nil {
		b.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}

// BenchmarkTracked is what it costs to note changes: of keys that are there, and of keys that go and come again.
func BenchmarkTracked(b *testing.B) {
	for _, n := range []int{100_000, 10_000_000} {
		ks := draw(1<<20, n)
		t := ints(2)
		fill(t, n)
		for _, on := range []bool{false, true} {
			f, err := t.Core().Freeze()
			if err != nil {
				b.Fatal(err)
			}
			f.Release()
			t.Core().Merge(0)
			logged := 0
			t.Core().Track(on, func(int, unsafe.Pointer) { logged++ })
			b.Run(fmt.Sprintf("upsert/%d/track=%v", n, on), func(b *testing.B) {
				i := 0
				start := cpuTime()
				for b.Loop() {
					d := &ks[i&(1<<20-1)]
					v, _ := t.Upsert(d.hash, d.hash, &d.key)
					*v++
					i++
				}
				reportCPU(b, start, 1)
			})
			b.Run(fmt.Sprintf("delete/%d/track=%v", n, on), func(b *testing.B) {
				i := 0
				start := cpuTime()
				for b.Loop() {
					d := &ks[i&(1<<20-1)]
					t.Delete(d.hash, d.hash, &d.key)
					t.Upsert(d.hash, d.hash, &d.key)
					i++
				}
				reportCPU(b, start, 1)
			})
		}
		t.Core().Close()
	}
}
