package segment_test

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"

	"github.com/zeebo/xxh3"
	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

type run struct {
	group   int
	entries int64
	data    []byte
	removed bool
}

func write(t testing.TB, d segment.Descriptor, runs []run) ([]byte, segment.Summary) {
	t.Helper()
	var out bytes.Buffer
	w := segment.NewWriter(&out, d)
	for _, r := range runs {
		add := w.Add
		if r.removed {
			add = w.Remove
		}
		if err := add(r.group, r.entries, r.data); err != nil {
			t.Fatal(err)
		}
	}
	sum, err := w.Finish()
	if err != nil {
		t.Fatal(err)
	}
	if sum.Length != int64(out.Len()) {
		t.Fatalf("length is %d, says %d", out.Len(), sum.Length)
	}
	return out.Bytes(), sum
}

// read gives the runs of the groups, by reading the tail and then the blocks alone.
func read(data []byte, groups job.GroupRange) ([]run, *segment.Index, error) {
	n := int64(min(len(data), 20))
	var ix *segment.Index
	for ix == nil {
		var need int64
		var err error
		ix, need, err = segment.ParseTail(data[int64(len(data))-n:], int64(len(data)))
		if err != nil {
			return nil, nil, err
		}
		if ix == nil && need <= n {
			return nil, nil, errors.New("no progress")
		}
		n = need
	}
	var out []run
	var buf []byte
	for _, b := range ix.Overlapping(groups) {
		raw, err := b.Decode(data[b.Offset:b.Offset+b.Stored], &buf)
		if err != nil {
			return nil, nil, err
		}
		err = b.Runs(raw, func(r segment.Run) error {
			if groups.Contains(r.Group) {
				out = append(out, run{r.Group, r.Entries, slices.Clone(r.Data), r.Removed})
			}
			return nil
		})
		if err != nil {
			return nil, nil, err
		}
	}
	return out, ix, nil
}

func TestSegment(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		k := rapid.IntRange(1, 60).Draw(rt, "k")
		d := segment.Descriptor{Operator: "sum", State: "counts", Key: "int64", Value: "int64", K: k, First: 0, Last: k - 1, Checkpoint: 3}
		if rapid.Bool().Draw(rt, "changes") {
			d.Base, d.Total, d.Version = "0123", 99, segment.VersionChanges
		}
		seed := rapid.Uint64().Draw(rt, "seed")
		noise := rapid.Bool().Draw(rt, "noise")
		var runs []run
		for g := range k {
			for range rapid.IntRange(0, 2).Draw(rt, "runs") {
				b := make([]byte, rapid.IntRange(0, 60_000).Draw(rt, "bytes"))
				if noise {
					r := rand.New(rand.NewPCG(seed, uint64(len(runs))))
					for i := range b {
						b[i] = byte(r.Uint32())
					}
				}
				n := len(b)/8 + 1
				if rapid.Bool().Draw(rt, "of one size") && len(b) > 0 {
					n = len(b) / 24
					b = b[:n*24]
					// Columns of each kind: constant, compressible, and as they are.
					for i := range b {
						switch c := i % 24; {
						case c < 8:
							b[i] = byte(c)
						case c < 12:
							b[i] &= 3
						}
					}
				}
				runs = append(runs, run{g, int64(n), b, d.Base != "" && rapid.Bool().Draw(rt, "removed")})
			}
		}
		data, sum := write(t, d, runs)
		first := rapid.IntRange(0, k-1).Draw(rt, "first")
		groups := job.GroupRange{First: first, Last: rapid.IntRange(first, k-1).Draw(rt, "last")}
		got, ix, err := read(data, groups)
		if err != nil {
			rt.Fatal(err)
		}
		if ix.Descriptor != d || ix.Hash != sum.Index || ix.Entries != sum.Entries || ix.Removed != sum.Removed {
			rt.Fatalf("index %+v, summary %+v", ix, sum)
		}
		want := slices.DeleteFunc(runs, func(r run) bool { return !groups.Contains(r.group) || r.entries == 0 })
		if !slices.EqualFunc(got, want, func(a, b run) bool {
			return a.group == b.group && a.removed == b.removed && a.entries == b.entries && bytes.Equal(a.data, b.data)
		}) {
			rt.Fatalf("%d runs read, want %d", len(got), len(want))
		}
	})
}

