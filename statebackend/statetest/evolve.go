package statetest

import (
	"context"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Bill1 is the first of three versions of one type of a program, with Bill2 and Bill3.
type Bill1 struct {
	Name  string
	Count int32
	Paid  bool
	Lines []BillLine1
	Index map[string]BillLine1
}

// BillLine1 is part of Bill1.
type BillLine1 struct {
	SKU    string
	Number int16
}

// Bill2 is Bill1 with a field of another name, one that is wider, one dropped, one added, in another order, and
// likewise in what it holds.
type Bill2 struct {
	Count int64
	Title string `cairn:",alias=Name"`
	Lines []BillLine2
	Tags  []string
	Index map[string]BillLine2
}

// BillLine2 is part of Bill2.
type BillLine2 struct {
	Number int32
	SKU    string
	Price  float64
}

// Bill3 has pointers where Bill2 has none.
type Bill3 struct {
	Title string `cairn:",alias=Name"`
	Count *int64
	Lines []*BillLine3
	Index map[string]BillLine3
	New   uint16
}

// BillLine3 is part of Bill3.
type BillLine3 struct{ Number int64 }

func bills[V any]() statebackend.ValueDesc[string, V] {
	return statebackend.ValueDesc[string, V]{Name: "bills", Key: codec.String(), Value: codec.MustStruct[V](), Hash: hashText}
}

func totals[V any](c codec.Codec[V]) statebackend.ValueDesc[int64, V] {
	return statebackend.ValueDesc[int64, V]{Name: "totals", Key: codec.Int64(), Value: c, Hash: hashInt}
}

const evolved = 400

func bill1(i int64) Bill1 {
	line := BillLine1{fmt.Sprint("sku-", i), int16(-i)}
	b := Bill1{Name: fmt.Sprint("bill-", i), Count: int32(i - 10), Paid: i%2 == 0}
	if i%3 > 0 {
		b.Lines = []BillLine1{line, {"", 5}}
	}
	if i%5 > 0 {
		b.Index = map[string]BillLine1{"a": line}
	}
	return b
}

func bill2(b Bill1) Bill2 {
	c := Bill2{Count: int64(b.Count), Title: b.Name}
	for _, l := range b.Lines {
		c.Lines = append(c.Lines, BillLine2{Number: int32(l.Number), SKU: l.SKU})
	}
	for k, l := range b.Index {
		if c.Index == nil {
			c.Index = map[string]BillLine2{}
		}
		c.Index[k] = BillLine2{Number: int32(l.Number), SKU: l.SKU}
	}
	return c
}

func bill3(b Bill2) Bill3 {
	c := Bill3{Title: b.Title, Count: &b.Count}
	for _, l := range b.Lines {
		c.Lines = append(c.Lines, &BillLine3{int64(l.Number)})
	}
	for k, l := range b.Index {
		if c.Index == nil {
			c.Index = map[string]BillLine3{}
		}
		c.Index[k] = BillLine3{int64(l.Number)}
	}
	return c
}

// versioned are the states of one subtask in one version of the program.
type versioned[V, N any] struct {
	b      statebackend.Backend
	bills  keyed[string, V]
	totals keyed[int64, N]
}

// openVersion opens the states, before or after they are restored.
func openVersion[V, N any](s suite, t testing.TB, subtask, parallelism int, c codec.Codec[N], o *Objects, handles []job.StateHandle, restoreFirst bool) versioned[V, N] {
	t.Helper()
	v := versioned[V, N]{b: s.backend(t, subtask, parallelism)}
	restore := func() {
		if handles == nil {
			return
		}
		if err := v.b.Restore(context.Background(), o, handles); err != nil {
			t.Fatal(err)
		}
	}
	if restoreFirst {
		restore()
	}
	v.bills, v.totals = open(t, v.b, bills[V]()), open(t, v.b, totals(c))
	if !restoreFirst {
		restore()
	}
	return v
}

func same[K comparable, V any](t testing.TB, what string, got map[K]V, want map[K]V) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%s: %d entries, want %d", what, len(got), len(want))
	}
	for k, w := range want {
		if !reflect.DeepEqual(got[k], w) {
			t.Fatalf("%s: key %v has %+v, want %+v", what, k, got[k], w)
		}
	}
}

