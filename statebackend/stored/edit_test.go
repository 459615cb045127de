package stored_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/stored"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/streamtest"
	"github.com/cairnstream/cairn/watermark"
)

// event is a record of the job of these tests: what to do with a key, of which the results tell everything.
type event struct {
	Key string
	Do  string // add, or tell
	N   int64
}

// told is the result of tell.
type told struct {
	Key   string
	Value int64
	Has   bool
	Map   string
	List  []int64
	Old   int64 // Of the state with a TTL.
	Fired int
}

// build is a job with a value, a map, a list, each with and without a TTL, timers, broadcast state and windows.
func build(in operator.Source[event], rules operator.Source[string], out operator.Sink[told], windows operator.Sink[string]) func(j *stream.Job) {
	return func(j *stream.Job) {
		events := j.Source("events", in).Timestamps(func(e *event) time.Time { return time.Unix(e.N, 0) }, watermark.Bounded(time.Hour))
		keyed := events.KeyBy(func(e *event) string { return e.Key })
		keyed.ConnectBroadcast(j.Source("rules", rules)).Process("keep", func(s *operator.States[string]) operator.BroadcastHandler[string, event, string, told] {
			ttl := operator.TTL{After: 24 * time.Hour}
			v := s.Value[int64]("value")
			m := s.Map[string, int64]("map")
			l := s.List[int64]("list")
			av := s.Value[int64]("aged-value", ttl)
			am := s.Map[string, int64]("aged-map", ttl)
			al := s.List[int64]("aged-list", ttl)
			fired := s.Value[int64]("fired")
			factor := s.Broadcast[string, int64]("factors")
			return operator.BroadcastHandler[string, event, string, told]{
				Record: func(c *operator.KeyedContext[string, told], e *event) {
					if e.Do == "add" {
						*v.Ref() += e.N
						*av.Ref() += e.N
						for _, m := range []*operator.MapState[string, int64]{m, am} {
							p, _ := m.Ref(fmt.Sprint("m", e.N))
							*p++
						}
						l.Append(&e.N)
						al.Append(&e.N)
						c.SetTimer(1000 * e.N)
						return
					}
					t := told{Key: e.Key}
					t.Value, t.Has = v.Get()
					t.Old, _ = av.Get()
					for _, m := range []*operator.MapState[string, int64]{m, am} {
						t.Map += "|"
						for k, p := range m.All() {
							t.Map += fmt.Sprintf("%s=%d ", k, *p)
						}
					}
					for _, l := range []*operator.ListState[int64]{l, al} {
						for _, p := range l.All() {
							t.List = append(t.List, *p)
						}
						t.List = append(t.List, -1)
					}
					for k, f := range factor.All() {
						t.Map += fmt.Sprintf("; %s %d", k, f)
					}
					n, _ := fired.Get()
					t.Fired = int(n)
					c.Emit(t)
				},
				Broadcast: func(_ *operator.BroadcastContext[told], r *string) { factor.Put(*r, int64(len(*r))) },
				Timer:     func(*operator.KeyedContext[string, told]) { *fired.Ref()++ },
			}
		}).Sink("out", out)
		keyed.Window("counts", window.Tumbling(time.Minute)).Aggregate(window.Functions[string, event, int64, string]{
			AddTo:    func(n *int64, _ *event) { *n++ },
			ResultOf: func(p window.Pane[string], n *int64) string { return fmt.Sprintf("%s %d %d", p.Key, p.Start/60000, *n) },
		}).Sink("windows", windows)
	}
}

// bench runs the job of these tests.
type bench struct {
	*streamtest.Harness
	in      *streamtest.Input[event]
	rules   *streamtest.Input[string]
	out     *streamtest.Output[told]
	windows *streamtest.Output[string]
	store   *mem.Store
}

func newBench(h *streamtest.Harness) *bench {
	b := &bench{h, h.Input[event](), h.Input[string](), h.Output[told](), h.Output[string](), mem.New("saved")}
	h.Set("parallelism", "3")
	h.Start(build(b.in, b.rules, b.out, b.windows))
	return b
}

func (b *bench) add(keys int) {
	b.rules.Push("one", "three")
	for i := range keys {
		for n := range int64(1 + i%11) { // Lists of up to 11 elements.
			b.in.Push(event{fmt.Sprint("k", i), "add", n})
		}
	}
}

func (b *bench) tell(key string) string {
	b.in.Push(event{Key: key, Do: "tell"})
	rows := b.out.Rows()
	t := rows[len(rows)-1]
	return fmt.Sprintf("%s %v %v %d%s %v fired %d", t.Key, t.Value, t.Has, t.Old, t.Map, t.List, t.Fired)
}

