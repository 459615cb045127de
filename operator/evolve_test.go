package operator

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// stock1 and stock2 are the type of a state in two versions of a program.
type stock1 struct {
	Name   string
	Count  int32
	Unused []string
	Lots   []lot1
}

type lot1 struct{ Size int16 }

type stock2 struct {
	Count int64
	Lots  []lot2
	Title string `cairn:",alias=Name"`
	Since *int64
}

type lot2 struct {
	Place string
	Size  int32
}

func stockOf(a int64) stock1 {
	return stock1{fmt.Sprint("s", a), int32(-a), []string{"x"}, []lot1{{int16(a)}, {}}}
}

func (s stock1) next() stock2 {
	n := stock2{Count: int64(s.Count), Title: s.Name}
	for _, l := range s.Lots {
		n.Lots = append(n.Lots, lot2{Size: int32(l.Size)})
	}
	return n
}

// store is an operator with states of V and of N, a number. Op 0 fills them, op 1 says what they hold.
func store[V, N any](of func(a int64) V, number func(a int64) N, text func(*V) string, ttl []TTL) Operator {
	construct := func(s *States[int64]) CoHandler[int64, order, order, answer] {
		value, count := s.Value[V]("value", ttl...), s.Value[N]("number", ttl...)
		list, lists := s.List[V]("list", ttl...), s.Lists[N]("lists", ttl...)
		m, mn := s.Map[string, V]("map", ttl...), s.Map[int32, N]("numbers", ttl...)
		red := s.Reducing[V]("reducing", func(into, v *V) { *into = *v }, ttl...)
		do := func(c *KeyedContext[int64, answer], o *order) {
			say := func(what string, text string) { c.Emit(answer{o.Key, what + " " + text}) }
			v, n := of(o.A), number(o.A)
			switch o.Op {
			case 0:
				value.Set(v)
				count.Set(n)
				red.Add(&v)
				for i := range 3 + o.A%20 { // Some lists have parts, others only a head.
					v, n := of(o.A+i), number(o.A+i)
					list.Append(&v)
					lists.Append(i%2, &n)
					m.Put(fmt.Sprint("m", i%5), v)
					mn.Put(int32(i), n)
				}
			case 1:
				say("value", text(value.Peek()))
				got, _ := count.Get()
				say("number", fmt.Sprint(got))
				r, _ := red.Get()
				say("reducing", text(&r))
				for i, v := range list.All() {
					say("list", fmt.Sprint(i, text(v)))
				}
				for l := range int64(2) {
					for i, n := range lists.All(l) {
						say("lists", fmt.Sprint(l, i, *n))
					}
				}
				for k, v := range m.All() {
					say("map", k+text(v))
				}
				for k, n := range mn.All() {
					say("numbers", fmt.Sprint(k, *n))
				}
			}
		}
		return CoHandler[int64, order, order, answer]{Left: do, Right: do}
	}
	key := func(o *order) int64 { return o.Key }
	return CoProcess(key, key, codec.Int64(), construct)
}

