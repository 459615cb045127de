package operator

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

func textCodec() codec.Codec[string] {
	c, err := codec.Default[string]()
	if err != nil {
		panic(err)
	}
	return c
}

func keyName(v *int) string { return fmt.Sprintf("key-%d", *v%13) }

const windowSize = 50

type pane struct {
	Key        string
	Start, End int64
	Sum, Count int64
}

type sumCount struct{ Sum, Count int64 }

func windowOf() Operator {
	ac, err := codec.Default[sumCount]()
	if err != nil {
		panic(err)
	}
	return newWindow(WindowAggregate[string, int, sumCount, pane]{
		Key: keyName, KeyCodec: textCodec(), AccCodec: ac,
		Assign: func(t int64) (int64, int64) {
			s := t - ((t%windowSize)+windowSize)%windowSize
			return s, s + windowSize
		},
		EndOf: func(s int64) int64 { return s + windowSize },
		Zero:  func() sumCount { return sumCount{Sum: 1000} },
		Add:   func(a *sumCount, v *int) { a.Sum += int64(*v); a.Count++ },
		Result: func(k string, start, end int64, a *sumCount) pane {
			return pane{k, start, end, a.Sum, a.Count}
		},
	})
}

// windowModel does the same with a map, record by record.
type windowModel struct {
	now    int64
	panes  map[pane]*sumCount // Key, Start and End.
	late   int64
	events []ev[pane]
}

func (m *windowModel) take(e ev[int]) {
	switch {
	case e.mark && e.kind != record.Watermark:
		m.events = append(m.events, ev[pane]{mark: true, kind: e.kind})
	case e.mark:
		if e.time > m.now {
			m.fire(e.time)
			m.events = append(m.events, ev[pane]{mark: true, time: e.time})
		}
	default:
		start := e.time - ((e.time%windowSize)+windowSize)%windowSize
		if start+windowSize-1 <= m.now {
			m.late++
			return
		}
		p := pane{Key: keyName(&e.row), Start: start, End: start + windowSize}
		if m.panes[p] == nil {
			m.panes[p] = &sumCount{Sum: 1000}
		}
		m.panes[p].Sum += int64(e.row)
		m.panes[p].Count++
	}
}

func (m *windowModel) fire(w int64) {
	m.now = w
	for p, a := range m.panes {
		if p.End-1 <= w {
			out := p
			out.Sum, out.Count = a.Sum, a.Count
			m.events = append(m.events, ev[pane]{time: p.End - 1, row: out})
			delete(m.panes, p)
		}
	}
}

// The windowed operator gives what the model gives, whatever the batches look like and wherever it
// is stopped and restored.
func TestWindow(t *testing.T) {
	for backend := range factories {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				out := &recorder[pane]{}
				k := startKeyed(t, backend, out, windowOf)
				m := &windowModel{now: record.MinTime, panes: map[pane]*sumCount{}}
				w := int64(-100)
				for range rapid.IntRange(1, 8).Draw(t, "batches") {
					b := drawBatch(t, func(i int) int { return i }, true, &w)
					for _, e := range unroll(b) {
						m.take(e)
					}
					k.push(b)
					if rapid.IntRange(0, 2).Draw(t, "restart") == 0 {
						k.restart(m.now)
					}
				}
				same(t, "windows", sorted(out.events), sorted(m.events))
				m.fire(record.MaxTime)
				if err := k.op.EndOfData(); err != nil {
					t.Fatal(err)
				}
				k.settle()
				same(t, "windows at the end", sorted(out.events), sorted(m.events))
				k.close()
				if k.late != m.late {
					t.Fatalf("%d late records, want %d", k.late, m.late)
				}
				for i, last := 0, record.MinTime; i < len(out.events); i++ {
					switch e := out.events[i]; {
					case e.mark:
						last = record.MinTime
					case e.time < last:
						t.Fatalf("the window that ends at %d fires behind that which ends at %d", e.time, last)
					default:
						last = e.time
					}
				}
			})
		})
	}
}