func edited(t rapid.TB, store *mem.Store, key, to string, lines ...string) string {
	t.Helper()
	s, err := stored.Open(ctx, store, key, stored.Options{})
	if err != nil {
		t.Fatal(err)
	}
	e := stored.NewEditor(s, time.Now())
	for _, line := range lines {
		c, err := s.ParseChange([]byte(line))
		if err == nil {
			err = e.Apply(c)
		}
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
	}
	key, err = e.Write(ctx, store, to)
	if err != nil {
		t.Fatal(err)
	}
	return key
}

// What was set and removed is what the program finds when it is restored, whatever the kind of state, and all else is as it was.
func TestEditedStatesAreRestored(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		b := newBench(h)
		b.add(60)
		before := b.Save(b.Snapshot(), b.store, "c")
		b.tell("k10")
		after := edited(t, b.store, before, "sp/1",
			`{"operator":"keep","state":"value","key":"k10","value":4711}`,
			`{"operator":"keep","state":"value","key":"new","value":1}`,
			`{"operator":"keep","state":"value","key":"k3","delete":true}`,
			`{"operator":"keep","state":"aged-value","key":"k10","value":12}`,
			`{"operator":"keep","state":"map","key":"k10","map_key":"m3","value":33}`,
			`{"operator":"keep","state":"map","key":"k10","map_key":"zz","value":1}`,
			`{"operator":"keep","state":"map","key":"k10","map_key":"m10","delete":true}`,
			`{"operator":"keep","state":"map","key":"k10","map_key":"m0","delete":true}`,
			`{"operator":"keep","state":"map","key":"k21","delete":true}`,
			`{"operator":"keep","state":"map","key":"new","map_key":"a","value":1}`,
			`{"operator":"keep","state":"aged-map","key":"k10","map_key":"m5","delete":true}`,
			`{"operator":"keep","state":"aged-map","key":"new","map_key":"b","value":2}`,
			`{"operator":"keep","state":"list","key":"k10","value":[9,8,7,6,5,4,3,2,1]}`,
			`{"operator":"keep","state":"list","key":"k21","delete":true}`,
			`{"operator":"keep","state":"list","key":"new","value":[1,2,3,4]}`,
			`{"operator":"keep","state":"aged-list","key":"new","value":[{"from":"2100-01-01T00:00:00Z","value":5}]}`,
			`{"operator":"keep","state":"factors","map_key":"one","value":11}`,
			`{"operator":"keep","state":"factors","map_key":"three","delete":true}`,
			`{"operator":"keep","state":"factors","map_key":"five","value":5}`,
			`{"operator":"keep","state":"timers","key":"new","time":"1970-01-01T00:00:02Z","value":true}`,
			`{"operator":"counts","state":"windows","key":"k1","delete":true}`,
		)
		for _, parallelism := range []int{3, 2} {
			b.Restore(b.Load(b.store, after), parallelism)
			for key, want := range map[string]string{
				"k10": "k10 4711 true 12|zz=1 m9=1 m8=1 m7=1 m6=1 m5=1 m4=1 m3=33 m2=1 m1=1 |m10=1 m9=1 m8=1 m7=1 m6=1 m4=1 m3=1 m2=1 m1=1 m0=1 ; one 11; five 5 [9 8 7 6 5 4 3 2 1 -1 0 1 2 3 4 5 6 7 8 9 10 -1] fired 0",
				"k3":  "k3 0 false 6|m3=1 m2=1 m1=1 m0=1 |m3=1 m2=1 m1=1 m0=1 ; one 11; five 5 [0 1 2 3 -1 0 1 2 3 -1] fired 0",
				"k21": "k21 55 true 55||m10=1 m9=1 m8=1 m7=1 m6=1 m5=1 m4=1 m3=1 m2=1 m1=1 m0=1 ; one 11; five 5 [-1 0 1 2 3 4 5 6 7 8 9 10 -1] fired 0",
				"new": "new 1 true 0|a=1 |b=2 ; one 11; five 5 [1 2 3 4 -1 5 -1] fired 0",
				"k11": "k11 0 true 0|m0=1 |m0=1 ; one 11; five 5 [0 -1 0 -1] fired 0",
			} {
				if got := b.tell(key); got != want {
					t.Errorf("parallelism %d: %s\ngot  %s\nwant %s", parallelism, key, got, want)
				}
			}
		}
		// The restored job changes what was edited like anything else, and a checkpoint of it is whole.
		b.in.Push(event{"k10", "add", 1}, event{"new", "add", 1}, event{"k21", "add", 5})
		if got, want := b.tell("new"), "new 2 true 1|m1=1 a=1 |m1=1 b=2 ; one 11; five 5 [1 2 3 4 1 -1 5 1 -1] fired 0"; got != want {
			t.Errorf("got  %s\nwant %s", got, want)
		}
		s, err := stored.Open(ctx, b.store, b.Save(b.Snapshot(), b.store, "again"), stored.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range s.States() {
			err := st.Each(ctx, st.All(), func(e *stored.Entry) error {
				if st.Kind != stored.Map {
					return nil
				}
				_, err := st.Get(ctx, bytes.Clone(e.Key)) // Follows the entries of the map.
				return err
			})
			if err != nil {
				t.Error(err)
			}
		}
		b.EndOfData()
		rows := b.windows.Rows()
		if slices.ContainsFunc(rows, func(r string) bool { return strings.HasPrefix(r, "k1 ") }) || len(rows) == 0 {
			t.Errorf("windows: %v", rows)
		}
	})
}