func TestStatesOfOlderTypes(t *testing.T) {
	text := func(s *stock2) string { return fmt.Sprintf("%+v", *s) }
	v1 := func(ttl []TTL) Operator {
		return store(stockOf, func(a int64) int8 { return int8(a) }, func(s *stock1) string { n := s.next(); return text(&n) }, ttl)
	}
	v2 := func(ttl []TTL) Operator {
		return store(func(a int64) stock2 { return stockOf(a).next() }, func(a int64) int64 { return int64(int8(a)) }, text, ttl)
	}
	hour := []TTL{{After: time.Hour}}
	for _, c := range []struct {
		name, backend string
		ttl           []TTL
	}{{"plain", "fs", nil}, {"plain", "memory", nil}, {"ttl", "fs", hour}, {"ttl", "memory", hour}} {
		t.Run(c.name+"/"+c.backend, func(t *testing.T) {
			of := func(o *order) int64 { return o.Key }
			var fill, show []Feed[order, order]
			for k := range int64(60) {
				fill = append(fill, Feed[order, order]{A: order{Key: k, A: k * 3}})
				show = append(show, Feed[order, order]{A: order{Key: k, Op: 1}})
			}
			run := func(op func([]TTL) Operator) []answer {
				s := StartScaled[int64, order, order, answer](t, c.backend, 2, codec.Int64(), of, of, func() Operator { return v1(c.ttl) })
				s.Run(fill, 16)
				s.make = func() Operator { return op(c.ttl) }
				s.restart(3)
				s.restart(1) // What was read is written in the new types.
				s.Run(show, 16)
				defer s.Close()
				rows := s.Rows()
				slices.SortFunc(rows, func(a, b answer) int { return strings.Compare(fmt.Sprint(a), fmt.Sprint(b)) })
				return rows
			}
			want, got := run(v1), run(v2)
			if len(want) < 1000 || !reflect.DeepEqual(got, want) {
				for i := range want {
					if i >= len(got) || got[i] != want[i] {
						t.Fatalf("answer %d of %d: %v, want %v", i, len(want), got[min(i, len(got)-1)], want[i])
					}
				}
				t.Fatalf("%d answers, want %d", len(got), len(want))
			}
		})
	}
}

// What cannot be read is refused, and the error names what a user knows.
func TestStatesOfOtherTypes(t *testing.T) {
	hour := []TTL{{After: time.Hour}}
	type other struct {
		Count int8
		Name  string
	}
	old := store(stockOf, func(a int64) int32 { return int32(a) }, func(*stock1) string { return "" }, nil)
	aged := store(stockOf, func(a int64) int32 { return int32(a) }, func(*stock1) string { return "" }, hour)
	narrow := store(func(int64) other { return other{} }, func(a int64) int32 { return int32(a) }, func(*other) string { return "" }, nil)
	for _, c := range []struct {
		name     string
		old, now Operator
		words    []string
	}{
		{"narrower field", old, narrow, []string{"field Count was int32 and is int8", `operator "op", state "`}},
		{"ttl added", old, aged, []string{"the state had no TTL and has one"}},
		{"ttl removed", aged, old, []string{"the state had a TTL and has none"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			now := c.now
			k := startKeyed(t, "memory", &recorder[answer]{}, func() Operator { return c.old })
			b := record.PoolOf[order]().Get()
			b.Append(order{Key: 1, A: 5}, 1)
			k.push(b)
			handles := k.freeze()
			k.close()
			s := surround(&recorder[answer]{})
			backend, err := factories["memory"].New(context.Background(), statebackend.Params{Operator: "op", Groups: s.c.Groups, K: s.c.K, MaxConcurrent: 1})
			if err != nil {
				t.Fatal(err)
			}
			s.c.State = backend
			if err := now.Open(s.c); err != nil {
				t.Fatal(err)
			}
			err = backend.Restore(context.Background(), k.objects, handles)
			var je *job.Error
			if !errors.As(err, &je) || je.Class != job.ClassRefused {
				t.Errorf("error is %v", err)
			}
			for _, w := range c.words {
				if !strings.Contains(fmt.Sprint(err), w) {
					t.Errorf("error %v does not say %q", err, w)
				}
			}
			if err := errors.Join(now.Close(), backend.Close()); err != nil {
				t.Error(err)
			}
		})
	}
}

