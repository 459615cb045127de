package nexmark

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/cairnstream/cairn/internal/group"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

// meter measures a run in this process, from the first record that a source emits to the last one that a sink takes.
// Both tell it the time; the CPU time then is read off samples, since to ask for it costs more than a batch. Where tasks
// are in other processes, the run begins when all of them run and ends with the job.
type meter struct {
	began       time.Time
	others      atomic.Pointer[processes] // Their CPU time and memory count too; nil for none.
	first, last atomic.Int64              // Nanoseconds since began; 0 before there is any.
	rows        atomic.Int64              // That sinks took.
	peak        int64                     // Memory, at the end.
}

func newMeter() *meter { return &meter{began: time.Now()} }

func (m *meter) emitted() {
	if m.first.Load() == 0 {
		m.first.CompareAndSwap(0, int64(time.Since(m.began)))
	}
}

func (m *meter) taken(rows int) {
	m.rows.Add(int64(rows))
	now := int64(time.Since(m.began))
	for {
		last := m.last.Load()
		if now <= last || m.last.CompareAndSwap(last, now) {
			return
		}
	}
}

// sample is how much CPU time was used when.
type sample struct{ at, cpu time.Duration }

const samplePeriod = 5 * time.Millisecond

// run samples while f runs, and returns the wall and CPU time of what f measured.
func (m *meter) run(ctx context.Context, f func(context.Context) error) (wall, cpu time.Duration, err error) {
	var samples []sample
	done := make(chan struct{})
	g := group.New(ctx)
	g.Go("samples", func(context.Context) error {
		tick := time.NewTicker(samplePeriod)
		defer tick.Stop()
		for {
			samples = append(samples, sample{time.Since(m.began), m.cpuTime()})
			select {
			case <-done:
				return nil
			case <-tick.C:
			}
		}
	})
	err = f(ctx)
	close(done)
	if gerr := g.Wait(); err == nil {
		err = gerr
	}
	from, to := time.Duration(m.first.Load()), time.Duration(m.last.Load())
	if to <= from {
		to = samples[len(samples)-1].at // A query without rows.
	}
	return to - from, cpuAt(samples, to) - cpuAt(samples, from), err
}

// cpuAt is the CPU time at a moment, between two samples in proportion.
func cpuAt(samples []sample, at time.Duration) time.Duration {
	for i := 1; i < len(samples); i++ {
		a, b := samples[i-1], samples[i]
		if at <= b.at {
			if at <= a.at || b.at == a.at {
				return a.cpu
			}
			return a.cpu + time.Duration(float64(b.cpu-a.cpu)*float64(at-a.at)/float64(b.at-a.at))
		}
	}
	return samples[len(samples)-1].cpu
}

// cpuTime is that of all processes of the run.
func (m *meter) cpuTime() time.Duration {
	cpu := cpuTime()
	if p := m.others.Load(); p != nil {
		cpu += p.cpu()
	}
	return cpu
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // Fails for a bad argument only.
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// resetPeak makes peakMemory forget. Where it cannot, the peak is that of the process so far.
func resetPeak() { _ = os.WriteFile("/proc/self/clear_refs", []byte("5"), 0) }

// peakMemory is the most memory that this process had in RAM, in bytes.
func peakMemory() (int64, error) { return peakMemoryOf("self") }

func peakMemoryOf(process string) (int64, error) {
	path := "/proc/" + process + "/status"
	data, err := os.ReadFile(path)
	if err != nil {
		return 0, err
	}
	_, rest, _ := bytes.Cut(data, []byte("VmHWM:"))
	f := bytes.Fields(rest)
	if len(f) == 0 {
		return 0, fmt.Errorf("%s has no VmHWM", path)
	}
	kib, err := strconv.ParseInt(string(f[0]), 10, 64)
	if err != nil {
		return 0, fmt.Errorf("%s: VmHWM: %w", path, err)
	}
	return kib << 10, nil
}

// timed makes s tell m when it emits. A nil m leaves s as it is.
func timed[T any](m *meter, s operator.Source[T]) operator.Source[T] {
	if m == nil {
		return s
	}
	return timedSource[T]{s, m}
}

type timedSource[T any] struct {
	operator.Source[T]
	meter *meter
}

// Open implements operator.Source.
func (s timedSource[T]) Open(ctx context.Context, c operator.SourceContext, split operator.Split) (operator.SplitReader[T], error) {
	r, err := s.Source.Open(ctx, c, split)
	if err != nil {
		return nil, err
	}
	return &timedReader[T]{r, s.meter}, nil
}

type timedReader[T any] struct {
	operator.SplitReader[T]
	meter *meter
}

// Read implements operator.SplitReader. The first records are counted with the time that it takes to make them.
func (r *timedReader[T]) Read(b *record.Batch[T], limit int) (operator.ReadStatus, error) {
	r.meter.emitted()
	return r.SplitReader.Read(b, limit)
}

// discard is a sink that counts rows and drops them.
type discard[T any] struct{ meter *meter }

// Writer implements operator.Sink.
func (d *discard[T]) Writer(context.Context, operator.SinkContext) (operator.Writer[T], error) {
	return discardWriter[T]{d.meter}, nil
}

// Committer implements operator.Sink.
func (d *discard[T]) Committer(context.Context, operator.SinkContext) (operator.Committer, error) {
	return nil, nil
}

// TwoPhase implements operator.Sink.
func (d *discard[T]) TwoPhase() bool { return false }

// Validate implements operator.Sink.
func (d *discard[T]) Validate() error { return nil }

type discardWriter[T any] struct{ meter *meter }

// Write implements operator.Writer.
func (w discardWriter[T]) Write(b *record.Batch[T]) error {
	if n := b.Len(); w.meter != nil && n > 0 {
		w.meter.taken(n)
	}
	return nil
}

// Prepare implements operator.Writer.
func (w discardWriter[T]) Prepare(job.CheckpointID) ([][]byte, error) { return nil, nil }

// State implements operator.Writer.
func (w discardWriter[T]) State() ([]byte, error) { return nil, nil }

// Close implements operator.Writer.
func (w discardWriter[T]) Close() error { return nil }
