package record_test

import (
	"encoding/binary"
	"fmt"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/record"
)

// row has a string, so that rows have different lengths and pointers.
type row struct {
	N int64
	S string
}

type rowCodec struct{}

func (rowCodec) Append(dst []byte, v *row) ([]byte, error) {
	dst = binary.AppendVarint(dst, v.N)
	dst = binary.AppendUvarint(dst, uint64(len(v.S)))
	return append(dst, v.S...), nil
}

func (rowCodec) Decode(src []byte, v *row) (int, error) {
	x, n := binary.Varint(src)
	if n <= 0 {
		return 0, fmt.Errorf("truncated number")
	}
	l, m := binary.Uvarint(src[n:])
	if m <= 0 || l > uint64(len(src)-n-m) {
		return 0, fmt.Errorf("truncated string")
	}
	end := n + m + int(l)
	*v = row{x, string(src[n+m : end])}
	return end, nil
}

func (rowCodec) Copy(dst, src *row)   { *dst = *src }
func (rowCodec) Schema() codec.Schema { return codec.Schema{Codec: "test-row", Version: 1} }

// bulkCodec is a codec of bytes that does many at once.
type bulkCodec struct{}

func (bulkCodec) Append(dst []byte, v *uint8) ([]byte, error) { return append(dst, *v), nil }
func (bulkCodec) Decode(src []byte, v *uint8) (int, error) {
	if len(src) == 0 {
		return 0, fmt.Errorf("truncated")
	}
	*v = src[0]
	return 1, nil
}
func (bulkCodec) Copy(dst, src *uint8) { *dst = *src }
func (bulkCodec) Schema() codec.Schema { return codec.Schema{Codec: "test-byte", Version: 1} }
func (bulkCodec) AppendAll(dst []byte, vs []uint8) ([]byte, error) {
	return append(dst, vs...), nil
}
func (bulkCodec) DecodeAll(src []byte, vs []uint8) (int, error) {
	if len(src) < len(vs) {
		return 0, fmt.Errorf("%d rows in %d bytes", len(vs), len(src))
	}
	return copy(vs, src), nil
}

var rowFrames = record.NewFrames(rowCodec{})

// content is what a batch says, as the receiver of its records sees it.
type content struct {
	rows  []row
	times []int64
	marks []record.Mark // Positions count selected rows.
}

// contentOf reads a batch the plain way: row by row, with the marks that come before each.
func contentOf(b *record.Batch[row]) content {
	var c content
	m := 0
	selected := func(i int) bool { return b.Sel == nil || slices.Contains(b.Sel, int32(i)) }
	for i := 0; i <= len(b.Rows); i++ {
		for ; m < len(b.Marks) && int(b.Marks[m].Pos) == i; m++ {
			mark := b.Marks[m]
			mark.Pos = int32(len(c.rows))
			c.marks = append(c.marks, mark)
		}
		if i == len(b.Rows) || !selected(i) {
			continue
		}
		c.rows = append(c.rows, b.Rows[i])
		if len(b.Times) == len(b.Rows) {
			c.times = append(c.times, b.Times[i])
		}
	}
	return c
}

func (c content) equal(o content) bool {
	return slices.Equal(c.rows, o.rows) && slices.Equal(c.times, o.times) && slices.Equal(c.marks, o.marks)
}

// anyBatch draws a batch of any shape: with or without times, marks anywhere, a selection or none.
func anyBatch(t *rapid.T) *record.Batch[row] {
	b := record.PoolOf[row]().Get()
	times := rapid.Bool().Draw(t, "times")
	for range rapid.IntRange(0, 40).Draw(t, "rows") {
		for range rapid.IntRange(0, 2).Draw(t, "marks") {
			b.Mark(record.MarkKind(rapid.IntRange(0, 2).Draw(t, "kind")), rapid.Int64().Draw(t, "watermark"))
		}
		b.Rows = append(b.Rows, row{rapid.Int64().Draw(t, "n"), rapid.StringN(0, 10, -1).Draw(t, "s")})
		if times {
			b.Times = append(b.Times, rapid.Int64().Draw(t, "time"))
		}
	}
	if rapid.Bool().Draw(t, "last") {
		b.Mark(record.Watermark, record.MaxTime)
	}
	if rapid.Bool().Draw(t, "filtered") {
		sel := b.Selection()
		for i := range b.Rows {
			if rapid.Bool().Draw(t, "selected") {
				sel = append(sel, int32(i))
			}
		}
		b.Sel = sel
	}
	return b
}

func TestFrameRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBatch(t)
		want := contentOf(b)
		prefix := []byte("kept")
		frame, err := rowFrames.Append(prefix, b)
		if err != nil {
			t.Fatal(err)
		}
		b.Release()
		if string(frame[:4]) != "kept" {
			t.Fatal("what stood before the frame is gone")
		}
		a, err := rowFrames.Decode(frame[4:])
		if err != nil {
			t.Fatal(err)
		}
		got := a.(*record.Batch[row])
		clear(frame) // Nothing of the frame may be kept.
		if c := contentOf(got); !c.equal(want) {
			t.Fatalf("got %+v\nwant %+v", c, want)
		}
		got.Release()
	})
}