// testEvolve takes states through three versions of a program, at another parallelism each, with snapshots whose
// parts were written by more than one.
func (s suite) testEvolve(t *testing.T) {
	for _, first := range []bool{false, true} {
		t.Run(fmt.Sprint("restore first ", first), func(t *testing.T) { s.evolve(t, first) })
	}
}

func (s suite) evolve(t *testing.T, restoreFirst bool) {
	o := NewObjects()
	owner := func(k string, parallelism int) int {
		g, _ := hashText(&k)
		return job.OwnerOf(job.GroupOf(g, groups), groups, parallelism)
	}
	ownerOf := func(k int64, parallelism int) int {
		g, _ := hashInt(&k)
		return job.OwnerOf(job.GroupOf(g, groups), groups, parallelism)
	}
	// Version 1, two subtasks.
	var handles []job.StateHandle
	want2, totals2 := map[string]Bill2{}, map[int64]int32{}
	for i := range 2 {
		v := openVersion[Bill1](s, t, i, 2, codec.Int16(), o, nil, restoreFirst)
		for n := range int64(evolved) {
			b := bill1(n)
			if owner(b.Name, 2) == i {
				v.bills.set(b.Name, b)
				want2[b.Name] = bill2(b)
			}
			if ownerOf(n, 2) == i {
				v.totals.set(n, int16(-n))
				totals2[n] = int32(-n)
			}
		}
		handles = append(handles, write(t, v.b, 1, o)...)
	}
	// Version 2, three subtasks, which change some, add some, and remove some.
	var next []job.StateHandle
	got2, gotTotals2 := map[string]Bill2{}, map[int64]int32{}
	want3, totals3 := map[string]Bill3{}, map[int64]int64{}
	for i := range 3 {
		v := openVersion[Bill2](s, t, i, 3, codec.Int32(), o, handles, restoreFirst)
		for k, b := range v.bills.all() {
			got2[k] = b
		}
		for k, n := range v.totals.all() {
			gotTotals2[k] = n
		}
		v.b.Committed(1)
		for n := range int64(evolved + 100) {
			k := fmt.Sprint("bill-", n)
			if owner(k, 3) == i {
				switch b := bill2(bill1(n)); {
				case n >= evolved || n%4 == 1:
					b.Lines, b.Tags = append(b.Lines, BillLine2{Price: 0.5}), []string{"new"}
					v.bills.set(k, b)
					want3[k] = bill3(b)
				case n%4 == 2:
					v.bills.remove(k)
				default:
					want3[k] = bill3(b)
				}
			}
			if ownerOf(n, 3) == i {
				total, _ := v.totals.upsert(n)
				if n%2 == 0 {
					*total = 1_000_000 + int32(n)
				}
				totals3[n] = int64(*total)
			}
		}
		next = append(next, write(t, v.b, 2, o)...)
	}
	same(t, "version 2: bills", got2, want2)
	same(t, "version 2: totals", gotTotals2, totals2)
	// Version 3 reads both checkpoints, and one with parts of each.
	mixed, wantMixed := []job.StateHandle{}, map[string]Bill3{}
	for _, from := range []struct {
		name    string
		handles []job.StateHandle
		bills   map[string]Bill3
	}{{"of version 1", handles, nil}, {"of version 2", next, want3}, {"mixed", nil, wantMixed}} {
		switch from.name {
		case "of version 1":
			from.bills = map[string]Bill3{}
			for k, b := range want2 {
				from.bills[k] = bill3(b)
			}
		case "mixed": // Subtask 0 of two stayed with version 1, subtask 1 went on.
			for _, h := range handles {
				if (h.Name == "bills" || h.Kind == statebackend.KindFile) && h.Groups.First == 0 {
					mixed = append(mixed, h)
				}
			}
			v := openVersion[Bill2](s, t, 1, 2, codec.Int32(), o, handles, restoreFirst)
			for _, h := range write(t, v.b, 3, o) {
				if h.Name == "bills" || h.Kind == statebackend.KindFile {
					mixed = append(mixed, h)
				}
			}
			for k, b := range want2 {
				wantMixed[k] = bill3(b)
			}
			from.handles = mixed
		}
		got, gotTotals := map[string]Bill3{}, map[int64]int64{}
		for i := range 4 {
			v := openVersion[Bill3](s, t, i, 4, codec.Int64(), o, from.handles, restoreFirst)
			for k, b := range v.bills.all() {
				got[k] = b
			}
			for k, n := range v.totals.all() {
				gotTotals[k] = n
			}
		}
		same(t, "version 3: bills "+from.name, got, from.bills)
		if from.name == "of version 2" {
			same(t, "version 3: totals", gotTotals, totals3)
		}
	}
}

