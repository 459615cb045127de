package fs_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

func hashInt(k *int64) (uint64, uint64) {
	h := uint64(*k) * 0x9E3779B97F4A7C15
	h ^= h >> 29
	h *= 0xBF58476D1CE4E5B9
	h ^= h >> 32
	return h, h
}

func filled(b *testing.B, n int64) (statebackend.Backend, statebackend.Value[int64, int64]) {
	b.Helper()
	be, v := empty(b)
	k := new(int64)
	for *k = 0; *k < n; *k++ {
		g, s := hashInt(k)
		x, _ := v.Upsert(g, s, k)
		*x = *k % 1000
	}
	return be, v
}

func empty(b *testing.B) (statebackend.Backend, statebackend.Value[int64, int64]) {
	b.Helper()
	be, err := fs.New(fs.Config{Operator: "sum", Groups: job.GroupsOf(0, 720, 1), K: 720})
	if err != nil {
		b.Fatal(err)
	}
	v, err := statebackend.OpenValue(be, statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt})
	if err != nil {
		b.Fatal(err)
	}
	return be, v
}

func cpuTime() time.Duration {
	var r syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &r)
	return time.Duration(r.Utime.Nano() + r.Stime.Nano())
}

type discard struct{}

func (discard) Object(context.Context, string, io.ReaderAt, int64) (job.StateHandle, error) {
	return job.StateHandle{}, errors.New("no backend of tables has objects of its own")
}

func (discard) Section(_ context.Context, _ string, fill func(io.Writer) error) (job.StateHandle, error) {
	return job.StateHandle{}, fill(io.Discard)
}

// BenchmarkWrite is the encoding of a snapshot: bytes are those of keys and values in memory.
func BenchmarkWrite(b *testing.B) {
	const n = 1_000_000
	be, _ := filled(b, n)
	defer be.Close()
	snap, err := be.Freeze(1)
	if err != nil {
		b.Fatal(err)
	}
	defer snap.Release()
	b.SetBytes(16 * n)
	b.ReportAllocs()
	start := cpuTime()
	for b.Loop() {
		if _, err := snap.Write(context.Background(), discard{}); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N)/n, "cpu-ns/entry")
}

func BenchmarkRestore(b *testing.B) {
	const n = 1_000_000
	be, _ := filled(b, n)
	defer be.Close()
	snap, err := be.Freeze(1)
	if err != nil {
		b.Fatal(err)
	}
	defer snap.Release()
	o := statetest.NewObjects()
	handles, err := snap.Write(context.Background(), o)
	if err != nil {
		b.Fatal(err)
	}
	for _, p := range []int{1, 4} {
		b.Run(fmt.Sprint("share 1 of ", p), func(b *testing.B) {
			start := cpuTime()
			for b.Loop() {
				be, err := fs.New(fs.Config{Operator: "sum", Groups: job.GroupsOf(0, 720, p), K: 720})
				if err != nil {
					b.Fatal(err)
				}
				if _, err = statebackend.OpenValue(be, statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hashInt}); err != nil {
					b.Fatal(err)
				}
				if err := be.Restore(context.Background(), o, handles); err != nil {
					b.Fatal(err)
				}
				be.Close()
			}
			b.ReportMetric(float64((cpuTime()-start).Nanoseconds())/float64(b.N)/n*float64(p), "cpu-ns/entry")
		})
	}
}
