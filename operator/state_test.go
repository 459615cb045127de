package operator

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/codec"
)

// order is a command to the operator of the tests.
type order struct {
	Key  int64
	Op   int
	A, B int64
	N    int64 // Number of the command.
}

const orderOps = 29

type answer struct {
	N    int64
	Text string
}

type both struct{ Sum, Count int64 }

var meanOf = Aggregation[int64, both, int64]{
	Zero:   func() both { return both{Sum: 5} },
	Add:    func(a *both, v *int64) { a.Sum += *v; a.Count++ },
	Result: func(a *both) int64 { return a.Sum*1000 + a.Count },
}

// obey is an operator with a state of every kind that does what it is told and says what it sees.
func obey[K comparable](kc codec.Codec[K], key func(int64) K, ttl []TTL) Operator {
	construct := func(s *States[K]) CoHandler[K, order, order, answer] {
		listTTL := slices.Clone(ttl)
		for i := range listTTL {
			listTTL[i].On = OnWrite
		}
		value := s.Value[int64]("value", ttl...)
		list := s.List[string]("list", listTTL...)
		lists := s.Lists[int64]("lists", listTTL...)
		deep := s.Value[[]int64]("deep", ttl...)
		m := s.Map[string, int64]("map", ttl...)
		red := s.Reducing[int64]("reducing", func(into, v *int64) { *into = *into*3 + *v }, ttl...)
		agg := s.Aggregating("aggregating", meanOf, ttl...)
		do := func(c *KeyedContext[K, answer], o *order) {
			say := func(format string, args ...any) { c.Emit(answer{o.N, fmt.Sprintf(format, args...)}) }
			mk := fmt.Sprint("m", o.A%7)
			switch o.Op {
			case 0, 1:
				*value.Ref() += o.A
			case 2:
				v, ok := value.Get()
				say("value %d %v", v, ok)
			case 3:
				say("cleared %v", value.Clear())
			case 4:
				value.Set(o.A)
			case 5, 6:
				v := fmt.Sprint("e", o.A)
				list.Append(&v)
			case 7:
				all := []string{}
				for i, v := range list.All() {
					if list.At(i) == nil || i != len(all) {
						panic("index")
					}
					all = append(all, *v)
				}
				say("list %v %d", all, list.Len())
			case 8:
				list.RemoveFirst(int(o.B % 4))
			case 9:
				say("list cleared %d", list.Clear())
			case 10:
				if n := list.Len(); n > 0 {
					v := fmt.Sprint("s", o.B)
					list.Set(int(o.A)%n, &v)
				}
			case 11, 12:
				lists.Append(o.A%3-1, &o.B)
			case 13:
				var sum, n int64
				for _, v := range lists.All(o.A%3 - 1) {
					sum = sum*31 + *v
					n++
				}
				say("lists %d %d", sum, n)
			case 14:
				say("lists cleared %d", lists.Clear(o.A%3-1))
			case 15, 16:
				m.Put(mk, o.B)
			case 17:
				v, ok := m.Get(mk)
				say("map %d %v", v, ok)
			case 18:
				say("deleted %v", m.Delete(mk))
			case 19:
				var all []string
				for k, v := range m.All() {
					all = append(all, fmt.Sprint(k, "=", *v))
				}
				slices.Sort(all)
				say("map %v", all)
			case 20:
				say("map of %d", m.Len())
			case 21:
				if o.B%3 == 0 {
					m.Clear()
				}
			case 22:
				v, created := m.Ref(mk)
				*v++
				say("map %d %v", *v, created)
			case 23:
				for k, v := range m.All() {
					if *v%2 == 0 {
						m.Delete(k)
					}
				}
			case 24:
				red.Add(&o.A)
				v, ok := red.Get()
				say("reducing %d %v", v, ok)
			case 25:
				agg.Add(&o.A)
			case 26:
				v, ok := agg.Get()
				say("aggregating %d %v", v, ok)
				if o.B%3 == 0 {
					say("gone %v %v", agg.Clear(), red.Clear())
				}
			case 27:
				v, _ := deep.Get()
				p := deep.Ref()
				*p = append(*p, o.A)
				if len(*p) > 3 {
					(*p)[0]++
				}
				mine := slices.Clone(*p)
				deep.Set(mine)
				mine[0] = -1
				say("deep %d %v", len(v), *deep.Ref())
			case 28: // A loop over one list that changes another one of the same state.
				var sum int64
				for i, v := range lists.All(o.A%3 - 1) {
					sum = sum*31 + *v
					if n := lists.Len((o.A+1)%3 - 1); i < 4 && n < 40 {
						lists.Append((o.A+1)%3-1, &o.B)
					} else if i < 8 {
						lists.RemoveFirst((o.A+1)%3-1, 7)
					}
				}
				say("lists %d", sum)
			}
		}
		return CoHandler[K, order, order, answer]{Left: do, Right: do}
	}
	of := func(o *order) K { return key(o.Key) }
	return CoProcess(of, of, kc, construct)
}

