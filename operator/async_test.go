package operator

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// asyncRun drives an async operator the way the task loop does.
type asyncRun struct {
	t     *testing.T
	o     AsyncOptions
	calls AsyncCalls[int64, int64]
	codec codec.Codec[int64]
	out   *recorder[int64]
	s     *surroundings
	op    Operator
	most  int // Records under way, at most.
}

func startAsync(t *testing.T, o AsyncOptions, calls AsyncCalls[int64, int64]) *asyncRun {
	c, err := codec.Default[int64]()
	if err != nil {
		t.Fatal(err)
	}
	r := &asyncRun{t: t, o: o, calls: calls, codec: c, out: &recorder[int64]{}}
	r.open(nil, record.MinTime)
	return r
}

func (r *asyncRun) open(list map[string][][]byte, watermark int64) {
	r.t.Helper()
	r.s = surround(r.out)
	r.s.c.Restored, r.s.c.List, r.s.c.Watermark = list != nil, list, watermark
	r.op = Async(r.o, r.calls, r.codec)
	if err := r.op.Open(r.s.c); err != nil {
		r.t.Fatal(err)
	}
}

// settle does what can be done without waiting.
func (r *asyncRun) settle() {
	r.t.Helper()
	synctest.Wait()
	if err := r.s.run(); err != nil {
		r.t.Fatal(err)
	}
	op := r.op.(*asyncOp[int64, int64])
	for op.Pending() && !op.Awaiting() {
		if err := op.Resume(); err != nil {
			r.t.Fatal(err)
		}
		r.most = max(r.most, op.queue.records)
	}
}

func (r *asyncRun) push(b record.Any) {
	r.t.Helper()
	for r.op.(Yielder).Pending() {
		time.Sleep(time.Millisecond)
		r.settle()
	}
	if err := r.op.Push(0, b); err != nil {
		r.t.Fatal(err)
	}
	r.settle()
}

func (r *asyncRun) snapshot() map[string][][]byte {
	r.t.Helper()
	m, err := r.op.(Checkpointed).Snapshot(1)
	if err != nil {
		r.t.Fatal(err)
	}
	return m
}

func (r *asyncRun) end() {
	r.t.Helper()
	for r.op.(Yielder).Pending() {
		time.Sleep(time.Millisecond)
		r.settle()
	}
	if err := r.op.EndOfData(); err != nil {
		r.t.Fatal(err)
	}
	for r.op.(Yielder).Pending() {
		time.Sleep(time.Millisecond)
		r.settle()
	}
	r.close()
}

func (r *asyncRun) close() {
	r.t.Helper()
	if err := r.op.Close(); err != nil {
		r.t.Fatal(err)
	}
}

// someBatch makes a batch with marks anywhere and some rows left out.
func someBatch(rng *rand.Rand, next, w *int64) *record.Batch[int64] {
	b := record.PoolOf[int64]().Get()
	for range rng.IntN(60) {
		if rng.IntN(10) == 0 {
			drawMark(b, rng.IntN, w)
		}
		b.Append(*next, *w+int64(rng.IntN(50)))
		*next++
	}
	drawMark(b, rng.IntN, w)
	if rng.IntN(3) == 0 {
		b.Sel = b.Selection()
		for i := range b.Rows {
			if rng.IntN(3) > 0 {
				b.Sel = append(b.Sel, int32(i))
			}
		}
	}
	return b
}

// answers are those of a service that takes up to 20 ms: no row, one, or two for each record.
func answers(rng *rand.Rand) AsyncCalls[int64, int64] {
	salt := rng.Uint64()
	return AsyncCalls[int64, int64]{Call: func(_ context.Context, in int64) ([]int64, error) {
		time.Sleep(time.Duration((uint64(in)*0x9E3779B97F4A7C15^salt)%20) * time.Millisecond)
		return expand(in), nil
	}}
}

func expand(in int64) (out []int64) {
	for i := range in % 3 {
		out = append(out, in*10+i)
	}
	return out
}

