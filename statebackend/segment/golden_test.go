package segment_test

import (
	"bytes"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

var update = flag.Bool("update", false, "write the golden files of the current versions")

// goldenRuns are of every kind: without a stride, with columns that are constant, packed and plain, a group that goes on in the
// next block, and, in a segment of changes, keys that are gone.
func goldenRuns(changes bool) []run {
	r := rand.New(rand.NewPCG(1, 2))
	rows := make([]byte, 24*600) // Enough that the writer knows random columns.
	for i := range rows {
		switch c := i % 24; {
		case c < 8:
			rows[i] = byte(c)
		case c < 16:
			rows[i] = byte(r.Uint32() & 1)
		default:
			rows[i] = byte(r.Uint32())
		}
	}
	runs := []run{
		{1, 3, []byte("a text without a stride, a text without a stride, a text without a stride"), false},
		{2, 600, rows, false},
		{2, 7, bytes.Repeat([]byte("much "), 30_000), false},
		{2, 1, []byte("in the second block"), false},
		{5, 2, []byte{1, 2, 3, 4}, false},
	}
	if changes {
		runs = slices.Insert(runs, 1, run{2, 4, []byte("gonewentleftlost"), true})
		runs = append(runs, run{6, 1, []byte("gone"), true})
	}
	return runs
}

// Every later version must open these segments.
func TestGolden(t *testing.T) {
	for _, version := range []int{segment.Version, segment.VersionChanges} {
		for _, c := range []statebackend.Compression{0, statebackend.NoCompression} {
			name := fmt.Sprintf("testdata/v%d.golden", version)
			d := segment.Descriptor{Operator: "sum", Subtask: 3, State: "counts", Key: "int64", Value: "string", K: 8, First: 1, Last: 6, Checkpoint: 9, Compression: c}
			if c == statebackend.NoCompression {
				name = fmt.Sprintf("testdata/v%d.stored.golden", version)
			}
			want := goldenRuns(version == segment.VersionChanges)
			if version == segment.VersionChanges {
				d.Base, d.Total, d.Version = "00112233445566778899aabbccddeeff", 1234, version
			}
			if c == statebackend.NoCompression {
				want = slices.DeleteFunc(want, func(r run) bool { return len(r.data) > 100_000 })
			}
			if *update {
				data, _ := write(t, d, want)
				if err := os.WriteFile(name, data, 0o644); err != nil {
					t.Fatal(err)
				}
			}
			data, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			got, ix, err := read(data, job.GroupRange{First: 1, Last: 6})
			if err != nil || int(data[8]) != version {
				t.Fatalf("%s: version %d, %v", name, data[8], err)
			}
			if d.Compression = 0; ix.Descriptor != d {
				t.Errorf("%s: %+v, want %+v", name, ix.Descriptor, d)
			}
			if !slices.EqualFunc(got, want, func(a, b run) bool {
				return a.group == b.group && a.removed == b.removed && a.entries == b.entries && bytes.Equal(a.data, b.data)
			}) {
				t.Errorf("%s: %d runs differ from %d", name, len(got), len(want))
			}
			// What the file is to show is in it.
			packed := slices.ContainsFunc(ix.Blocks, func(b segment.Block) bool { return b.Zstd })
			plain := slices.ContainsFunc(ix.Blocks, func(b segment.Block) bool { return b.Plain > 0 })
			if packed != (c == 0) || !plain || (len(ix.Blocks) > 1) != (c == 0) {
				t.Errorf("%s: %d blocks, compressed %v, with plain parts %v", name, len(ix.Blocks), packed, plain)
			}
		}
	}
}