// mValue is a value of the model: what there is, and since when.
type mValue[V any] struct {
	v    V
	from int64
	is   bool
}

// obeyModel does what obey does with maps and slices.
type obeyModel struct {
	now    int64
	after  int64 // 0: no TTL.
	on     TTLOn
	value  map[int64]*mValue[int64]
	list   map[int64][]mValue[string]
	lists  map[[2]int64][]mValue[int64]
	m      map[int64]map[string]*mValue[int64]
	red    map[int64]*mValue[int64]
	agg    map[int64]*mValue[both]
	deep   map[int64]*mValue[[]int64]
	answer []answer
}

func (m *obeyModel) live(is bool, from int64) bool {
	return is && (m.after == 0 || m.now-from < m.after)
}

func (m *obeyModel) upsert[V any](p *mValue[V]) (v *V, fresh bool) {
	if !m.live(p.is, p.from) {
		*p = mValue[V]{from: m.now, is: true}
		return &p.v, true
	}
	if m.on != OnCreate {
		p.from = m.now
	}
	return &p.v, false
}

func (m *obeyModel) get[V any](p *mValue[V]) (v V, ok bool) {
	if !m.live(p.is, p.from) {
		return v, false
	}
	if m.on == OnReadAndWrite {
		p.from = m.now
	}
	return p.v, true
}

func (m *obeyModel) clear[V any](p *mValue[V]) bool {
	was := m.live(p.is, p.from)
	*p = mValue[V]{}
	return was
}

func at[X comparable, V any](m map[X]*V, k X) *V {
	if m[k] == nil {
		m[k] = new(V)
	}
	return m[k]
}

func trim[V any](m *obeyModel, l []mValue[V]) []mValue[V] {
	for len(l) > 0 && !m.live(true, l[0].from) {
		l = l[1:]
	}
	return l
}