func TestCompact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := anyBatch(t)
		if rapid.Bool().Draw(t, "hashed") {
			for i := range b.Rows {
				b.Hash = append(b.Hash, uint64(b.Rows[i].N))
			}
		}
		want := contentOf(b)
		b.Compact()
		if b.Sel != nil {
			t.Fatal("the selection is still there")
		}
		if got := contentOf(b); !got.equal(want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
		for i, h := range b.Hash {
			if len(b.Hash) != len(b.Rows) || h != uint64(b.Rows[i].N) {
				t.Fatalf("hash %d is not that of its row", i)
			}
		}
		b.Release()
	})
}

// A mark keeps its place between the rows that are left.
func TestCompactMovesMarks(t *testing.T) {
	b := record.PoolOf[row]().Get()
	for i := range int64(6) {
		b.Mark(record.Watermark, 10*i)
		b.Append(row{N: i}, i)
	}
	b.Mark(record.Idle, 0)
	b.Sel = append(b.Selection(), 1, 4)
	b.Compact()
	if s := fmt.Sprint(b.Rows, b.Times, b.Marks); s != "[{1 } {4 }] [1 4] [{0 0 0} {10 0 0} {20 1 0} {30 1 0} {40 1 0} {50 2 0} {0 2 1}]" {
		t.Error(s)
	}
	b.Release()
}

func TestBulkFrames(t *testing.T) {
	f := record.NewFrames(bulkCodec{})
	b := record.PoolOf[uint8]().Get()
	for i := range 300 {
		b.Append(uint8(i), int64(i)*1000)
	}
	frame, err := f.Append(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	a, err := f.Decode(frame)
	if err != nil {
		t.Fatal(err)
	}
	got := a.(*record.Batch[uint8])
	if !slices.Equal(got.Rows, b.Rows) || !slices.Equal(got.Times, b.Times) {
		t.Errorf("got %v %v", got.Rows, got.Times)
	}
	if _, err := f.Decode(frame[:len(frame)-1]); err == nil {
		t.Error("a truncated frame is decoded")
	}
	got.Release()
	b.Release()
}

// Version 1 of the layout, to the byte.
func TestFrameGolden(t *testing.T) {
	b := record.PoolOf[row]().Get()
	b.Append(row{1, "a"}, 100)
	b.Mark(record.Watermark, 99)
	b.Append(row{-2, ""}, 98)
	frame, err := rowFrames.Append(nil, b)
	if err != nil {
		t.Fatal(err)
	}
	const want = "01 03 02 01 01 00 c6 01 62 00 00 00 00 00 00 00 02 00 00 00 00 00 00 00 02 01 61 03 00"
	if got := fmt.Sprintf("% x", frame); got != want {
		t.Errorf("frame is %s\nwant     %s", got, want)
	}
	b.Release()
}

func TestFrameErrors(t *testing.T) {
	for _, c := range []struct{ name, frame, want string }{
		{"empty", "", "not a version 1 frame"},
		{"other version", "\x02\x00\x00\x00", "not a version 1 frame"},
		{"no counts", "\x01\x00", "truncated at offset 2"},
		{"too many rows", "\x01\x00\xff\xff\xff\xff\x0f\x00", "claims 4294967295 rows and 0 marks in 0 bytes"},
		{"mark behind the end", "\x01\x00\x00\x01\x01\x00\x00", "bad mark at offset 5"},
		{"mark before the last", "\x01\x00\x01\x02\x01\x00\x00\x00\x00\x00", "bad mark at offset 8"},
		{"unknown mark", "\x01\x00\x00\x01\x00\x03\x00", "bad mark at offset 6"},
		{"no times", "\x01\x01\x01\x00", "truncated at offset 4"},
		{"bad row", "\x01\x00\x01\x00\x02\x05a", "row 0: truncated string"},
		{"left over", "\x01\x00\x00\x00zz", "2 bytes left over"},
	} {
		t.Run(c.name, func(t *testing.T) {
			_, err := rowFrames.Decode([]byte(c.frame))
			if err == nil || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), fmt.Sprintf("decode frame of %d bytes", len(c.frame))) {
				t.Errorf("got %v, want %s", err, c.want)
			}
		})
	}
	b := record.PoolOf[uint8]().Get()
	if _, err := rowFrames.Append(nil, b); err == nil || !strings.Contains(err.Error(), "Batch[uint8]") || !strings.Contains(err.Error(), "row]") {
		t.Errorf("a batch of another type: %v", err)
	}
}

// FuzzDecode: no bytes make Decode panic or allocate without measure, and what it takes is encoded
// to a frame that decodes to the same.
func FuzzDecode(f *testing.F) {
	f.Add([]byte("\x01\x00\x00\x00"))
	f.Add([]byte("\x01\x01\x02\x01\x01\x00\xc6\x01\xc8\x01\x03\x02\x01a\x03\x00"))
	f.Add([]byte("\x01\x00\x02\x03\x00\x00\x02\x01\x01\x00\x02\x02\x00\x02\x00\x04\x01b"))
	f.Add([]byte("\x01\x01\x80\x80\x40\x00"))
	f.Fuzz(func(t *testing.T, src []byte) {
		a, err := rowFrames.Decode(src)
		if err != nil {
			return
		}
		want := contentOf(a.(*record.Batch[row]))
		frame, err := rowFrames.Append(nil, a)
		if err != nil {
			t.Fatal(err)
		}
		b, err := rowFrames.Decode(frame)
		if err != nil {
			t.Fatalf("decode of % x, encoded from % x: %v", frame, src, err)
		}
		if got := contentOf(b.(*record.Batch[row])); !got.equal(want) {
			t.Fatalf("got %+v\nwant %+v", got, want)
		}
		a.Release()
		b.Release()
	})
}
