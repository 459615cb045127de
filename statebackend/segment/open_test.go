package segment_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// ranges is a statebackend.Reader of one section, which counts the reads and can cut them short.
type ranges struct {
	data  []byte
	lose  int64
	reads int
}

func (r *ranges) Range(_ context.Context, _ job.StateHandle, off, n int64) (io.ReadCloser, error) {
	r.reads++
	return io.NopCloser(bytes.NewReader(r.data[off : off+n-r.lose])), nil
}

// A segment is what the checkpoint says of it in every respect, or it is not opened.
func TestOpen(t *testing.T) {
	d := segment.Descriptor{State: "counts", Key: "int64", Value: "string", K: 4, First: 1, Last: 2, Base: "ff", Total: 9}
	data, sum := write(t, d, []run{{1, 3, []byte("abc"), true}, {1, 2, []byte("de"), false}})
	h := job.StateHandle{
		Kind: statebackend.KindKeyed, Name: "counts", Key: "int64", Codec: "string", Groups: job.GroupRange{First: 1, Last: 2},
		Length: sum.Length, Index: sum.Index, Base: "ff", Entries: 9,
	}
	r := &ranges{data: data}
	ix, tail, err := segment.Open(t.Context(), r, h, 4)
	if err != nil || ix.Hash != sum.Index || !bytes.Equal(tail, data) || r.reads != 1 {
		t.Fatalf("%+v, %d bytes, %d reads, %v", ix, len(tail), r.reads, err)
	}
	for name, c := range map[string]struct {
		change func(h *job.StateHandle)
		k      int
		say    string
	}{
		"hash of the index":        {change: func(h *job.StateHandle) { h.Index = h.Index[1:] + "0" }, say: "hash of its index"},
		"base":                     {change: func(h *job.StateHandle) { h.Base = "fe" }, say: `changes to "fe"`},
		"no base":                  {change: func(h *job.StateHandle) { h.Base = "" }, say: `changes to ""`},
		"number of entries":        {change: func(h *job.StateHandle) { h.Entries-- }, say: "the checkpoint has 8"},
		"first key group":          {change: func(h *job.StateHandle) { h.Groups.First-- }, say: "[1,2]"},
		"last key group":           {change: func(h *job.StateHandle) { h.Groups.Last++ }, say: "[1,2]"},
		"schema of keys":           {change: func(h *job.StateHandle) { h.Key = "int32" }, say: "int32"},
		"schema of values":         {change: func(h *job.StateHandle) { h.Codec = "bytes" }, say: "bytes"},
		"length":                   {change: func(h *job.StateHandle) { h.Length-- }, say: "does not end in"},
		"length of next to none":   {change: func(h *job.StateHandle) { h.Length = 3 }, say: "too short"},
		"number of all key groups": {change: func(*job.StateHandle) {}, k: 5, say: "max-parallelism 4, not 5"},
	} {
		bad := h
		c.change(&bad)
		ix, _, err := segment.Open(t.Context(), &ranges{data: data}, bad, max(c.k, 4))
		var refused *job.Error
		if err == nil || !strings.Contains(err.Error(), c.say) || errors.Is(err, statebackend.ErrCorrupt) == (errors.As(err, &refused) && refused.Class == job.ClassRefused) {
			t.Errorf("another %s: %+v, %v", name, ix, err)
		}
	}
	if _, _, err := segment.Open(t.Context(), &ranges{data: data, lose: 5}, h, 4); !errors.Is(err, statebackend.ErrCorrupt) {
		t.Errorf("a read that ends early: %v", err)
	}
}

// An index that is larger than what is read at first takes two reads.
func TestOpenLarge(t *testing.T) {
	const k = 30_000
	d := segment.Descriptor{State: strings.Repeat("long", segment.TailGuess/4), K: k, Last: k - 1}
	data, sum := write(t, d, []run{{7, 1, []byte("x"), false}})
	h := job.StateHandle{Name: d.State, Groups: job.GroupRange{Last: k - 1}, Length: sum.Length, Index: sum.Index, Entries: 1}
	r := &ranges{data: data}
	ix, _, err := segment.Open(t.Context(), r, h, k)
	if err != nil || ix.State != d.State || r.reads != 2 {
		t.Fatalf("%d reads, %v", r.reads, err)
	}
}
