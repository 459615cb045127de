package operator

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/record"
)

// sent notes what goes into a channel: "key@time+span x records", a record as it is as "raw key@time", and marks.
type sent struct{ list []string }

func (s *sent) Control(record.Control) error { return nil }
func (s *sent) Close()                       {}

func (s *sent) Send(a record.Any) error {
	var say func(i int) string
	switch b := a.(type) {
	case *record.Batch[partial[string, int64]]:
		say = func(i int) string {
			r := &b.Rows[i]
			if r.Count != r.Acc {
				return fmt.Sprintf("%d records make %d", r.Count, r.Acc)
			}
			return fmt.Sprintf("%s@%d+%d x %d", r.Key, b.Times[i], r.Span, r.Count)
		}
	case *record.Batch[string]:
		say = func(i int) string {
			if len(b.Times) == 0 {
				return fmt.Sprintf("raw %s@-", b.Rows[i])
			}
			return fmt.Sprintf("raw %s@%d", b.Rows[i], b.Times[i])
		}
	}
	at := 0
	for _, m := range a.MarkList() {
		for ; at < int(m.Pos); at++ {
			s.list = append(s.list, say(at))
		}
		s.list = append(s.list, fmt.Sprint(m.Time))
	}
	for ; at < a.Len(); at++ {
		s.list = append(s.list, say(at))
	}
	a.Release()
	return nil
}

// nameCount counts names.
func nameCount() WindowAggregate[string, string, int64, int64] {
	return WindowAggregate[string, string, int64, int64]{
		Key: func(v *string) string { return *v }, KeyCodec: textCodec(), AccCodec: codec.Int64(),
		Zero: func() int64 { return 0 }, Add: func(n *int64, _ *string) { *n++ }, Merge: func(n, m *int64) { *n += *m },
	}
}

