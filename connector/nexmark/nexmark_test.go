package nexmark

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"math"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

var (
	_ operator.Source[Event]  = Source[Event]{}
	_ operator.Source[uint64] = Source[uint64]{}
)

func TestDraws(t *testing.T) {
	c := newClock(Config{Seed: 1}.WithDefaults())
	if c.start != 0x910a2dec89025cc1 {
		t.Errorf("start is %x", c.start)
	}
	for _, v := range []struct {
		n, field int64
		want     uint64
	}{{0, 0, 0x5e41ab087439611e}, {4, 2, 0x20b82eae6f86cac1}, {123456789, 4, 0x50422f6e6ccae5bf}} {
		if got := Mix(c.state(v.n) + gamma*uint64(v.field)); got != v.want {
			t.Errorf("draw(%d,%d) is %x", v.n, v.field, got)
		}
	}
}

func TestTables(t *testing.T) {
	if got := tableLetters(1, 0, 10); got != "ipdhgcmhpk" {
		t.Errorf("letters are %s", got)
	}
	if _, got := channel(4); got != "https://cdepn.example/gfgib/4" {
		t.Errorf("url is %s", got)
	}
	for r, want := range map[uint64]string{3: "Google", 4: "channel-0", 10003: "channel-9999"} {
		if got, url := channel(r); got != want || !strings.HasSuffix(url, fmt.Sprint("/", r)) {
			t.Errorf("channel %d is %s with %s", r, got, url)
		}
	}
	for r, want := range map[int][3]int{0: {90, 256, 8}, 1: {91, 258, 8}, 63: {153, 413, 39}} {
		if got := [3]int{len(personExtras[r]), len(auctionExtras[r]), len(bidExtras[r])}; got != want {
			t.Errorf("row %d: lengths %v, want %v", r, got, want)
		}
	}
	for i, w := range wordList {
		if len(w)+1 > wordWidth || string(words[i].text[:words[i].n+1]) != w+" " {
			t.Errorf("word %d is %q", i, words[i].text)
		}
	}
}

// The events that the definition prints.
func TestVectors(t *testing.T) {
	data, err := os.ReadFile("testdata/vectors.txt")
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	g := NewGenerator(Config{Seed: 1})
	for i := 0; i+1 < len(lines); i += 2 {
		var n int64
		if _, err := fmt.Sscan(lines[i], &n); err != nil {
			t.Fatal(err)
		}
		row, times := make([]Event, 1), make([]int64, 1)
		g.Fill(n, row, times)
		if got := string(row[0].AppendJSON(nil)); got != lines[i+1] {
			t.Errorf("event %d is\n%s, want\n%s", n, got, lines[i+1])
		}
		if times[0] != row[0].Time() {
			t.Errorf("event %d: time %d", n, times[0])
		}
	}
}

func TestDigests(t *testing.T) {
	want := map[int]string{
		1000:      "5c2bca96ce6fa4ca7b73227314ac0215130b516f7191c68d44b3c1903c37a20c",
		100_000:   "7e7962adb7d26492d64030d5a1d83f8b367a6b56d7ba397f6d8f7b2bfa567884",
		1_000_000: "87fcc99620d3e836f54105b6fd166762398726a63fefc86ca242761691de1ff2",
	}
	g := NewGenerator(Config{Seed: 1})
	rows, times := make([]Event, 500), make([]int64, 500)
	h := sha256.New()
	var line []byte
	for n := 0; n < 1_000_000; n += len(rows) {
		g.Fill(int64(n), rows, times)
		for i := range rows {
			line = append(rows[i].AppendJSON(line[:0]), '\n')
			h.Write(line)
		}
		if w, ok := want[n+len(rows)]; ok {
			if got := hex.EncodeToString(h.Sum(nil)); got != w {
				t.Errorf("digest of %d events is %s, want %s", n+len(rows), got, w)
			}
		}
	}
}