// answered is the stream of answers for a stream of records.
func answered(in []ev[int64]) (out []ev[int64]) {
	for _, e := range in {
		if e.mark {
			out = append(out, e)
			continue
		}
		for _, v := range expand(e.row) {
			out = append(out, ev[int64]{time: e.time, row: v})
		}
	}
	return out
}

// withoutIdleness drops the marks that tell of idleness, some of which cancel out.
func withoutIdleness(in []ev[int64]) (out []ev[int64]) {
	for _, e := range in {
		if !e.mark || e.kind == record.Watermark {
			out = append(out, e)
		}
	}
	return tidy(out)
}

// Ordered results come in the order of input; unordered ones stay between the watermarks that
// their records were between. Never is more under way than the capacity.
func TestAsyncOrder(t *testing.T) {
	for seed := range uint64(16) {
		for _, ordered := range []bool{true, false} {
			t.Run(fmt.Sprintf("seed=%d/ordered=%v", seed, ordered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 7))
					o := AsyncOptions{Ordered: ordered, Capacity: 1 + rng.IntN(30)}
					r := startAsync(t, o, answers(rng))
					var in []ev[int64]
					var next, w int64
					for range 20 {
						b := someBatch(rng, &next, &w)
						in = append(in, unroll(b)...)
						r.push(b)
						time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
						r.settle()
					}
					r.end()
					got, want := withoutIdleness(r.out.events), withoutIdleness(answered(in))
					if !ordered {
						got, want = sorted(got), sorted(want)
					}
					same(t, "results", got, want)
					if r.most > o.Capacity {
						t.Errorf("%d records under way, the capacity is %d", r.most, o.Capacity)
					}
				})
			})
		}
	}
}

// What is under way when a checkpoint is taken is called again after the restore: every record has
// its results once, and no watermark overtakes a record.
func TestAsyncRestore(t *testing.T) {
	for seed := range uint64(16) {
		for _, ordered := range []bool{true, false} {
			t.Run(fmt.Sprintf("seed=%d/ordered=%v", seed, ordered), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					rng := rand.New(rand.NewPCG(seed, 8))
					r := startAsync(t, AsyncOptions{Ordered: ordered, Capacity: 1 + rng.IntN(30)}, answers(rng))
					var in []ev[int64]
					var next, w int64
					given := record.MinTime
					for range 20 {
						b := someBatch(rng, &next, &w)
						for _, e := range unroll(b) {
							in = append(in, e)
							if e.mark && e.kind == record.Watermark {
								given = e.time
							}
						}
						r.push(b)
						time.Sleep(time.Duration(rng.IntN(5)) * time.Millisecond)
						r.settle()
						if rng.IntN(3) > 0 {
							continue
						}
						list := r.snapshot()
						r.close()
						r.open(list, given)
						r.settle()
					}
					r.end()
					noOvertaking(t, in, r.out.events)
					rows := func(list []ev[int64]) (out []ev[int64]) {
						for _, e := range list {
							if !e.mark {
								out = append(out, e)
							}
						}
						if !ordered {
							out = sorted(out)
						}
						return out
					}
					same(t, "results", rows(r.out.events), rows(answered(in)))
				})
			})
		}
	}
}

// noOvertaking checks that behind a watermark come no results of records that were before it.
func noOvertaking(t *testing.T, in, out []ev[int64]) {
	t.Helper()
	before := map[int64]int64{} // The newest watermark before a record.
	w := record.MinTime
	for _, e := range in {
		if !e.mark {
			before[e.row] = w
		} else if e.kind == record.Watermark {
			w = e.time
		}
	}
	w = record.MinTime
	for _, e := range out {
		switch {
		case !e.mark:
			if b := before[e.row/10]; b < w {
				t.Fatalf("result %d comes behind watermark %d; its record came behind %d", e.row, w, b)
			}
		case e.kind == record.Watermark:
			if e.time < w {
				t.Fatalf("watermark %d behind %d", e.time, w)
			}
			w = e.time
		}
	}
}

