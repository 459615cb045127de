package pebble_test

import (
	"context"
	"maps"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// A snapshot is read without the program: all of it, key group by key group, and single keys for little reading.
func TestOpenStored(t *testing.T) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	o := statetest.NewObjects()
	const n = 200_000
	want := map[int64]int64{}
	var handles []job.StateHandle
	for i := range 2 {
		groups := job.GroupsOf(i, 16, 2)
		b, err := (&pebble.Factory{}).New(ctx, statebackend.Params{Operator: "sum", Dir: t.TempDir(), K: 16, Groups: groups})
		if err != nil {
			t.Fatal(err)
		}
		v := value[int64pair](t, b)
		for k := range int64(n) {
			if g, s := at(k); groups.Contains(int(g % 16)) {
				v.Set(g, s, &k, &int64pair{k, -k})
				want[k] = -k
			}
		}
		handles = append(handles, freeze(t, b, 1, o)...)
		if err := b.Close(); err != nil {
			t.Fatal(err)
		}
	}
	open := func(hs []job.StateHandle) (map[int64]int64, error) {
		states, err := pebble.OpenStored(ctx, o, 16, hs)
		if err != nil {
			return nil, err
		}
		got := map[int64]int64{}
		err = states["counts"].Each(ctx, job.GroupRange{First: 0, Last: 15}, func(group int, key, val []byte) error {
			var k int64
			if _, err := codec.Int64().Decode(key, &k); err != nil {
				return err
			}
			var p int64pair
			if _, err := codec.MustStruct[int64pair]().Decode(val, &p); err != nil {
				return err
			}
			if g, _ := at(k); int(g%16) != group {
				t.Errorf("key %d is said to be of group %d", k, group)
			}
			got[k] = p.B
			return nil
		})
		return got, err
	}
	got, err := open(handles)
	if err != nil || !maps.Equal(got, want) {
		t.Fatalf("%d entries of %d, %v", len(got), len(want), err)
	}
	states, err := pebble.OpenStored(ctx, o, 16, handles)
	if err != nil {
		t.Fatal(err)
	}
	before := o.BytesRead()
	for _, k := range []int64{7, 150_000, n + 5} {
		key, err := codec.Int64().Append(nil, &k)
		if err != nil {
			t.Fatal(err)
		}
		g, _ := at(k)
		v, found, err := states["counts"].Get(ctx, int(g%16), key)
		if err != nil || found != (k < n) {
			t.Fatalf("key %d: %v, %v", k, found, err)
		}
		if found {
			var p int64pair
			if _, err := codec.MustStruct[int64pair]().Decode(v, &p); err != nil || p != (int64pair{k, -k}) {
				t.Errorf("key %d has %v, %v", k, p, err)
			}
		}
	}
	if read := o.BytesRead() - before; read > 1<<20 {
		t.Errorf("%d bytes were read for three keys", read)
	}
	for i, h := range handles {
		if h.Length == 0 {
			continue
		}
		hs := append([]job.StateHandle{}, handles...)
		hs[i] = o.Damage(h, func(b []byte) []byte { b[len(b)/3] ^= 4; return b })
		if got, err := open(hs); err == nil && !maps.Equal(got, want) {
			t.Errorf("%s damaged: wrong entries without an error", h.Name)
		} else if err != nil && !strings.Contains(err.Error(), h.Name) && !strings.Contains(err.Error(), "checksum") && !strings.Contains(err.Error(), "corrupt") {
			t.Errorf("%s damaged: %v", h.Name, err)
		}
	}
}

type int64pair struct{ A, B int64 }