// older tells that what c1 encodes v1 as is read by c2 as v2.
func older[A, B any](t *testing.T, c1 codec.Codec[A], c2 codec.Codec[B], v1 A, v2 B, changes ...string) {
	t.Helper()
	src, err := c1.Append(nil, &v1)
	if err != nil {
		t.Fatal(err)
	}
	c, err := codec.Evolve(c2, c1.Schema())
	if err != nil {
		t.Fatal(err)
	}
	var got B
	if n, err := c.Decode(src, &got); err != nil || n != len(src) || !reflect.DeepEqual(got, v2) {
		t.Errorf("%v: %+v became %+v, want %+v: %d bytes of %d, %v", c1.Schema(), v1, got, v2, n, len(src), err)
	}
	if c.Schema() != c2.Schema() {
		t.Errorf("schema is %v, want %v", c.Schema(), c2.Schema())
	}
	again, err := c.Append(nil, &v2)
	want, err2 := c2.Append(nil, &v2)
	if err := errors.Join(err, err2); err != nil || string(again) != string(want) {
		t.Errorf("%+v is encoded as %x, want %x: %v", v2, again, want, err)
	}
	list, err := Changes(c1.Schema(), c2.Schema())
	var texts []string
	for _, c := range list {
		texts = append(texts, c.String())
	}
	if err != nil || !slices.Equal(texts, changes) {
		t.Errorf("%v to %v: changes %q, %v, want %q", c1.Schema(), c2.Schema(), texts, err, changes)
	}
	// The text of the schema, as checkpoints keep it, is enough.
	parsed, err := codec.ParseSchema(c1.Schema().String())
	if err != nil || parsed != c1.Schema() {
		t.Errorf("%v is read as %v: %v", c1.Schema(), parsed, err)
	}
}

func TestHoldersEvolve(t *testing.T) {
	c1, c2 := codec.MustStruct[lot1](), codec.MustStruct[lot2]()
	a, b := lot1{7}, lot2{Size: 7}
	changes := []string{"field Place added", "field Size widened from int16 to int32"}
	older(t, codec.Codec[aged[lot1]](agedCodec[lot1]{c1}), codec.Codec[aged[lot2]](agedCodec[lot2]{c2}), aged[lot1]{val: a, from: 5}, aged[lot2]{val: b, from: 5}, changes...)
	older(t, codec.Codec[session[lot1]](sessionCodec[lot1]{c1}), codec.Codec[session[lot2]](sessionCodec[lot2]{c2}),
		session[lot1]{First: 1, Last: 4, Next: 5, More: 2, Fired: true, Acc: a}, session[lot2]{First: 1, Last: 4, Next: 5, More: 2, Fired: true, Acc: b}, changes...)
	older(t, codec.Codec[firing[lot1]](firingCodec[lot1]{c1}), codec.Codec[firing[lot2]](firingCodec[lot2]{c2}),
		firing[lot1]{Count: 1, Has: true, Acc: a}, firing[lot2]{Count: 1, Has: true, Acc: b}, changes...)
	older(t, codec.Codec[chunkOf[[8]lot1]](paneCodec[lot1, [8]lot1]{c1, 1000}), codec.Codec[chunkOf[[8]lot2]](paneCodec[lot2, [8]lot2]{c2, 1000}),
		chunkOf[[8]lot1]{Has: 5, Acc: [8]lot1{a, {}, a}}, chunkOf[[8]lot2]{Has: 5, Acc: [8]lot2{b, {}, b}}, changes...)
	text := textCodec()
	older(t, codec.Codec[mapEntry[string, lot1]](mapEntryCodec[string, lot1]{text, c1}), codec.Codec[mapEntry[string, lot2]](mapEntryCodec[string, lot2]{text, c2}),
		mapEntry[string, lot1]{val: a, prev: "p", hasPrev: true}, mapEntry[string, lot2]{val: b, prev: "p", hasPrev: true}, changes...)
	older(t, codec.Codec[aged[mapEntry[string, lot1]]](agedCodec[mapEntry[string, lot1]]{mapEntryCodec[string, lot1]{text, c1}}),
		codec.Codec[aged[mapEntry[string, lot2]]](agedCodec[mapEntry[string, lot2]]{mapEntryCodec[string, lot2]{text, c2}}),
		aged[mapEntry[string, lot1]]{from: 9, val: mapEntry[string, lot1]{val: a, next: "n", hasNext: true}},
		aged[mapEntry[string, lot2]]{from: 9, val: mapEntry[string, lot2]{val: b, next: "n", hasNext: true}}, changes...)
	older(t, codec.Codec[listHead[aged[int32]]](headCodec[aged[int32]]{agedCodec[int32]{codec.Int32()}}), codec.Codec[listHead[aged[int64]]](headCodec[aged[int64]]{agedCodec[int64]{codec.Int64()}}),
		listHead[aged[int32]]{first: 0, next: 1, tail: [partLen]aged[int32]{{val: -3, from: 2}}}, listHead[aged[int64]]{first: 0, next: 1, tail: [partLen]aged[int64]{{val: -3, from: 2}}},
		"value widened from int32 to int64")
	older(t, codec.Codec[lot2](sharing[lot2]{c2}), codec.Codec[lot2](sharing[lot2]{c2}), b, b)
	older(t, c1, codec.Codec[lot2](sharing[lot2]{c2}), a, b, changes...)
}