func oneBatch(rows ...int64) *record.Batch[int64] {
	b := record.PoolOf[int64]().Get()
	for _, v := range rows {
		b.Append(v, v)
	}
	return b
}

// While a call is under way the operator takes more input, and a full one leaves it where it is,
// with nothing to do until a call returns; both can be in a checkpoint.
func TestAsyncFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := startAsync(t, AsyncOptions{Capacity: 3}, AsyncCalls[int64, int64]{Call: func(_ context.Context, in int64) ([]int64, error) {
			time.Sleep(time.Duration(in) * time.Second)
			return []int64{in}, nil
		}})
		y := r.op.(*asyncOp[int64, int64])
		r.push(oneBatch(10, 20))
		if y.Pending() {
			t.Error("there is room, and it takes no more input")
		}
		r.push(oneBatch(30, 40, 50))
		if !y.Pending() || !y.Awaiting() || !y.Interruptible() {
			t.Errorf("full: pending %v, awaiting %v, interruptible %v", y.Pending(), y.Awaiting(), y.Interruptible())
		}
		if n := len(r.snapshot()[CallsState]); n != 5 {
			t.Errorf("%d records in the snapshot", n)
		}
		time.Sleep(10 * time.Second)
		synctest.Wait()
		if err := r.s.run(); err != nil {
			t.Fatal(err)
		}
		if y.Awaiting() {
			t.Error("a call returned, and it still waits")
		}
		if n := len(r.snapshot()[CallsState]); n != 5 {
			t.Errorf("%d records in the snapshot, one with results that were not emitted", n)
		}
		r.settle()
		if n := len(r.snapshot()[CallsState]); n != 4 {
			t.Errorf("%d records in the snapshot", n)
		}
		r.end()
		if len(r.out.events) != 5 {
			t.Errorf("results: %v", r.out.events)
		}
	})
}

// Calls under way end with the task.
func TestAsyncCancel(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var ended atomic.Int64
		r := startAsync(t, AsyncOptions{Retries: 5}, AsyncCalls[int64, int64]{Call: func(ctx context.Context, in int64) ([]int64, error) {
			if in == 1 {
				return nil, errors.New("busy") // It waits for its next try.
			}
			<-ctx.Done()
			ended.Add(1)
			return nil, ctx.Err()
		}})
		r.push(oneBatch(1, 2, 3))
		r.close()
		if ended.Load() != 2 {
			t.Errorf("%d calls ended", ended.Load())
		}
		if err := r.s.run(); err != nil {
			t.Errorf("a call that was cancelled fails the task: %v", err)
		}
	})
}