func small(t testing.TB) []byte {
	data, _ := write(t, segment.Descriptor{State: "counts", K: 4, First: 0, Last: 3}, []run{{0, 2, []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), false}, {3, 1, []byte("b"), false}})
	return data
}

func changes(t testing.TB) []byte {
	d := segment.Descriptor{State: "counts", K: 4, First: 0, Last: 3, Base: "00112233445566778899aabbccddeeff", Total: 5}
	data, _ := write(t, d, []run{{0, 3, []byte("aaa"), true}, {0, 2, []byte("aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"), false}, {3, 1, []byte("b"), true}})
	return data
}

func TestDamage(t *testing.T) {
	testDamage(t, small(t))
	testDamage(t, changes(t))
}

func testDamage(t *testing.T, data []byte) {
	all := job.GroupRange{First: 0, Last: 3}
	for at := range data {
		bad := slices.Clone(data)
		bad[at] ^= 0x20
		if _, _, err := read(bad, all); err == nil && at >= 9 || err != nil && !errors.Is(err, statebackend.ErrCorrupt) {
			t.Errorf("byte %d of %d changed: %v", at, len(data), err)
		}
		if _, _, err := read(data[:at], all); !errors.Is(err, statebackend.ErrCorrupt) {
			t.Errorf("cut after %d bytes: %v", at, err)
		}
	}
}

func TestWriterRefuses(t *testing.T) {
	w := segment.NewWriter(&bytes.Buffer{}, segment.Descriptor{K: 10, First: 2, Last: 5})
	for _, g := range []int{1, 6} {
		if err := w.Add(g, 1, []byte("x")); err == nil {
			t.Errorf("group %d is accepted", g)
		}
	}
	if err := w.Add(4, 1, []byte("x")); err != nil {
		t.Fatal(err)
	}
	if err := w.Add(3, 1, []byte("x")); err == nil {
		t.Error("a group out of order is accepted")
	}
	if err := w.Remove(4, 1, []byte("x")); err == nil {
		t.Error("a full segment takes removed keys")
	}
	if err := w.Add(4, 1, make([]byte, segment.MaxBlock)); !errors.Is(err, segment.ErrTooLarge) {
		t.Errorf("too large an entry: %v", err)
	}
	if err := w.Add(5, 1, make([]byte, segment.MaxBlock-100)); err != nil {
		t.Errorf("an entry just below the limit: %v", err)
	}
}

// A reader that does not know a version does not guess.
func TestVersions(t *testing.T) {
	d := segment.Descriptor{State: "counts", K: 1, Base: "ff", Total: 1}
	data, _ := write(t, d, []run{{0, 1, []byte("a"), false}})
	if data[8] != segment.VersionChanges {
		t.Errorf("the segment is of version %d", data[8])
	}
	for change, damaged := range map[[2]string]bool{
		{`"version":2`, `"version":3`}: false, {`"version":2`, `"version":1`}: true, {`"base":"ff"`, `"bane":"ff"`}: true, {`"total":1`, `"total":-`}: true,
	} {
		bad := bytes.Replace(slices.Clone(data), []byte(change[0]), []byte(change[1]), 1)
		n := int(binary.LittleEndian.Uint32(bad[len(bad)-28:]))
		sum := xxh3.Hash128(bad[len(bad)-28-n : len(bad)-28]).Bytes()
		copy(bad[len(bad)-24:], sum[:])
		if _, _, err := read(bad, job.GroupRange{}); err == nil || errors.Is(err, statebackend.ErrCorrupt) != damaged {
			t.Errorf("%q in place of %q: %v", change[1], change[0], err)
		}
	}
}

// A run as large as they come is read again, though its columns take bytes of their own.
func TestLargestRun(t *testing.T) {
	const size = (segment.MaxBlock - 64) / 64 * 64
	data := make([]byte, size)
	for i := range data {
		data[i] = byte(i/64) & 3
	}
	d := segment.Descriptor{State: "counts", K: 1}
	stored, _ := write(t, d, []run{{0, size / 64, data, false}})
	got, _, err := read(stored, job.GroupRange{})
	if err != nil || len(got) != 1 || !bytes.Equal(got[0].data, data) {
		t.Errorf("%d runs, %v", len(got), err)
	}
}