func TestHoldersRefuse(t *testing.T) {
	text := textCodec()
	c1, c2 := codec.MustStruct[lot1](), codec.MustStruct[lot2]()
	for _, c := range []struct {
		err   error
		words []string
	}{
		{evolveError(agedCodec[lot1]{c1}, agedCodec[lot2]{c2}), []string{"field Size was int32 and is int16"}},
		{evolveError(paneCodec[lot1, [8]lot1]{c1, 1000}, paneCodec[lot1, [8]lot1]{c1, 500}), []string{"was panes of 8x500ms and is of 8x1000ms", "size and the slide"}},
		{evolveError(paneCodec[lot1, [8]lot1]{c1, 1000}, paneCodec[lot1, [1]lot1]{c1, 1000}), []string{"1x1000ms"}},
		{evolveError(mapEntryCodec[int64, lot1]{codec.Int64(), c1}, mapEntryCodec[string, lot1]{text, c1}), []string{"field [key] was string and is int64"}},
		{evolveError(mapEntryCodec[int64, lot1]{codec.Int64(), c1}, mapEntryCodec[int32, lot1]{codec.Int32(), c1}), []string{"[key]"}},
		{evolveError(mapHeadCodec[int64]{codec.Int64()}, mapHeadCodec[int32]{codec.Int32()}), []string{"field [key] was int32 and is int64"}},
		{evolveError(agedCodec[lot1]{c1}, c1), []string{"had no TTL"}},
		{evolveError(c1, agedCodec[lot1]{c1}), []string{"had a TTL"}},
	} {
		var e *codec.IncompatibleError
		if !errors.As(c.err, &e) {
			t.Errorf("error is %v", c.err)
		}
		for _, w := range c.words {
			if !strings.Contains(fmt.Sprint(c.err), w) {
				t.Errorf("error %v does not say %q", c.err, w)
			}
		}
	}
}

func evolveError[A, B any](now codec.Codec[A], old codec.Codec[B]) error {
	_, err := codec.Evolve(now, old.Schema())
	_, cerr := Changes(old.Schema(), now.Schema())
	if fmt.Sprint(err) != fmt.Sprint(cerr) {
		return fmt.Errorf("Evolve and Changes differ: %w", errors.Join(err, cerr))
	}
	return err
}

// held is an operator with a list of its own and one with broadcast state, which they give out at their ends.
func held[V any](of func(int64) V, text func(V) string) (list, broadcast func() Operator) {
	list = func() Operator {
		return &plainReady{ProcessPlain(func(s *OperatorStates) PlainHandler[int64, string] {
			l := s.List[V]("held")
			return PlainHandler[int64, string]{
				Record: func(_ *PlainContext[string], v *int64) { l.Append(of(*v)) },
				End: func(c *PlainContext[string]) {
					for _, v := range l.Values() {
						c.Emit(text(v))
					}
				},
			}
		})}
	}
	key := func(v *int64) int64 { return *v }
	broadcast = func() Operator {
		return ProcessBroadcast(key, codec.Int64(), func(s *States[int64]) BroadcastHandler[int64, int64, int64, string] {
			b := s.Broadcast[string, V]("held")
			return BroadcastHandler[int64, int64, int64, string]{
				Record: func(c *KeyedContext[int64, string], v *int64) {
					for k, v := range b.All() {
						c.Emit(k + text(v))
					}
				},
				Broadcast: func(_ *BroadcastContext[string], v *int64) { b.Put(fmt.Sprint(*v), of(*v)) },
			}
		})
	}
	return list, broadcast
}