func TestCombineRouter(t *testing.T) {
	tumbling, sliding, session := nameCount(), nameCount(), nameCount()
	tumbling.Assign = func(t int64) (int64, int64) { f := floorTo(t, 10, 0); return f, f + 8 } // 8 and 9 are in none.
	sliding.Slide = Slide{Size: 20, Step: 10}
	session.Gap = 10
	for _, c := range []struct {
		name    string
		def     WindowAggregate[string, string, int64, int64]
		entries int
		// Records as key@time, watermarks as times, "idle", "flush", and "|" between two batches.
		in, want string
	}{
		{"before the first watermark", tumbling, 8, "a@1 a@2 0", "raw a@1, raw a@2, 0"},
		{"a window", tumbling, 8, "-5 | a@1 a@2 b@3 6 a@4 7 9", "-5, 6, a@1+0 x 3, b@3+0 x 1, 9"},
		{"a flush is no end", tumbling, 8, "-5 | a@1 flush a@2 7", "-5, a@1+0 x 2, 7"},
		{"between windows", tumbling, 8, "7 | a@8 a@9", "7, a@8+0 x 1, a@9+0 x 1"},
		{"late", tumbling, 8, "7 | a@3 a@4", "7, a@3+0 x 1, a@4+0 x 1"},
		{"idle", tumbling, 8, "-5 | a@1 idle", "-5, a@1+0 x 1, 0"},
		{"no times", tumbling, 8, "-5 | a", "-5, raw a@-"},
		{"panes", sliding, 8, "-5 | a@1 a@11 8 a@2 9", "-5, 8, a@1+0 x 2, a@11+0 x 1, 9"},
		{"sessions", session, 8, "0 | a@20 a@29 a@12 11 a@25 12", "0, 11, a@12+17 x 4, 12"},
		{"a session that goes on", session, 8, "0 | a@20 20 a@25 a@26 28 a@35 29 40 a@36 45 a@60 a@61 60",
			"0, a@20+0 x 1, 28, a@25+10 x 3, 40, a@36+0 x 1, 45, a@60+1 x 2, 60"},
		{"an earlier record of one", session, 8, "0 | a@20 a@28 20 a@22 21 b@50 22 a@30 a@29 36 b@50 37 a@45 a@44 39 a@50 a@36 a@41 40 b@51 41",
			"0, a@20+8 x 2, 21, a@22+0 x 1, 36, a@29+1 x 2, 39, a@36+0 x 1, 40, a@41+9 x 4, 41, b@50+1 x 3"},
		{"sessions a gap apart", session, 8, "0 | a@20 a@30 a@20 20", "0, a@20+0 x 1, a@30+0 x 1, a@20+0 x 1, 20"},
		{"no gain", tumbling, 1, "-5 | a@1 b@1 |" + strings.Repeat(" a@1", 33), "-5, a@1+0 x 1, b@1+0 x 1" + strings.Repeat(", raw a@1", 33)},
		{"no gain for a while", tumbling, 1, "-5 | a@1 b@1 |" + strings.Repeat(" a@1", 32) + "| a@1 a@1", "-5, a@1+0 x 1, b@1+0 x 1" + strings.Repeat(", raw a@1", 32) + ", a@1+0 x 2"},
		{"gain", tumbling, 1, "-5 | a@1 a@1 b@1 | a@1 b@1 b@1", "-5, a@1+0 x 2, b@1+0 x 1, a@1+0 x 1, b@1+0 x 2"},
	} {
		var out sent
		r := c.def.combineRouter(c.entries)([]exchange.Out{&out}, 13)
		batch := record.PoolOf[string]().Get()
		do := func(f func() error) {
			if err := errors.Join(r.Emit(batch), f()); err != nil {
				t.Fatal(err)
			}
			batch = record.PoolOf[string]().Get()
		}
		for _, w := range strings.Fields(strings.ReplaceAll(c.in, "|", " | ")) {
			key, at, isRecord := strings.Cut(w, "@")
			time, err := strconv.ParseInt(at, 10, 64)
			switch {
			case w == "|":
				do(func() error { return nil })
			case w == "flush":
				do(r.Flush)
			case w == "idle":
				batch.Mark(record.Idle, 0)
			case isRecord && err == nil:
				batch.Append(key, time)
			default:
				if time, err = strconv.ParseInt(w, 10, 64); err != nil {
					batch.Rows = append(batch.Rows, w) // Without a time.
					continue
				}
				batch.Mark(record.Watermark, time)
			}
		}
		do(r.Drain)
		do(r.Flush)
		r.Close()
		if got := strings.Join(out.list, ", "); got != c.want {
			t.Errorf("%s:\n got %s\nwant %s", c.name, got, c.want)
		}
		if r.Holding() {
			t.Errorf("%s: something is held back at the end", c.name)
		}
	}
}

// Windows combine their records unless that would lose something, or nothing were won.
func TestCombines(t *testing.T) {
	plain := nameCount()
	late, keeps, alone := plain, plain, plain
	late.Late, keeps.Keeps, alone.Merge = "late", true, nil
	for name, c := range map[string]struct {
		op   WindowOperator
		want bool
	}{
		"window": {NewWindow(plain), true}, "late records": {NewWindow(late), false}, "records are kept": {NewWindow(keeps), false},
		"no merge": {NewWindow(alone), false}, "trigger": {NewTriggeredWindow(plain), false},
	} {
		if c.op.Combines != c.want {
			t.Errorf("%s: Combines is %v", name, c.op.Combines)
		}
	}
}

// Combined or not, records without an event time are refused.
func TestCombinedWithoutTime(t *testing.T) {
	tumbling, sliding, session := nameCount(), nameCount(), nameCount()
	tumbling.Assign = func(t int64) (int64, int64) { return floorTo(t, 10, 0), floorTo(t, 10, 0) + 10 }
	tumbling.EndOf = func(start int64) int64 { return start + 10 }
	sliding.Slide = Slide{Size: 20, Step: 10}
	session.Gap = 10
	for name, def := range map[string]WindowAggregate[string, string, int64, int64]{"tumbling": tumbling, "sliding": sliding, "session": session} {
		def.Result = func(string, int64, int64, *int64) int64 { return 0 }
		f := newFleet[string, int64](t, "memory", func(*string) uint64 { return 0 }, func() Operator { return newWindow(def) }, nil, 1)
		s := f.subs[0]
		b := record.PoolOf[partial[string, int64]]().Get()
		b.Append(partial[string, int64]{"k", 0, 1, 1}, record.MinTime)
		if err := s.op.Push(0, b); err == nil || !strings.Contains(err.Error(), "no event time") {
			t.Errorf("%s: %v", name, err)
		}
		f.close()
	}
}