func (m *obeyModel) do(o order) {
	say := func(format string, args ...any) {
		m.answer = append(m.answer, answer{o.N, fmt.Sprintf(format, args...)})
	}
	k := o.Key
	mk := fmt.Sprint("m", o.A%7)
	value, red, agg, deep := at(m.value, k), at(m.red, k), at(m.agg, k), at(m.deep, k)
	if m.m[k] == nil {
		m.m[k] = map[string]*mValue[int64]{}
	}
	entry := at(m.m[k], mk)
	ln := [2]int64{k, o.A%3 - 1}
	m.list[k], m.lists[ln] = trim(m, m.list[k]), trim(m, m.lists[ln])
	switch o.Op {
	case 0, 1:
		v, _ := m.upsert(value)
		*v += o.A
	case 2:
		v, ok := m.get(value)
		say("value %d %v", v, ok)
	case 3:
		say("cleared %v", m.clear(value))
	case 4:
		v, _ := m.upsert(value)
		*v = o.A
	case 5, 6:
		m.list[k] = append(m.list[k], mValue[string]{fmt.Sprint("e", o.A), m.now, true})
	case 7:
		all := []string{}
		for _, v := range m.list[k] {
			all = append(all, v.v)
		}
		say("list %v %d", all, len(all))
	case 8:
		m.list[k] = m.list[k][min(len(m.list[k]), int(o.B%4)):]
	case 9:
		say("list cleared %d", len(m.list[k]))
		m.list[k] = nil
	case 10:
		if n := len(m.list[k]); n > 0 {
			m.list[k] = slices.Clone(m.list[k])
			m.list[k][int(o.A)%n].v = fmt.Sprint("s", o.B)
		}
	case 11, 12:
		m.lists[ln] = append(m.lists[ln], mValue[int64]{o.B, m.now, true})
	case 13:
		var sum int64
		for _, v := range m.lists[ln] {
			sum = sum*31 + v.v
		}
		say("lists %d %d", sum, len(m.lists[ln]))
	case 14:
		say("lists cleared %d", len(m.lists[ln]))
		m.lists[ln] = nil
	case 15, 16:
		v, _ := m.upsert(entry)
		*v = o.B
	case 17:
		v, ok := m.get(entry)
		say("map %d %v", v, ok)
	case 18:
		say("deleted %v", m.clear(entry))
	case 19, 23:
		var all []string
		for key, e := range m.m[k] {
			if v, ok := m.get(e); ok {
				all = append(all, fmt.Sprint(key, "=", v))
				if o.Op == 23 && v%2 == 0 {
					m.clear(e)
				}
			}
		}
		slices.Sort(all)
		if o.Op == 19 {
			say("map %v", all)
		}
	case 20:
		n := 0
		for _, e := range m.m[k] {
			if m.live(e.is, e.from) {
				n++
			}
		}
		say("map of %d", n)
	case 21:
		if o.B%3 == 0 {
			m.m[k] = nil
		}
	case 22:
		v, created := m.upsert(entry)
		*v++
		say("map %d %v", *v, created)
	case 24:
		v, fresh := m.upsert(red)
		if fresh {
			*v = o.A
		} else {
			*v = *v*3 + o.A
		}
		say("reducing %d %v", *v, true)
	case 25:
		v, fresh := m.upsert(agg)
		if fresh {
			v.Sum = 5
		}
		v.Sum += o.A
		v.Count++
	case 26:
		v, ok := m.get(agg)
		n := int64(0)
		if ok {
			n = v.Sum*1000 + v.Count
		}
		say("aggregating %d %v", n, ok)
		if o.B%3 == 0 {
			say("gone %v %v", m.clear(agg), m.clear(red))
		}
	case 27:
		old, _ := m.get(deep)
		v, _ := m.upsert(deep)
		*v = append(slices.Clone(*v), o.A)
		if len(*v) > 3 {
			(*v)[0]++
		}
		say("deep %d %v", len(old), *v)
	case 28:
		var sum int64
		other := [2]int64{k, (o.A+1)%3 - 1}
		for i, v := range m.lists[ln] {
			sum = sum*31 + v.v
			m.lists[other] = trim(m, m.lists[other])
			if n := len(m.lists[other]); i < 4 && n < 40 {
				m.lists[other] = append(m.lists[other], mValue[int64]{o.B, m.now, true})
			} else if i < 8 {
				m.lists[other] = m.lists[other][min(n, 7):]
			}
		}
		say("lists %d", sum)
	}
}

// Every kind of state, with every TTL, gives what maps and slices give: however it is fed, wherever it is
// stopped, and with whatever parallelism it is restored. What has expired is gone in the end though
// nobody asks for its keys again.
func TestStateKinds(t *testing.T) {
	ttls := map[string][]TTL{
		"none": nil, "on-write": {{After: 20 * time.Second}}, "on-create": {{After: 20 * time.Second, On: OnCreate}},
		"on-read-and-write": {{After: 20 * time.Second, On: OnReadAndWrite}},
	}
	for name, ttl := range ttls {
		t.Run(name+"/string", func(t *testing.T) {
			testStateKinds(t, textCodec(), func(k int64) string { return fmt.Sprint("key-", k) }, ttl, "fs", "memory")
		})
		t.Run(name+"/int64", func(t *testing.T) {
			testStateKinds(t, codec.Int64(), func(k int64) int64 { return k }, ttl, "fs", "memory")
		})
	}
}