// plain is the definition as it is written, one event at a time.
func plain(c Config, n int64) Event {
	c = c.WithDefaults()
	k := newClock(c)
	draw := func(f int64) uint64 { return Mix(k.start + gamma*uint64(16*n+f+1)) }
	time := c.Base + n*1000/c.Rate
	if c.Jitter > 0 {
		time = max(c.Base, time-int64(hi(draw(15), uint64(c.Jitter)+1)))
	}
	person := func(x uint64, k int64) int64 {
		last := n / 50
		if hi(x, 4) > 0 {
			return 1000 + last/100*100 + k
		}
		a := min(last+1, 1000)
		return 1000 + last + 1 - a + int64(lo(x, uint64(a)+10))
	}
	letters := func(x uint64, from, to int) (s string) {
		for i := from; i < to; i++ {
			s += string(rune('a' + x>>(4*i)&15))
		}
		return s
	}
	switch offset := n % 50; {
	case offset == 0:
		d := fmt.Sprintf("%08d%08d", hi(draw(2), 1e8), lo(draw(2), 1e8))
		return Event{Person: &Person{
			ID: 1000 + n/50, Name: firstNames[hi(draw(0), 16)] + " " + lastNames[lo(draw(0), 16)],
			Email:      letters(draw(1), 0, 7) + "@" + letters(draw(1), 7, 12) + ".example",
			CreditCard: d[:4] + " " + d[4:8] + " " + d[8:12] + " " + d[12:],
			City:       cities[hi(draw(3), 10)], State: states[lo(draw(3), 6)], DateTime: time, Extra: personExtras[hi(draw(4), 64)],
		}}
	case offset < 4:
		var text []string
		for i := range 12 {
			text = append(text, wordList[draw(1)>>(5*i)&31])
		}
		initial := price(draw(2))
		return Event{Auction: &Auction{
			ID: 1000 + 3*(n/50) + offset - 1, ItemName: wordList[hi(draw(0), 32)] + " " + wordList[lo(draw(0), 32)],
			Description: strings.Join(text, " "), InitialBid: initial, Reserve: initial + price(draw(3)), DateTime: time,
			Expires: time + 1 + int64(hi(draw(4), 2*uint64(max(1, 5000000/(3*c.Rate))))), Seller: person(draw(5), 0),
			Category: 10 + int64(hi(draw(6), 5)), Extra: auctionExtras[lo(draw(6), 64)],
		}}
	}
	last := 3*(n/50) + 2
	auction := 1000 + last/100*100
	if x := draw(0); hi(x, 2) == 0 {
		first := max(last-100, 0)
		auction = 1000 + first + int64(lo(x, uint64(last-first)+11))
	}
	row := 4 + lo(draw(3), 10000)
	if hi(draw(3), 2) > 0 {
		row = lo(draw(3), 4)
	}
	name, url := channel(row)
	return Event{Bid: Bid{
		Auction: auction, Bidder: person(draw(1), 1), Price: price(draw(2)), Channel: name, URL: url,
		DateTime: time, Extra: bidExtras[hi(draw(4), 64)],
	}}
}

func configs(t *rapid.T) Config {
	return Config{
		Seed:   rapid.Uint64().Draw(t, "seed"),
		Events: rapid.Int64Range(1, 12_000).Draw(t, "events"),
		Rate:   rapid.OneOf(rapid.Int64Range(1, 20_000), rapid.Just(int64(math.MaxInt32))).Draw(t, "rate"),
		Base:   rapid.Int64Range(0, maxTime).Draw(t, "base"),
		Jitter: rapid.OneOf(rapid.Just(int64(0)), rapid.Int64Range(1, 5000)).Draw(t, "jitter"),
		Splits: rapid.IntRange(0, 9).Draw(t, "splits"),
	}
}

// Any run of events, at any number, is what the definition says.
func TestFill(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configs(t)
		g := NewGenerator(c)
		for range 3 {
			first := rapid.OneOf(rapid.Int64Range(0, 200_000), rapid.Int64Range(0, maxEvents-1000)).Draw(t, "first")
			rows := make([]Event, rapid.IntRange(0, 400).Draw(t, "rows"))
			for i := range rows {
				rows[i] = Event{Person: &Person{}, Auction: &Auction{}, Bid: Bid{Channel: "left over", Price: -1}}
			}
			times := make([]int64, len(rows))
			g.Fill(first, rows, times)
			for i := range rows {
				want := plain(c, first+int64(i))
				got := string(rows[i].AppendJSON(nil))
				if got != string(want.AppendJSON(nil)) {
					t.Fatalf("event %d is\n%s, want\n%s", first+int64(i), got, want.AppendJSON(nil))
				}
				if times[i] != rows[i].Time() || rows[i].IsBid() != want.IsBid() || !rows[i].IsBid() && rows[i].Bid != (Bid{}) {
					t.Fatalf("event %d: time %d, %+v", first+int64(i), times[i], rows[i])
				}
			}
		}
	})
}