// testIncompatible tells that a state that cannot be read is refused before any is loaded, by every subtask.
func (s suite) testIncompatible(t *testing.T) {
	o := NewObjects()
	var handles []job.StateHandle
	for i := range 2 {
		v := openVersion[Bill2](s, t, i, 2, codec.Int32(), o, nil, false)
		for n := range int64(100) {
			b := bill2(bill1(n))
			g, _ := hashText(&b.Title)
			if job.GroupsOf(i, groups, 2).Contains(job.GroupOf(g, groups)) {
				v.bills.set(b.Title, b)
			}
			g, _ = hashInt(&n)
			if job.GroupsOf(i, groups, 2).Contains(job.GroupOf(g, groups)) {
				v.totals.set(n, int32(n))
			}
		}
		handles = append(handles, write(t, v.b, 1, o)...)
	}
	check := func(t *testing.T, err error, loaded int, state, part string, words ...string) {
		t.Helper()
		var se *statebackend.SchemaError
		if !errors.As(err, &se) || se.Operator != "sum" || se.State != state || se.Part != part || se.Old == "" || se.New == "" {
			t.Fatalf("error is %v", err)
		}
		var je *job.Error
		if !errors.As(err, &je) || je.Class != job.ClassRefused {
			t.Errorf("error %v is not of class %s", err, job.ClassRefused)
		}
		for _, w := range append(words, `"sum"`, `"`+state+`"`, part, "run the program version that wrote the checkpoint", "--fresh") {
			if !strings.Contains(err.Error(), w) {
				t.Errorf("error %v does not say %q", err, w)
			}
		}
		if loaded > 0 {
			t.Errorf("%d entries were loaded", loaded)
		}
	}
	t.Run("narrower value", func(t *testing.T) {
		for i := range 2 {
			b := s.backend(t, i, 2)
			w := open(t, b, totals(codec.Int32()))
			open(t, b, bills[Bill1]())
			err := b.Restore(context.Background(), o, handles)
			check(t, err, w.v.Len(), "bills", "value", "field Count was int64 and is int32", "field Lines[].Number", "another name", "Index[].Number")
			if _, err := b.Freeze(2); err == nil {
				t.Error("after that a snapshot is taken")
			}
		}
	})
	t.Run("in another subtask's groups", func(t *testing.T) {
		var others []job.StateHandle
		for _, h := range handles {
			if h.Name != "bills" || h.Groups.First > 0 {
				others = append(others, h)
			}
		}
		b := s.backend(t, 0, 2)
		w := open(t, b, totals(codec.Int64()))
		open(t, b, bills[Bill1]())
		check(t, b.Restore(context.Background(), o, others), w.v.Len(), "bills", "value")
	})
	t.Run("wider key", func(t *testing.T) {
		b := s.backend(t, 0, 1)
		w := open(t, b, bills[Bill2]())
		open(t, b, statebackend.ValueDesc[[1]int64, int32]{Name: "totals", Key: codec.MustStruct[[1]int64](), Value: codec.Int32(),
			Hash: func(k *[1]int64) (uint64, uint64) { return hashInt(&k[0]) }})
		check(t, b.Restore(context.Background(), o, handles), w.v.Len(), "totals", "key", "keys are placed by their bytes")
	})
	t.Run("opened later", func(t *testing.T) {
		b := s.backend(t, 0, 1)
		if err := b.Restore(context.Background(), o, handles); err != nil {
			t.Fatal(err)
		}
		_, err := statebackend.OpenValue(b, totals(codec.Int16()))
		check(t, err, 0, "totals", "value", "int16 does not hold every int32")
	})
}