// Records without a time are refused, not put into some window.
func TestWindowNeedsTime(t *testing.T) {
	for _, timed := range []bool{false, true} {
		k := startKeyed(t, "fs", &recorder[pane]{}, windowOf)
		b := record.PoolOf[int]().Get()
		b.Rows = append(b.Rows, 1)
		if timed {
			b.Times = append(b.Times, record.MinTime) // What an operator emits for a record without.
		}
		if err := k.op.Push(0, b); err == nil || job.FailureOf("", "", err).Class != job.ClassRefused {
			t.Errorf("%v", err)
		}
		k.close()
	}
}

// Timers that are due at one watermark fire in bounded runs. The watermark and what is behind it
// come after the last of them, also when the operator is stopped and restored in between.
func TestBoundedFiring(t *testing.T) {
	const keys = 5*firingRun + 7
	each := func() Operator {
		return Process(func(v *int) int { return *v }, intCodec(), func(s *States[int]) Handler[int, int, int] {
			return Handler[int, int, int]{
				Record: func(c *KeyedContext[int, int], v *int) { c.SetTimer(100); c.SetTimer(100) },
				Timer:  func(c *KeyedContext[int, int]) { c.Emit(c.Key()) },
			}
		})
	}
	for _, restart := range []bool{false, true} {
		out := &recorder[int]{}
		k := startKeyed(t, "fs", out, each)
		b := record.PoolOf[int]().Get()
		for i := range keys {
			b.Append(i, 0)
		}
		b.Mark(record.Watermark, 100)
		b.Mark(record.Idle, 0)
		if !restart {
			b.Append(keys, 0)
		}
		if err := k.op.Push(0, b); err != nil {
			t.Fatal(err)
		}
		y := k.op.(Yielder)
		runs := 1
		for y.Pending() {
			if len(out.events) != runs*firingRun {
				t.Fatalf("%d timers fired in %d runs of %d", len(out.events), runs, firingRun)
			}
			if restart && runs == 2 {
				break
			}
			if err := y.Resume(); err != nil {
				t.Fatal(err)
			}
			runs++
		}
		if restart {
			k.restart(100) // Pending again, at once.
		} else if runs != 6 {
			t.Errorf("%d runs", runs)
		}
		var seen []int
		for _, e := range out.events[:keys] {
			if e.mark || e.time != 100 {
				t.Fatalf("%v among the timers", e)
			}
			seen = append(seen, e.row)
		}
		slices.Sort(seen)
		if len(slices.Compact(seen)) != keys {
			t.Errorf("%d of %d keys", len(slices.Compact(seen)), keys)
		}
		rest := fmt.Sprint(out.events[keys:])
		if restart && rest != "[W100]" || !restart && rest != "[W100 idle]" {
			t.Errorf("behind the timers: %s", rest)
		}
		k.close()
	}
}

func intCodec() codec.Codec[int] {
	c, err := codec.Default[int]()
	if err != nil {
		panic(err)
	}
	return c
}

// said is what the process operator of the tests emits.
type said struct {
	What  string
	Key   string
	Count int64
	W     int64
}

// chatter uses everything that a keyed operator has. Each branch has its twin in the model.
func chatter() Operator {
	return Process(keyName, textCodec(), func(s *States[string]) Handler[string, int, said] {
		count, last := s.Value[int64]("count"), s.Value[string]("last")
		return Handler[string, int, said]{
			Record: func(c *KeyedContext[string, said], v *int) {
				if *v%7 == 6 && count.Clear() {
					last.Set("cleared")
				}
				*count.Ref()++
				n, _ := count.Get()
				at := c.Time() / 20 * 20
				switch *v % 5 {
				case 0:
					c.SetTimer(at + 20)
					c.SetTimer(at + 20)
				case 1:
					c.DeleteTimer(at + 20)
				case 2:
					c.DeleteTimer(at + 20)
					c.SetTimer(at + 20)
				case 3:
					c.SetTimer(at - 40)
				}
				c.Emit(said{"record", c.Key(), n, c.Watermark()})
			},
			Timer: func(c *KeyedContext[string, said]) {
				n, ok := count.Get()
				text, _ := last.Get()
				c.Emit(said{"timer" + text, c.Key(), n, c.Watermark()})
				count.Update(func(n *int64) { *n += 10 })
				if ok && n%2 == 1 && c.Time() < 2000 {
					c.SetTimer(c.Time() + 20) // May be due at once.
				}
			},
		}
	})
}