func testStateKinds[K comparable](t *testing.T, kc codec.Codec[K], key func(int64) K, ttl []TTL, backends ...string) {
	rapid.Check(t, func(t *rapid.T) {
		backend := rapid.SampledFrom(backends).Draw(t, "backend")
		of := func(o *order) K { return key(o.Key) }
		s := StartScaled[K, order, order, answer](t, backend, 2, kc, of, of, func() Operator { return obey(kc, key, ttl) })
		m := &obeyModel{
			value: map[int64]*mValue[int64]{}, list: map[int64][]mValue[string]{}, lists: map[[2]int64][]mValue[int64]{},
			m: map[int64]map[string]*mValue[int64]{}, red: map[int64]*mValue[int64]{}, agg: map[int64]*mValue[both]{},
			deep: map[int64]*mValue[[]int64]{},
		}
		if len(ttl) > 0 {
			m.after, m.on = ttl[0].After.Milliseconds(), ttl[0].On
		}
		n := int64(0)
		seed := rapid.Uint64().Draw(t, "seed")
		next := func(k int64) int64 {
			seed = seed*6364136223846793005 + 1442695040888963407
			return int64(seed>>33) % k
		}
		keys := rapid.SampledFrom([]int64{1, 3, 40}).Draw(t, "keys")
		for range rapid.IntRange(1, 8).Draw(t, "rounds") {
			var events []Feed[order, order]
			m.now = s.now.UnixMilli()
			for range rapid.SampledFrom([]int{1, 5, 50, 300, 1000}).Draw(t, "commands") {
				o := order{Key: next(keys), Op: int(next(orderOps)), A: next(1000), B: next(1000), N: n}
				n++
				m.do(o)
				events = append(events, Feed[order, order]{Input: int(next(2)), Time: 1, A: o, B: o})
			}
			size := sizes.Draw(t, "size") + 1
			switch rapid.IntRange(0, 3).Draw(t, "stop") {
			case 0:
				s.Run(events, size)
				s.restart(rapid.IntRange(1, 4).Draw(t, "parallelism"))
			case 1:
				// A snapshot is alive while the state changes.
				snap, err := s.subs[0].s.c.State.Freeze(1 << 40)
				if err != nil {
					t.Fatal(err)
				}
				s.Run(events, size)
				snap.Release()
			default:
				s.Run(events, size)
			}
			s.now = s.now.Add(time.Duration(rapid.SampledFrom([]int{0, 1, 500, 3000, 9999, 20000, 50000}).Draw(t, "wait")) * time.Millisecond)
		}
		SameRows(t, "answers", s.Rows(), m.answer)
		if len(ttl) > 0 && backend != "forgetful" { // Trees take longer: see TestExpiredStateLeavesATree.
			s.now = s.now.Add(time.Hour)
			for range 200 {
				s.Run([]Feed[order, order]{{Mark: true, Time: s.wm + 1}}, 1)
			}
			if left := s.Entries(); left > 0 {
				t.Fatalf("%d entries are left an hour later", left)
			}
		}
		s.Close()
	})
}

// Without any input, expired state goes away too.
func TestSweepWithoutInput(t *testing.T) {
	key := func(k int64) int64 { return k }
	of := func(o *order) int64 { return o.Key }
	ttl := []TTL{{After: time.Millisecond}}
	s := StartScaled[int64, order, order, answer](t, "fs", 1, codec.Int64(), of, of, func() Operator { return obey(codec.Int64(), key, ttl) })
	var events []Feed[order, order]
	for i := range int64(5000) {
		o := order{Key: i, Op: int(i % orderOps), A: i, B: i}
		events = append(events, Feed[order, order]{A: o})
	}
	s.Run(events, 4096)
	if s.Entries() == 0 {
		t.Fatal("nothing was stored")
	}
	s.now = s.now.Add(time.Hour)
	if err := s.subs[0].s.await(t, "an empty state", func() bool { return s.Entries() == 0 }); err != nil {
		t.Fatal(err)
	}
	s.Close()
}

// What is wrong with states is said when the job is built.
func TestStateKindsProblems(t *testing.T) {
	s := NewStates(textCodec())
	s.Value[int64]("v", TTL{})
	s.Value[int64]("w", TTL{After: time.Hour}, TTL{After: time.Hour})
	s.List[int64]("l", TTL{After: time.Hour, On: OnReadAndWrite})
	s.Map[float64, int64]("m")
	s.Map[string, chan int]("n")
	s.Aggregating("a", Aggregation[int64, int64, int64]{})
	s.Broadcast[string, int64]("b")
	if len(s.Problems()) != 7 {
		t.Errorf("%s", strings.Join(s.Problems(), "\n"))
	}
	for _, d := range s.Decls() {
		if d.Kind == "" || d.Key == "" || d.Value == "" {
			t.Errorf("%+v", d)
		}
	}
}
