package segment_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/statebackend/segment"
)

type pair struct {
	group      int
	key, value []byte
}

func sortedSegment(pairs []pair) ([]byte, segment.Summary, error) {
	var out bytes.Buffer
	var w segment.SortedWriter
	w.Reset(&out, segment.Descriptor{Operator: "sum", State: "counts", K: 8, Last: 7})
	for _, p := range pairs {
		if err := w.Add(p.group, p.key, p.value); err != nil {
			return nil, segment.Summary{}, err
		}
	}
	sum, err := w.Finish()
	return out.Bytes(), sum, err
}

// What Rows put in order is what the segment has, in runs of the size that the format says.
func TestSorted(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var pairs []pair
		var rows segment.Rows
		for g := range 8 {
			seen := map[string]bool{}
			var in []pair
			for range rapid.IntRange(0, 40).Draw(t, "entries") {
				p := pair{g, rapid.SliceOfN(rapid.Byte(), 0, 12).Draw(t, "key"), bytes.Repeat([]byte{byte(g)}, rapid.SampledFrom([]int{0, 1, 100, 9000, 40_000}).Draw(t, "value"))}
				if seen[string(p.key)] {
					continue
				}
				seen[string(p.key)] = true
				in = append(in, p)
			}
			slices.SortFunc(in, func(a, b pair) int { return bytes.Compare(a.key, b.key) })
			pairs = append(pairs, in...)
		}
		data, sum, err := sortedSegment(pairs)
		if err != nil {
			t.Fatal(err)
		}
		if sum.Entries != int64(len(pairs)) {
			t.Fatalf("%d entries of %d", sum.Entries, len(pairs))
		}
		var out bytes.Buffer
		var w segment.SortedWriter
		w.Reset(&out, segment.Descriptor{Operator: "sum", State: "counts", K: 8, Last: 7})
		for g := range 8 {
			rows.Reset()
			for _, p := range slices.Backward(pairs) {
				if p.group == g {
					rows.Add(p.key, p.value)
				}
			}
			rows.Sort()
			if err := rows.AddTo(&w, g); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Finish(); err != nil || !bytes.Equal(out.Bytes(), data) {
			t.Fatalf("from another order there are %d bytes, not %d: %v", out.Len(), len(data), err)
		}
		ix, _, err := segment.ParseTail(data, int64(len(data)))
		if err != nil || !ix.Sorted {
			t.Fatalf("index %+v: %v", ix, err)
		}
		at, group := 0, -1
		ended := true
		for _, b := range ix.Blocks {
			var buf []byte
			c, err := b.Decode(data[b.Offset:b.Offset+b.Stored], &buf)
			if err != nil {
				t.Fatal(err)
			}
			if err := b.Runs(c, func(r segment.Run) error {
				if r.Group == group && !ended {
					t.Fatalf("a run of group %d ended early", group)
				}
				var want []byte
				for _, p := range pairs[at : at+int(r.Entries)] {
					if len(want) >= 32<<10 {
						t.Fatalf("a run goes on after %d bytes", len(want))
					}
					want = append(append(want, p.key...), p.value...)
					if p.group != r.Group {
						t.Fatalf("an entry of group %d is in group %d", p.group, r.Group)
					}
				}
				if !bytes.Equal(r.Data, want) {
					t.Fatalf("run of group %d has other bytes", r.Group)
				}
				at += int(r.Entries)
				group, ended = r.Group, len(want) >= 32<<10
				return nil
			}); err != nil {
				t.Fatal(err)
			}
		}
		if at != len(pairs) {
			t.Fatalf("%d entries are read of %d", at, len(pairs))
		}
	})
}

func TestSortedRefuses(t *testing.T) {
	for _, c := range []struct {
		name  string
		pairs []pair
		want  string
	}{
		{"keys that go down", []pair{{1, []byte("b"), nil}, {1, []byte("a"), nil}}, "out of order"},
		{"a key twice", []pair{{1, []byte("b"), nil}, {1, []byte("b"), nil}}, "there twice"},
		{"groups that go down", []pair{{2, []byte("a"), nil}, {1, []byte("b"), nil}}, "out of order"},
		{"a group that there is none of", []pair{{8, []byte("a"), nil}}, "out of order"},
		{"an entry above the limit", []pair{{1, []byte("a"), make([]byte, segment.MaxBlock)}}, "too large"},
	} {
		_, _, err := sortedSegment(c.pairs)
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v", c.name, err)
		}
		if c.want == "too large" && !errors.Is(err, segment.ErrTooLarge) {
			t.Errorf("%s: %v is not ErrTooLarge", c.name, err)
		}
	}
	// What is next to the largest entry does not make it one too large.
	large := make([]byte, segment.MaxBlock-200)
	if _, sum, err := sortedSegment([]pair{{1, []byte("a"), make([]byte, 1000)}, {1, []byte("b"), large}, {1, []byte("c"), nil}}); err != nil || sum.Entries != 3 {
		t.Errorf("next to a large entry: %v", err)
	}
}