// FuzzTail feeds bytes, and bytes behind a footer that is right for them, to the parser of indexes, and
// follows the index into the bytes.
func FuzzTail(f *testing.F) {
	for _, data := range [][]byte{small(f), changes(f)} {
		f.Add(data)
		n := binary.LittleEndian.Uint32(data[len(data)-28:])
		f.Add(data[:len(data)-28])
		f.Add(data[len(data)-28-int(n) : len(data)-28])
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var before, after runtime.MemStats
		runtime.ReadMemStats(&before)
		_, _, _ = read(data, job.GroupRange{First: 0, Last: 3})
		// As a trailer of its own, behind a head and one block's worth of zeros.
		sum := xxh3.Hash128(data).Bytes()
		framed := slices.Concat([]byte("CAIRNSEG\x01"), make([]byte, 50), data, binary.LittleEndian.AppendUint32(nil, uint32(len(data))), sum[:], []byte("CAIRNEND"))
		_, ix, err := read(framed, job.GroupRange{First: 0, Last: 3})
		if err == nil && ix == nil {
			t.Error("neither an index nor an error")
		}
		runtime.ReadMemStats(&after)
		if used := after.TotalAlloc - before.TotalAlloc; used > 256<<20 {
			t.Errorf("%d bytes allocated for %d", used, len(data))
		}
	})
}

// FuzzRuns feeds bytes to the reader of a block's runs.
func FuzzRuns(f *testing.F) {
	f.Add([]byte{0, 2, 3, 0, 'a', 'b', 'c', 3, 1, 0, 0}, int64(3))
	f.Add([]byte{1, 2, 4, 2, 0, 'a', 'c', 1, 'b'}, int64(2))
	f.Add([]byte{1, 2, 4, 2, 0, 'a', 'c', 2, 'b', 'd'}, int64(2)|2<<32)
	f.Add([]byte{1, 2, 3, 0, 'a', 'b', 'c', 6, 1, 0, 0}, int64(1)|2<<16|1<<62)
	f.Fuzz(func(t *testing.T, raw []byte, param int64) {
		entries, removed, plain := param&0xFFFF, param>>16&0xFFFF, min(param>>32&0xFF, int64(len(raw)))
		b := segment.Block{
			First: 0, Last: 3, Entries: entries, Raw: int64(len(raw)) - plain, Plain: plain, Stored: int64(len(raw)), Hash: xxh3.Hash(raw),
			Removed: removed, Changes: param>>62 != 0,
		}
		var buf []byte
		data, err := b.Decode(raw, &buf)
		if err != nil {
			t.Fatal(err)
		}
		var n [2]int64
		err = b.Runs(data, func(r segment.Run) error {
			if r.Group < 0 || r.Group > 3 {
				return fmt.Errorf("group %d", r.Group)
			}
			if r.Removed {
				n[1] += r.Entries
			} else {
				n[0] += r.Entries
			}
			return nil
		})
		if err == nil && n != [2]int64{entries, removed} {
			t.Errorf("%d entries and removed keys of %d and %d", n, entries, removed)
		}
		b.Zstd = true
		_, _ = b.Decode(raw, &buf)
	})
}

// Whatever the writer was told, the reader finds the same entries.
func TestCompression(t *testing.T) {
	data := bytes.Repeat([]byte("so much of this is the same, again and again; "), 2000)
	var sizes []int
	for c := statebackend.NoCompression; c <= statebackend.MaxCompression+1; c++ {
		d := segment.Descriptor{State: "s", K: 1, Compression: c}
		out, _ := write(t, d, []run{{0, 7, data, false}})
		got, ix, err := read(out, job.GroupRange{})
		if err != nil || len(got) != 1 || !bytes.Equal(got[0].data, data) {
			t.Fatalf("compression %d: %d runs, %v", c, len(got), err)
		}
		if b := ix.Blocks[0]; b.Zstd == (c == statebackend.NoCompression) {
			t.Errorf("compression %d: the block says %v", c, b.Zstd)
		}
		sizes = append(sizes, len(out))
	}
	off, fastest, first := sizes[0], sizes[1], sizes[2]
	if off < len(data) || fastest != first || fastest > len(data)/10 {
		t.Errorf("%d bytes of entries make %v", len(data), sizes)
	}
}