type chatterModel struct {
	now    int64
	count  map[string]int64
	last   map[string]string
	timers map[string]map[int64]bool
	events []ev[said]
}

func (m *chatterModel) take(e ev[int]) {
	switch {
	case e.mark && e.kind != record.Watermark:
		m.events = append(m.events, ev[said]{mark: true, kind: e.kind})
		return
	case e.mark:
		if e.time > m.now {
			m.fire(e.time)
			m.events = append(m.events, ev[said]{mark: true, time: e.time})
		}
		return
	}
	k, v := keyName(&e.row), e.row
	if _, ok := m.count[k]; v%7 == 6 && ok {
		delete(m.count, k)
		m.last[k] = "cleared"
	}
	m.count[k]++
	at := e.time / 20 * 20
	if m.timers[k] == nil {
		m.timers[k] = map[int64]bool{}
	}
	switch v % 5 {
	case 0, 2:
		m.timers[k][at+20] = true
	case 1:
		delete(m.timers[k], at+20)
	case 3:
		m.timers[k][at-40] = true
	}
	m.events = append(m.events, ev[said]{time: e.time, row: said{"record", k, m.count[k], m.now}})
}

// restart fires the timers that were set for a time that the watermark had passed already.
func (m *chatterModel) restart() {
	n := len(m.events)
	m.fire(m.now)
	if len(m.events) > n {
		m.events = append(m.events, ev[said]{mark: true, time: m.now})
	}
}

func (m *chatterModel) fire(w int64) {
	m.now = w
	for k, set := range m.timers {
		for len(set) > 0 {
			first := slices.Min(slices.Collect(maps.Keys(set)))
			if first > w {
				break
			}
			delete(set, first)
			n, ok := m.count[k]
			m.events = append(m.events, ev[said]{time: first, row: said{"timer" + m.last[k], k, n, w}})
			m.count[k] += 10
			if ok && n%2 == 1 && first < 2000 {
				set[first+20] = true
			}
		}
	}
}

// A keyed operator with states and timers gives what the model gives, however it is fed and
// wherever it is stopped and restored.
func TestProcess(t *testing.T) {
	for backend := range factories {
		t.Run(backend, func(t *testing.T) {
			rapid.Check(t, func(t *rapid.T) {
				out := &recorder[said]{}
				k := startKeyed(t, backend, out, chatter)
				m := &chatterModel{now: record.MinTime, count: map[string]int64{}, last: map[string]string{}, timers: map[string]map[int64]bool{}}
				w := int64(100)
				for range rapid.IntRange(1, 8).Draw(t, "batches") {
					b := drawBatch(t, func(i int) int { return i }, true, &w)
					for _, e := range unroll(b) {
						m.take(e)
					}
					k.push(b)
					if rapid.IntRange(0, 2).Draw(t, "restart") == 0 {
						k.restart(m.now)
						m.restart()
					}
				}
				m.fire(record.MaxTime)
				if err := k.op.EndOfData(); err != nil {
					t.Fatal(err)
				}
				k.settle()
				same(t, "process", sorted(out.events), sorted(m.events))
				k.close()
			})
		})
	}
}