func TestOperatorStateOfOlderTypes(t *testing.T) {
	text := func(s stock2) string { return fmt.Sprintf("%d %s %v", s.Count, s.Title, s.Lots) }
	list1, broadcast1 := held(stockOf, func(s stock1) string { return text(s.next()) })
	list2, broadcast2 := held(func(a int64) stock2 { return stockOf(a).next() }, text)
	each := func(v *int64) int64 { return *v }
	var events, show []Feed[int64, int64]
	var want, wantShow []string
	for i := range int64(50) {
		events = append(events, Feed[int64, int64]{Time: i, A: i, Input: 0})
		want = append(want, text(stockOf(i).next()))
	}
	s := StartScaled[int64, int64, int64, string](t, "fs", 2, codec.Int64(), each, each, list1)
	s.Run(events, 7)
	s.make = list2
	s.restart(3)
	s.restart(2)
	s.end()
	SameRows(t, "list", s.Rows(), want)
	s.Close()

	for i := range events {
		events[i].Input, events[i].B = 1, events[i].A
		wantShow = append(wantShow, fmt.Sprint(i)+want[i])
	}
	show = append(show, Feed[int64, int64]{Time: 100, A: 5})
	s = StartScaled[int64, int64, int64, string](t, "fs", 2, codec.Int64(), each, nil, broadcast1)
	s.Run(events, 7)
	s.make = broadcast2
	s.restart(3)
	s.Run(show, 7)
	SameRows(t, "broadcast state", s.Rows(), wantShow)
	s.Close()

	listN, broadcastN := held(func(int64) string { return "" }, func(s string) string { return s })
	for _, c := range []struct {
		op     Operator
		schema codec.Schema
	}{
		{listN(), (&OperatorList[stock1]{codec: codec.MustStruct[stock1]()}).schema()},
		{broadcastN(), (&BroadcastState[string, stock1]{key: textCodec(), val: codec.MustStruct[stock1]()}).schema()},
		{broadcastN(), (&BroadcastState[int64, string]{key: codec.Int64(), val: textCodec()}).schema()},
	} {
		su := surround(&recorder[string]{})
		su.c.List, su.c.Items = map[string][][]byte{"held": {{1, 2}}}, map[string]string{"held": c.schema.String()}
		err := c.op.Open(su.c)
		if job.FailureOf("", "", err).Class != job.ClassRefused || !strings.Contains(err.Error(), `operator "op", state "held"`) {
			t.Errorf("%v: %v", c.schema, err)
		}
		if err := c.op.Close(); err != nil {
			t.Error(err)
		}
	}
}

func TestCallsOfOlderTypes(t *testing.T) {
	old, now := codec.MustStruct[stock1](), codec.MustStruct[stock2]()
	v := stockOf(7)
	item, err := encodeCall(old, &v, 5)
	if err != nil {
		t.Fatal(err)
	}
	open := func(schema string) (*asyncOp[stock2, int], error) {
		s := surround(&recorder[int]{})
		s.c.Restored, s.c.List, s.c.Items = true, map[string][][]byte{CallsState: {item}}, map[string]string{CallsState: schema}
		op := Async(AsyncOptions{}, AsyncCalls[stock2, int]{}, now).(*asyncOp[stock2, int])
		return op, op.Open(s.c)
	}
	op, err := open(CallSchema(old.Schema()).String())
	if err != nil {
		t.Fatal(err)
	}
	if op.rest.Len() != 1 || !reflect.DeepEqual(op.rest.Rows[0], v.next()) {
		t.Errorf("records under way are %+v", op.rest.Rows)
	}
	for _, schema := range []string{"", "call:string", "call:" + now.Schema().String()} {
		if _, err := open(schema); job.FailureOf("", "", err).Class != job.ClassRefused {
			t.Errorf("records under way of %q: %v", schema, err)
		}
	}
}