// readAll reads every split with limits and restarts of the test's choice, and checks times and watermarks.
func readAll[T any](t *rapid.T, s Source[T], parallelism int) []T {
	ctx := context.Background()
	c := operator.SourceContext{Parallelism: parallelism}
	if err := s.Validate(); err != nil {
		t.Fatal(err)
	}
	splits, err := s.Splits(ctx, c)
	if err != nil {
		t.Fatal(err)
	}
	f := s.filler(s.config)
	all := make([]T, s.config.Events)
	seen := 0
	for i, split := range splits {
		r, err := s.Open(ctx, c, split)
		if err != nil {
			t.Fatal(err)
		}
		b := &record.Batch[T]{}
		for status := operator.ReadMore; status != operator.ReadEnd; {
			if status, err = r.Read(b, rapid.IntRange(1, 2500).Draw(t, "limit")); err != nil {
				t.Fatal(err)
			}
			if rapid.IntRange(0, 3).Draw(t, "restart") == 0 {
				at := r.Position()
				r.Close()
				if r, err = s.Open(ctx, c, at); err != nil {
					t.Fatal(err)
				}
				status = operator.ReadMore
			}
		}
		r.Close()
		if len(b.Times) != len(b.Rows) {
			t.Fatalf("%d times of %d rows", len(b.Times), len(b.Rows))
		}
		n, mark := int64(i)*BlockSize, 0
		for j := range b.Rows {
			all[n] = b.Rows[j]
			seen++
			last := n
			if n++; n%BlockSize == 0 {
				n += int64(len(splits)-1) * BlockSize
				if len(b.Marks) <= mark || int(b.Marks[mark].Pos) != j+1 || b.Marks[mark].Time != f.watermark(last) {
					t.Fatalf("watermark %d of split %d: %+v, want %d behind row %d", mark, i, b.Marks, f.watermark(last), j)
				}
				mark++
			}
			if mark > 0 && b.Times[j] <= b.Marks[mark-1].Time && int(b.Marks[mark-1].Pos) <= j {
				t.Fatalf("row %d of split %d is late", j, i)
			}
		}
		if mark != len(b.Marks) {
			t.Fatalf("%d watermarks, want %d", len(b.Marks), mark)
		}
	}
	if int64(seen) != s.config.Events {
		t.Fatalf("%d records of %d", seen, s.config.Events)
	}
	return all
}

// Whatever the splits, the sizes of batches and the restarts: the events are the same ones.
func TestSplits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configs(t)
		got := readAll(t, Events(c), rapid.IntRange(1, 5).Draw(t, "parallelism"))
		want := make([]Event, len(got))
		NewGenerator(c).Fill(0, want, make([]int64, len(got)))
		for i := range got {
			if !bytes.Equal(got[i].AppendJSON(nil), want[i].AppendJSON(nil)) {
				t.Fatalf("event %d is\n%s, want\n%s", i, got[i].AppendJSON(nil), want[i].AppendJSON(nil))
			}
		}
	})
}

func TestNumbers(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := configs(t)
		keys := rapid.Int64Range(1, math.MaxUint32).Draw(t, "keys")
		draws := readAll(t, Draws(c), rapid.IntRange(1, 5).Draw(t, "parallelism"))
		got := readAll(t, Keys(c, keys), 2)
		k := newClock(c.WithDefaults())
		for n := range draws {
			x := Mix(k.state(int64(n)))
			if draws[n] != x || got[n] != hi(x, uint64(keys)) {
				t.Fatalf("record %d is %x and %d of draw %x", n, draws[n], got[n], x)
			}
		}
	})
}

func TestValidate(t *testing.T) {
	for _, c := range []Config{
		{Events: -1}, {Events: maxEvents + 1}, {Rate: -1}, {Rate: math.MaxInt64}, {Base: -1}, {Base: maxTime + 1},
		{Jitter: -1}, {Jitter: math.MaxInt32}, {Splits: -1}, {Throttle: -1}, {Throttle: math.NaN()},
	} {
		if Events(c).Validate() == nil {
			t.Errorf("%+v passed", c)
		}
	}
	for _, keys := range []int64{-1, 0, 1 << 32} {
		if Keys(Config{}, keys).Validate() == nil {
			t.Errorf("%d keys passed", keys)
		}
	}
	if s := Events(Config{}); s.Validate() != nil || s.Bounded() || !Events(Config{Events: 1}).Bounded() {
		t.Error("defaults")
	}
}