// Calls that fail are made again with growing waits, and then the task fails and says how often.
func TestAsyncFailures(t *testing.T) {
	boom := errors.New("boom")
	for _, x := range []struct {
		name     string
		o        AsyncOptions
		fail     func(ctx context.Context, try int64) error
		fallback bool
		tries    int64
		after    time.Duration
		class    job.Class // Empty for success.
		message  string
	}{
		{name: "at first", fail: func(context.Context, int64) error { return boom }, tries: 1, class: job.ClassExternal, message: `operator "op": call failed after 1 attempt: boom`},
		{name: "for ever", o: AsyncOptions{Retries: 3, Backoff: time.Second, MaxBackoff: 3 * time.Second}, fail: func(context.Context, int64) error { return boom },
			tries: 4, after: 6 * time.Second, class: job.ClassExternal, message: "call failed after 4 attempts: boom"},
		{name: "twice", o: AsyncOptions{Retries: 3, Backoff: time.Second}, fail: func(_ context.Context, try int64) error {
			if try < 3 {
				return boom
			}
			return nil
		}, tries: 3, after: 3 * time.Second},
		{name: "no answer", o: AsyncOptions{Retries: 1, Timeout: time.Minute}, fail: func(ctx context.Context, _ int64) error { <-ctx.Done(); return ctx.Err() },
			tries: 2, after: 2*time.Minute + 100*time.Millisecond, class: job.ClassExternal, message: "after 2 attempts: no answer within 1m0s: context deadline exceeded"},
		{name: "a bad record", o: AsyncOptions{Retries: 3}, fail: func(context.Context, int64) error { return job.Errorf(job.ClassRecord, "no id") },
			tries: 1, class: job.ClassRecord, message: "after 1 attempt: no id"},
		{name: "a panic", o: AsyncOptions{Retries: 3}, fallback: true, fail: func(context.Context, int64) error { panic("nil map") },
			tries: 1, class: job.ClassUser, message: "nil map"},
		{name: "with a fallback", o: AsyncOptions{Retries: 1}, fallback: true, fail: func(context.Context, int64) error { return boom }, tries: 2, after: 100 * time.Millisecond},
		{name: "with a fallback that fails", fallback: true, fail: func(context.Context, int64) error { return job.Errorf(job.ClassRecord, "worse") },
			tries: 1, class: job.ClassRecord, message: "after 1 attempt, and so did the fallback: worse"},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var tries int64
				calls := AsyncCalls[int64, int64]{Call: func(ctx context.Context, in int64) ([]int64, error) {
					tries++
					if err := x.fail(ctx, tries); err != nil {
						return nil, err
					}
					return []int64{in}, nil
				}}
				if x.fallback {
					calls.Fallback = func(_ context.Context, in int64, err error) ([]int64, error) {
						if errors.Is(err, boom) {
							return []int64{-in}, nil
						}
						return nil, err
					}
				}
				r := startAsync(t, x.o, calls)
				defer r.close()
				start := time.Now()
				if err := r.op.Push(0, oneBatch(1)); err != nil {
					t.Fatal(err)
				}
				<-r.s.wake
				err := r.s.run()
				if tries != x.tries || time.Since(start) != x.after {
					t.Errorf("%d tries in %v, want %d in %v", tries, time.Since(start), x.tries, x.after)
				}
				if x.class == "" {
					if err != nil {
						t.Fatal(err)
					}
					return
				}
				if err == nil {
					t.Fatal("no failure")
				}
				f := job.FailureOf("", "", err)
				if f.Class != x.class || !strings.Contains(f.Message, x.message) || (f.Stack != "") != (x.class == job.ClassUser) {
					t.Errorf("failure: %+v", f)
				}
			})
		})
	}
}

func TestAsyncOptions(t *testing.T) {
	bad := AsyncOptions{Capacity: -1, Timeout: -1, Retries: -1, Backoff: -1, MaxBackoff: -1}
	if err := bad.Validate(); err == nil || strings.Count(err.Error(), "\n") != 4 {
		t.Errorf("problems: %v", err)
	}
	if err := (AsyncOptions{}).Validate(); err != nil {
		t.Error(err)
	}
	d := AsyncOptions{Backoff: time.Hour}.WithDefaults()
	if err := d.Validate(); err != nil || d.Capacity != 100 || d.MaxBackoff != time.Hour {
		t.Errorf("%+v: %v", d, err)
	}
}

// State that is damaged or of another schema is refused.
func TestAsyncState(t *testing.T) {
	ints, err := codec.Default[int64]()
	if err != nil {
		t.Fatal(err)
	}
	texts, err := codec.Default[string]()
	if err != nil {
		t.Fatal(err)
	}
	v := int64(77)
	item, err := encodeCall(ints, &v, -5)
	if err != nil {
		t.Fatal(err)
	}
	if got, time, err := decodeCall(ints, ints.Schema(), item); err != nil || got != v || time != -5 {
		t.Errorf("%d at %d: %v", got, time, err)
	}
	if _, _, err := decodeCall(texts, texts.Schema(), item); job.FailureOf("", "", err).Class != job.ClassRefused {
		t.Errorf("another schema: %v", err)
	}
	for n := range item {
		if _, _, err := decodeCall(ints, ints.Schema(), item[:n]); err == nil {
			t.Errorf("%d of %d bytes are taken", n, len(item))
		}
	}
	if _, _, err := decodeCall(ints, ints.Schema(), append(item, 0)); err == nil {
		t.Error("a byte too many is taken")
	}
}
