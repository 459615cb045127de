package datagen

import (
	"context"
	"math"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"
	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	_ operator.Source[int] = Source[int]{}
	_ operator.Source[int] = Slice[int]{}
)

func makeInt(n int64, v *int64) {
	if *v != 0 {
		panic("row is not zero")
	}
	*v = n
}

func fillInt(first int64, rows []int64) {
	for i := range rows {
		makeInt(first+int64(i), &rows[i])
	}
}

// readAll reads every split with the limits that pick gives, moving to a new reader at the position whenever restart
// says so.
func readAll(t interface{ Fatal(...any) }, s operator.Source[int64], parallelism int, limit func() int, restart func() bool) []int64 {
	ctx := context.Background()
	c := operator.SourceContext{Name: "gen", Parallelism: parallelism}
	splits, err := s.Splits(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	var all []int64
	for _, split := range splits {
		for end := false; !end; {
			r, err := s.Open(ctx, c, split)
			if err != nil {
				t.Fatal(err)
			}
			for {
				b := &record.Batch[int64]{Rows: append(make([]int64, 0, 4), 7, 7, 7, 7)[:1]} // Stale values behind the end.
				status, err := r.Read(b, limit())
				if err != nil {
					t.Fatal(err)
				}
				all = append(all, b.Rows[1:]...)
				if end = status == operator.ReadEnd; end || restart() {
					break
				}
			}
			split = r.Position()
			r.Close()
		}
		if r, err := s.Open(ctx, c, split); err != nil {
			t.Fatal(err)
		} else if status, _ := r.Read(&record.Batch[int64]{}, 1); status != operator.ReadEnd {
			t.Fatal("an exhausted split goes on")
		}
	}
	return all
}

// Every index comes once, whatever the number of splits, the sizes of reads and the restarts.
func TestEveryIndexOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		count := rapid.Int64Range(1, 5000).Draw(t, "count")
		splits := rapid.IntRange(0, 9).Draw(t, "splits")
		var s operator.Source[int64]
		switch rapid.IntRange(0, 2).Draw(t, "kind") {
		case 0:
			s = Source[int64]{Make: makeInt, Count: count, NumSplits: splits}
		case 1:
			s = Source[int64]{Fill: fillInt, Count: count, NumSplits: splits}
		case 2:
			rows := make([]int64, count)
			fillInt(0, rows)
			s = Slice[int64]{Rows: rows, NumSplits: splits}
		}
		limit := func() int { return rapid.IntRange(1, 1500).Draw(t, "limit") }
		restart := func() bool { return rapid.Bool().Draw(t, "restart") }
		all := readAll(t, s, rapid.IntRange(1, 4).Draw(t, "parallelism"), limit, restart)
		slices.Sort(all)
		if len(all) != int(count) {
			t.Fatalf("%d records of %d", len(all), count)
		}
		for i, v := range all {
			if v != int64(i) {
				t.Fatalf("record %d is %d", i, v)
			}
		}
	})
}

func TestEmptySlice(t *testing.T) {
	s := Slice[int64]{}
	if got := readAll(t, s, 1, nil, nil); got != nil || !s.Bounded() {
		t.Errorf("read %v, bounded %v", got, s.Bounded())
	}
}

func TestUnbounded(t *testing.T) {
	for _, s := range []Source[int64]{{Make: makeInt, NumSplits: 3}, {Fill: fillInt, NumSplits: 3}} {
		if s.Bounded() {
			t.Error("bounded")
		}
		c := operator.SourceContext{Parallelism: 2}
		splits, _ := s.Splits(context.Background(), c)
		r, err := s.Open(context.Background(), c, splits[2])
		if err != nil {
			t.Fatal(err)
		}
		b := &record.Batch[int64]{}
		for range 4 {
			if status, err := r.Read(b, 1000); status != operator.ReadMore || err != nil {
				t.Fatal(status, err)
			}
		}
		if len(b.Rows) != 4000 || !slices.IsSorted(b.Rows) {
			t.Errorf("%d rows", len(b.Rows))
		}
	}
}