// The last events have times too.
func TestLast(t *testing.T) {
	c := Config{Seed: math.MaxUint64, Rate: 1, Base: maxTime, Jitter: math.MaxInt32 - 1}
	g := NewGenerator(c)
	rows, times := make([]Event, 1000), make([]int64, 1000)
	g.Fill(maxEvents-1000, rows, times)
	if times[999] < maxTime || g.watermark(maxEvents-1) < maxTime {
		t.Errorf("time %d, watermark %d", times[999], g.watermark(maxEvents-1))
	}
}

// Descriptions of splits of version 1 stay readable.
func TestPosition(t *testing.T) {
	const golden = `{"v":1,"split":1,"of":3,"events":9000,"next":4100}`
	at, err := decode([]byte(golden))
	if err != nil {
		t.Fatal(err)
	}
	if got := string(at.split().Body); got != golden {
		t.Errorf("is written as %s", got)
	}
	for _, bad := range []string{
		"", "{}", `{"v":2,"split":1,"of":3,"events":9000,"next":4100}`, `{"v":1,"split":3,"of":3,"events":9000,"next":4100}`,
		`{"v":1,"split":1,"of":3,"events":9000,"next":5100}`, `{"v":1,"split":1,"of":3,"events":9000,"next":9001}`,
		`{"v":1,"split":1,"of":3,"events":9000,"next":4100,"x":1}`, `{"v":1,"split":0,"of":9223372036854775807,"events":1,"next":0}`,
	} {
		if _, err := decode([]byte(bad)); err == nil || job.FailureOf("", "", err).Class != job.ClassRefused {
			t.Errorf("%s: %v", bad, err)
		}
	}
	if _, err := Events(Config{Events: 9001}).Open(context.Background(), operator.SourceContext{}, at.split()); err == nil {
		t.Error("a position of another number of events was taken")
	}
}

func TestAllocations(t *testing.T) {
	g := NewGenerator(Config{Seed: 1})
	rows, times := make([]Event, 1000), make([]int64, 1000)
	n := int64(0)
	if got := testing.AllocsPerRun(200, func() {
		g.Fill(n, rows, times)
		n += 1000
	}); got > 85 { // The texts of 80 persons and auctions, and slabs of dozens.
		t.Errorf("%v allocations per 1,000 events", got)
	}
}

// cpu is the CPU time of the process: on a machine that others use, it says more than the clock on the wall.
func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // Fails for a bad argument only.
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func report(b *testing.B, start time.Duration, events int64) {
	b.ReportMetric(float64(cpu()-start)/float64(events), "cpu-ns/event")
}

func benchmark(b *testing.B, rows int, fill func(first int64, rows []Event, times []int64)) {
	batch, times := make([]Event, rows), make([]int64, rows)
	b.ReportAllocs()
	n, start := int64(0), cpu()
	for b.Loop() {
		fill(n, batch, times)
		n += int64(rows)
	}
	report(b, start, n)
}

func BenchmarkEvents(b *testing.B) {
	benchmark(b, record.RowsFor[Event](), NewGenerator(Config{Seed: 1}).Fill)
}

func BenchmarkBids(b *testing.B) {
	g := NewGenerator(Config{Seed: 1})
	benchmark(b, record.RowsFor[Event](), func(first int64, rows []Event, times []int64) {
		g.times(first, times)
		for len(rows) > 0 {
			k := min(46, len(rows))
			at := groupOf(first / 50)
			g.makeBids(first, &at, rows[:k], times[:k])
			rows, times = rows[k:], times[k:]
			first += int64(k)
		}
	})
}

// As a source is read: batches come from the pool and go back to it.
func BenchmarkRead(b *testing.B) {
	for _, splits := range []int{1, 4} {
		b.Run(fmt.Sprintf("splits=%d", splits), func(b *testing.B) { benchmarkRead(b, Events(Config{Seed: 1, Splits: splits})) })
	}
	b.Run("keys", func(b *testing.B) { benchmarkRead(b, Keys(Config{Seed: 1}, 1_000_000)) })
}

func benchmarkRead[T any](b *testing.B, s Source[T]) {
	c := operator.SourceContext{Parallelism: 1}
	splits, _ := s.Splits(context.Background(), c)
	r, _ := s.Open(context.Background(), c, slices.Clone(splits)[0])
	pool := record.PoolOf[T]()
	b.ReportAllocs()
	n, start := int64(0), cpu()
	for b.Loop() {
		batch := pool.Get()
		r.Read(batch, pool.Rows())
		n += int64(len(batch.Rows))
		batch.Release()
	}
	report(b, start, n)
}