// Everything that no change names is the same, byte for byte, also in states that were written anew; and nothing in the new
// folder refers to what is outside.
func TestEditorCarriesTheRestOver(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		b := newBench(h)
		b.add(3000)
		before := b.Save(b.Snapshot(), b.store, "c")
		after := edited(t, b.store, before, "sp/1",
			`{"operator":"keep","state":"value","key":"k10","value":4711}`,
			`{"operator":"keep","state":"map","key":"k10","map_key":"zz","value":1}`,
			`{"operator":"keep","state":"list","key":"k7","value":[1,2,3,4,5]}`,
		)
		// Copied to another place, with the rest of the store gone.
		elsewhere := mem.New("elsewhere")
		var objects int
		for info, err := range b.store.List(ctx, "sp/1/") {
			if err != nil {
				t.Fatal(err)
			}
			data, err := blob.ReadAll(ctx, b.store, info.Key, 1<<30)
			if err == nil {
				err = blob.PutBytes(ctx, elsewhere, "other/place/"+strings.TrimPrefix(info.Key, "sp/1/"), data)
			}
			if err != nil {
				t.Fatal(err)
			}
			objects++
		}
		if objects < 2 {
			t.Errorf("%d objects", objects)
		}
		old, err := stored.Open(ctx, b.store, before, stored.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s, err := stored.Open(ctx, elsewhere, "other/place/_metadata", stored.Options{})
		if err != nil {
			t.Fatal(err)
		}
		st, err := snapshot.NewStore(elsewhere, "c")
		if err == nil {
			err = st.VerifyManifest(ctx, s.Manifest)
		}
		if err != nil {
			t.Fatal(err)
		}
		if s.Manifest.Derived == "" || after != "sp/1/_metadata" {
			t.Errorf("%s, derived from %q", after, s.Manifest.Derived)
		}
		var got []string
		err = stored.Diff(ctx, old, s, func(c stored.EntryChange) error {
			e := c.New
			r, err := e.Record()
			if err != nil {
				return err
			}
			b, err := codec.AppendJSON(nil, r)
			got = append(got, fmt.Sprintf("%v %s", c.Old != nil, b))
			return err
		}, func(d stored.Difference) error {
			if d.Note != "" || d.Removed > 0 {
				t.Errorf("%+v", d)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		want := []string{
			`true {"operator":"keep","state":"list","key":"k7","value":[1,2,3,4,5]}`,
			`false {"operator":"keep","state":"map","key":"k10","map_key":"zz","value":1}`,
			`true {"operator":"keep","state":"value","key":"k10","value":4711}`,
		}
		if !slices.Equal(got, want) {
			t.Errorf("differences:\n%s", strings.Join(got, "\n"))
		}
		for name, op := range old.Manifest.Operators {
			for i, sub := range op.Subtasks {
				n := s.Manifest.Operators[name].Subtasks[i]
				if n.Watermark != sub.Watermark || n.EndOfData != sub.EndOfData {
					t.Errorf("operator %s, subtask %d: %+v was %+v", name, i, n, sub)
				}
			}
		}
	})
}

// The state of a job that has not run yet is made from files, and a typed backend reads it.
func TestBlank(t *testing.T) {
	schema := func(text string) codec.Schema {
		s, err := codec.ParseSchema(text)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s, err := stored.Blank("job", 16, map[string]int{"op": 3}, []stored.Declaration{
		{Operator: "op", Name: "s", Kind: stored.Value, Key: schema("int64"), Value: schema("string")},
		{Operator: "op", Name: "m", Kind: stored.Map, Key: schema("int64"), MapKey: schema("string"), Value: schema("int64"), TTL: true},
		{Operator: "other", Name: "l", Kind: stored.List, Key: schema("string"), Value: schema("string")},
		{Operator: "other", Name: "timers", Kind: stored.Timers, Key: schema("string")},
	})
	if err != nil {
		t.Fatal(err)
	}
	e := stored.NewEditor(s, time.Unix(1e9, 0))
	st, err := s.State("op", "s")
	if err != nil {
		t.Fatal(err)
	}
	for i := range int64(1000) {
		c, err := stored.SetValue(st, codec.Int64(), codec.String(), i, fmt.Sprint("v", i))
		if err == nil {
			err = e.Apply(c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := stored.SetValue(st, codec.String(), codec.String(), "k", "v"); err == nil || !strings.Contains(err.Error(), "its keys are of int64, not of string") {
		t.Errorf("another key: %v", err)
	}
	for _, line := range []string{
		`{"operator":"op","state":"m","key":7,"map_key":"a","value":1,"written":"2001-01-01T00:00:00Z"}`,
		`{"operator":"other","state":"l","key":"x","value":["a","b","c","d","e","f"]}`,
		`{"operator":"other","state":"timers","key":"x","time":5,"value":true}`,
	} {
		c, err := s.ParseChange([]byte(line))
		if err == nil {
			err = e.Apply(c)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	store := mem.New("m")
	key, err := e.Write(ctx, store, "boot")
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Apply(stored.Change{State: st}); err == nil {
		t.Error("a change after the savepoint was written")
	}
	m, err := snapshot.LoadManifest(ctx, store, key)
	if err != nil {
		t.Fatal(err)
	}
	b, err := fs.Factory{}.New(ctx, statebackend.Params{Operator: "op", Groups: job.GroupRange{First: 0, Last: 15}, K: 16, MaxConcurrent: 1})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	hash := codec.NewHasher(codec.Int64())
	v, err := statebackend.OpenValue(b, statebackend.ValueDesc[int64, string]{
		Name: "s", Key: codec.Int64(), Value: codec.String(), Hash: func(k *int64) (uint64, uint64) { h := hash(k); return h, h },
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := b.Restore(ctx, snapshot.NewReader(store), snapshot.Keyed(m.Operators["op"])); err != nil {
		t.Fatal(err)
	}
	for i := range int64(1000) {
		if got := v.Get(hash(&i), hash(&i), &i); got == nil || *got != fmt.Sprint("v", i) {
			t.Fatalf("key %d: %v", i, got)
		}
	}
	again, err := stored.Open(ctx, store, key, stored.Options{})
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, st := range again.States() {
		if st.Name == "s" {
			continue
		}
		if err := st.Each(ctx, st.All(), func(e *stored.Entry) error {
			r, err := e.Record()
			if err != nil {
				return err
			}
			b, err := codec.AppendJSON(nil, r)
			lines = append(lines, string(b))
			return err
		}); err != nil {
			t.Fatal(err)
		}
	}
	want := `{"operator":"op","state":"m","key":7,"map_key":"a","written":"2001-01-01T00:00:00Z","value":1}
{"operator":"other","state":"l","key":"x","value":["a","b","c","d","e","f"]}
{"operator":"other","state":"timers","key":"x","time":"1970-01-01T00:00:00.005Z","value":true}`
	if got := strings.Join(lines, "\n"); got != want {
		t.Errorf("got:\n%s\nwant:\n%s", got, want)
	}
}

func TestEditorRefuses(t *testing.T) {
	streamtest.Run(t, func(t *testing.T, h *streamtest.Harness) {
		b := newBench(h)
		b.add(3)
		key := b.Save(b.Snapshot(), b.store, "c")
		s, err := stored.Open(ctx, b.store, key, stored.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for line, want := range map[string]string{
			`{"operator":"keep","state":"value","key":"k","value":"x"}`:                   `state "value": value: encode int64: want a whole number`,
			`{"operator":"keep","state":"value","key":"k"}`:                               `value is missing`,
			`{"operator":"keep","state":"value","value":1}`:                               `key is missing`,
			`{"operator":"keep","state":"value","key":"k","map_key":"m","value":1}`:       `a value has no map_key`,
			`{"operator":"keep","state":"value","key":"k","value":1,"written":5}`:         `a value has no written`,
			`{"operator":"keep","state":"value","key":"k","value":1,"vlaue":1}`:           `at "/vlaue": unknown object member name`,
			`{"operator":"keep","state":"value","key":"k","value":1} {}`:                  `after top-level value`,
			`{"operator":"keep","state":"map","key":"k","value":1}`:                       `map_key is missing`,
			`{"operator":"keep","state":"list","key":"k","value":[]}`:                     `an empty list is none: delete it`,
			`{"operator":"keep","state":"list","key":"k","value":[1,"x"]}`:                `element 1: encode int64`,
			`{"operator":"keep","state":"timers","key":"k","value":true}`:                 `time is missing`,
			`{"operator":"keep","state":"timers","key":"k","time":"soon","value":true}`:   `time: want a time such as`,
			`{"operator":"keep","state":"nothing","key":"k","value":1}`:                   `state "nothing" of operator "keep" not found: there are`,
			`{"operator":"keep","state":"value","key":"k","value":1,"delete":true}`:       `a delete of a value has no value`,
			`{"operator":"events","state":"splits","subtask":0,"index":0,"value":"AA=="}`: `carried over as it is`,
			`{"state":"value","key":"k","value":1}`:                                       `operator or state is missing`,
			`{"operator":"counts","state":"windows","key":"k","value":1}`:                 `window is missing`,
			`[1]`: `at "": `,
		} {
			if _, err := s.ParseChange([]byte(line)); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", line, err, want)
			}
		}
		// A folder that is in use, and a store that fails half-way: nothing is left behind.
		e := stored.NewEditor(s, time.Now())
		if _, err := e.Write(ctx, b.store, "c"); !errors.Is(err, blob.ErrExists) {
			t.Errorf("a folder in use: %v", err)
		}
		if _, err := e.Write(ctx, b.store, "../x"); err == nil {
			t.Error("a folder outside is accepted")
		}
		failing := mem.New("failing")
		if err := failing.PutIfAbsent(ctx, "sp/_metadata/x", []byte("in the way")); err != nil {
			t.Fatal(err)
		}
		if _, err := e.Write(ctx, failing, "sp"); !errors.Is(err, blob.ErrExists) {
			t.Errorf("%v", err)
		}
	})
}

// FuzzChange reads lines that are anything, and applies what is read.
func FuzzChange(f *testing.F) {
	text := func(s string) codec.Schema {
		p, err := codec.ParseSchema(s)
		if err != nil {
			f.Fatal(err)
		}
		return p
	}
	s, err := stored.Blank("job", 4, nil, []stored.Declaration{
		{Operator: "op", Name: "s", Kind: stored.Value, Key: text("int64"), Value: text(`struct:{"map":"time","key":"string"}`)},
		{Operator: "op", Name: "m", Kind: stored.Map, Key: text("string"), MapKey: text("string"), Value: text("json"), TTL: true},
		{Operator: "op", Name: "l", Kind: stored.List, Key: text("string"), Value: text("float64"), TTL: true},
		{Operator: "op", Name: "timers", Kind: stored.Timers, Key: text("string")},
		{Operator: "op", Name: "windows", Kind: stored.Windows, Key: text("string"), Value: text("session:int64")},
	})
	if err != nil {
		f.Fatal(err)
	}
	f.Add([]byte(`{"operator":"op","state":"s","key":1,"value":{"a":"2001-01-01T00:00:00Z"}}`))
	f.Add([]byte(`{"operator":"op","state":"m","key":"k","map_key":"a","value":{},"written":1}`))
	f.Add([]byte(`{"operator":"op","state":"l","key":"k","list":3,"value":[{"from":1,"value":"NaN"}]}`))
	f.Add([]byte(`{"operator":"op","state":"timers","key":"k","time":5,"value":true}`))
	f.Add([]byte(`{"operator":"op","state":"windows","key":"k","place":0,"delete":true}`))
	f.Fuzz(func(t *testing.T, line []byte) {
		c, err := s.ParseChange(line)
		if err != nil {
			return
		}
		if !json.Valid(line) {
			t.Fatalf("%q is read", line)
		}
		e := stored.NewEditor(s, time.Unix(1, 0))
		if err := e.Apply(c); err != nil {
			t.Fatalf("%q is read, but not applied: %v", line, err)
		}
		store := mem.New("m")
		key, err := e.Write(ctx, store, "sp")
		if err != nil {
			if strings.Contains(err.Error(), "sessions") {
				return
			}
			t.Fatal(err)
		}
		again, err := stored.Open(ctx, store, key, stored.Options{})
		if err != nil {
			t.Fatal(err)
		}
		for _, st := range again.States() {
			if err := st.Each(ctx, st.All(), func(e *stored.Entry) error {
				_, err := e.Record()
				return err
			}); err != nil {
				t.Fatal(err)
			}
		}
	})
}