// The end of all indices is an end, not an overflow.
func TestLastIndex(t *testing.T) {
	for _, block := range []int64{1, 1024} {
		for of := int64(1); of < 4; of++ {
			r := &reader[int64]{body: body{V: 1, Of: of, Block: block, Count: math.MaxInt64, Next: (math.MaxInt64 - 5000) / block / of * block * of}}
			r.fill = fillInt
			if block == 1 {
				r.each = makeInt
			}
			b := &record.Batch[int64]{}
			for status := operator.ReadMore; status != operator.ReadEnd; {
				var err error
				if status, err = r.Read(b, 1000); err != nil || len(b.Rows) > 10000 {
					t.Fatalf("block %d of %d: %d rows, %v", block, of, len(b.Rows), err)
				}
			}
			if !slices.IsSorted(b.Rows) || b.Rows[0] < 0 {
				t.Errorf("block %d of %d: indices wrapped around", block, of)
			}
		}
	}
}

func TestValidate(t *testing.T) {
	for _, s := range []Source[int64]{{}, {Make: makeInt, Fill: fillInt}, {Make: makeInt, Count: -1}, {Make: makeInt, Rate: -1}, {Make: makeInt, NumSplits: -1}} {
		if s.Validate() == nil {
			t.Errorf("%+v passed", s)
		}
	}
	if err := (Source[int64]{Make: makeInt, Count: 1, Rate: 0.1}).Validate(); err != nil {
		t.Error(err)
	}
	if (Slice[int64]{NumSplits: -1}).Validate() == nil {
		t.Error("a negative number of splits passed")
	}
}

// Descriptions of splits of version 1 stay readable.
func TestGolden(t *testing.T) {
	const golden = `{"v":1,"split":1,"of":3,"block":1024,"count":9000,"next":4100}`
	b, err := decode([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(b.split().Body); got != golden {
		t.Errorf("is written as %s", got)
	}
	for _, bad := range []string{"", "{}", `{"v":2}`, `{"v":1,"of":0}`, `{"v":1,"split":3,"of":3,"block":1,"count":1,"next":0}`, `{"v":1,"split":0,"of":3,"block":1,"count":1,"next":0,"x":1}`, `{"v":1,"split":0,"of":9223372036854775807,"block":9223372036854775807,"count":1,"next":0}`} {
		if _, err := decode([]byte(bad)); job.FailureOf("", "", err).Class != job.ClassRefused {
			t.Errorf("%s: %v", bad, err)
		}
	}
	s := Slice[int64]{Rows: make([]int64, 8)}
	if _, err := s.Open(context.Background(), operator.SourceContext{}, b.split()); err == nil {
		t.Error("a slice that changed was taken")
	}
}

func TestRate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := Source[int64]{Make: makeInt, Rate: 1000, Count: 5000, NumSplits: 4}
		start := time.Now()
		done := make(chan int, 4)
		for i := range 4 {
			go func() {
				ctx, cancel := context.WithCancel(context.Background()) // Each subtask has its own.
				defer cancel()
				wake := make(chan struct{}, 1)
				c := operator.SourceContext{Subtask: i, Parallelism: 4, Now: time.Now, Wake: func() { wake <- struct{}{} }}
				splits, _ := s.Splits(ctx, c)
				r, err := s.Open(ctx, c, splits[i])
				if err != nil {
					t.Error(err)
				}
				defer r.Close()
				b := &record.Batch[int64]{}
				for {
					switch status, _ := r.Read(b, 1024); status {
					case operator.ReadEnd:
						done <- len(b.Rows)
						return
					case operator.ReadWait:
						<-wake
					}
				}
			}()
		}
		total := 0
		for range 4 {
			total += <-done
		}
		if d := time.Since(start); total != 5000 || d < 4800*time.Millisecond || d > 5200*time.Millisecond {
			t.Errorf("%d records in %v", total, d)
		}
	})
}

func BenchmarkRead(b *testing.B) {
	type row struct{ Key, Value, Time int64 }
	s := Source[row]{
		Make:  func(n int64, v *row) { *v = row{n, n, n} },
		Count: math.MaxInt64,
	}
	c := operator.SourceContext{Parallelism: 1}
	splits, _ := s.Splits(context.Background(), c)
	r, _ := s.Open(context.Background(), c, splits[0])
	pool := record.PoolOf[row]()
	b.ReportAllocs()
	n := 0
	for b.Loop() {
		batch := pool.Get()
		r.Read(batch, 1024)
		n += len(batch.Rows)
		batch.Release()
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(n), "ns/record")
}