// A hash that came with the batch is used, and is the one that the operator would make itself.
func TestHashComesAlong(t *testing.T) {
	sum := func(withHash bool) []ev[said] {
		out := &recorder[said]{}
		k := startKeyed(t, "fs", out, chatter)
		hash := codec.NewHasher(textCodec())
		for range 3 {
			b := record.PoolOf[int]().Get()
			for i := range 100 {
				b.Append(i, int64(i))
				if withHash {
					key := keyName(&i)
					b.Hash = append(b.Hash, hash(&key))
				}
			}
			b.Mark(record.Watermark, 50)
			k.push(b)
		}
		k.close()
		return out.events
	}
	same(t, "with a hash", sum(true), sum(false))
}

// A key that sets and takes back a timer with every record does not fill the memory.
func TestTimerChurn(t *testing.T) {
	var op *processOp[string, int, int]
	k := startKeyed(t, "fs", &recorder[int]{}, func() Operator {
		op = Process(func(*int) string { return "k" }, textCodec(), func(*States[string]) Handler[string, int, int] {
			return Handler[string, int, int]{
				Record: func(c *KeyedContext[string, int], v *int) { c.DeleteTimer(1000); c.SetTimer(1000) },
				Timer:  func(c *KeyedContext[string, int]) { c.Emit(1) },
			}
		}).(*processOp[string, int, int])
		return op
	})
	b := record.PoolOf[int]().Get()
	for i := range 4000 {
		b.Append(i, 0)
	}
	k.push(b)
	if x := op.ctx.timers.index.near(1000); len(x.vs) != 1 {
		t.Errorf("%d entries for one timer", len(x.vs))
	}
	k.close()
}

// The index gives values by time, those of one time in the order they were added, and keeps its
// memory for the next ones.
func TestTimeIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var x timeIndex[int]
		type entry struct {
			time int64
			v    int
		}
		var model []entry
		for n := range rapid.IntRange(0, 200).Draw(t, "steps") {
			if len(model) > 0 && rapid.IntRange(0, 2).Draw(t, "pop") == 0 {
				first, ok := x.first()
				v := x.pop()
				if !ok || first != model[0].time || v != model[0].v {
					t.Fatalf("popped %d at %d, want %v", v, first, model[0])
				}
				model = model[1:]
				continue
			}
			time := rapid.SampledFrom([]int64{0, 0, 0, 1000, -1 << 40, 1 << 40, record.MinTime + 1<<20, record.MaxTime - 1<<20}).Draw(t, "about")
			e := entry{time + rapid.Int64Range(0, rapid.SampledFrom([]int64{9, ringSize, 1 << 14}).Draw(t, "range")).Draw(t, "time"), n}
			x.add(e.time, e.v)
			model = append(model, e)
			slices.SortStableFunc(model, func(a, b entry) int { return cmp.Compare(a.time, b.time) })
		}
		if _, ok := x.first(); ok != (len(model) > 0) {
			t.Fatalf("first: %v with %d left", ok, len(model))
		}
	})
	for _, v := range []int64{record.MinTime, record.MaxTime, 0} {
		var x timeIndex[int]
		x.add(v, 1)
		x.add(v, 2)
		if at, ok := x.first(); at != v || !ok || x.pop() != 1 || x.pop() != 2 {
			t.Errorf("time %d is at %d", v, at)
		}
	}
	var x timeIndex[int]
	for i := range int64(100) {
		x.add(i, 0)
	}
	next := int64(100)
	if n := testing.AllocsPerRun(1000, func() {
		x.add(next, 0)
		x.pop()
		next++
	}); n > 0 {
		t.Errorf("%v allocations per timer", n)
	}
}

// All that is wrong with the states of an operator is said at once.
func TestStatesProblems(t *testing.T) {
	s := NewStates(textCodec())
	s.Value[int64]("a")
	s.Value[int64]("a")
	s.Value[int64]("")
	s.Value[int64]("timers")
	s.Value[chan int]("c")
	if len(s.Problems()) != 4 {
		t.Errorf("%q", s.Problems())
	}
}