func TestCombineFrames(t *testing.T) {
	def := sumDef()
	f := def.CombineFrames(record.NewFrames(codec.Int()))
	parts := record.PoolOf[partial[string, sumCount]]().Get()
	parts.Append(partial[string, sumCount]{"k", 7, 3, sumCount{12, 3}}, 100)
	parts.Mark(record.Watermark, 99)
	raw := record.PoolOf[int]().Get()
	raw.Append(5, 6)
	for _, b := range []record.Any{parts, raw} {
		frame, err := f.Append([]byte("before"), b)
		if err != nil {
			t.Fatal(err)
		}
		back, err := f.Decode(frame[len("before"):])
		if err != nil {
			t.Fatal(err)
		}
		if got, want := fmt.Sprintf("%T", back), fmt.Sprintf("%T", b); got != want || back.Len() != 1 {
			t.Errorf("%d rows in a %s, want 1 in a %s", back.Len(), got, want)
		}
		if p, ok := back.(*record.Batch[partial[string, sumCount]]); ok && (p.Rows[0] != parts.Rows[0] || p.Times[0] != 100 || p.Marks[0].Time != 99) {
			t.Errorf("got %+v", p)
		}
		for cut := range len(frame) - len("before") {
			if b, err := f.Decode(frame[len("before") : len("before")+cut]); err == nil {
				t.Errorf("%d bytes of a frame were decoded to %+v", cut, b)
			}
		}
		back.Release()
		b.Release()
	}
	if _, err := f.Decode([]byte("x")); err == nil {
		t.Error("a frame of another kind was decoded")
	}
}

func FuzzCombineFrames(f *testing.F) {
	def := sumDef()
	frames := def.CombineFrames(record.NewFrames(codec.Int()))
	f.Add([]byte("c\x01\x01\x01\x00\x01\x02k"))
	f.Add([]byte("r\x01\x00\x01\x00\x02"))
	f.Fuzz(func(_ *testing.T, data []byte) {
		if b, err := frames.Decode(data); err == nil {
			b.Release()
		}
	})
}

// BenchmarkCombine is a sender's work for a record of a window: 1 of 2 is of one key, the others of 1,000.
func BenchmarkCombine(b *testing.B) {
	def := WindowAggregate[int64, int64, int64, int64]{
		Key: func(v *int64) int64 { return *v }, KeyCodec: codec.Int64(), AccCodec: codec.Int64(),
		Assign: func(t int64) (int64, int64) { f := floorTo(t, 10_000, 0); return f, f + 10_000 },
		Zero:   func() int64 { return 0 }, Add: func(n, _ *int64) { *n++ }, Merge: func(n, m *int64) { *n += *m },
	}
	r := def.CombineRouter()([]exchange.Out{drop{}, drop{}}, 128)
	pool := record.PoolOf[int64]()
	b.ReportAllocs()
	x := uint64(1)
	for n := 0; n < b.N; n += pool.Rows() {
		batch := pool.Get()
		for i := range pool.Rows() {
			x ^= x << 13
			x ^= x >> 7
			x ^= x << 17
			key := int64(0)
			if x>>63 == 0 {
				key = int64(x % 1000)
			}
			batch.Append(key, int64((n+i)/10))
		}
		batch.Mark(record.Watermark, int64(n/10))
		if err := r.Emit(batch); err != nil {
			b.Fatal(err)
		}
	}
}

type drop struct{}

func (drop) Send(b record.Any) error      { b.Release(); return nil }
func (drop) Control(record.Control) error { return nil }
func (drop) Close()                       {}
