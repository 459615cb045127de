package segment

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"sync"

	"github.com/klauspost/compress/zstd"
	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/statebackend"
)

// encoders are those of the levels of zstd. They keep no state between blocks, and are shared, so that their tables are
// made once per process.
var encoders = func() (list [statebackend.MaxCompression]func() *zstd.Encoder) {
	for i := range list {
		list[i] = sync.OnceValue(func() *zstd.Encoder {
			e, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.EncoderLevel(i+1)), zstd.WithEncoderConcurrency(2),
				zstd.WithEncoderCRC(false), zstd.WithWindowSize(256<<10), zstd.WithLowerEncoderMem(true))
			if err != nil {
				panic(fmt.Sprintf("zstd encoder: %v", err)) // The options are constants.
			}
			return e
		})
	}
	return list
}()

// compress appends data to dst, compressed; it tells whether it is.
func compress(dst, data []byte, c statebackend.Compression) ([]byte, bool) {
	if c >= 0 {
		n := len(dst)
		level := min(max(c, 1), statebackend.MaxCompression)
		dst = encoders[level-1]().EncodeAll(data, dst)
		if len(dst)-n < len(data) {
			return dst, true
		}
		dst = dst[:n]
	}
	return append(dst, data...), false
}

// Writer writes a segment. One goroutine uses it.
type Writer struct {
	out     io.Writer
	desc    Descriptor
	raw     []byte // The block being filled: what is to be compressed, and
	plain   []byte // what is not.
	stored  []byte
	blocks  []Block
	open    Block
	offset  int64
	entries int64
	removed int64
}

// NewWriter begins a segment.
func NewWriter(out io.Writer, d Descriptor) *Writer { return &Writer{out: out, desc: d} }

// Reset begins another segment and keeps buffers.
func (w *Writer) Reset(out io.Writer, d Descriptor) {
	*w = Writer{out: out, desc: d, raw: w.raw[:0], plain: w.plain[:0], stored: w.stored[:0], blocks: w.blocks[:0]}
}

// Add adds encoded entries of one key group. Groups come in ascending order, each as often as one likes.
func (w *Writer) Add(group int, entries int64, data []byte) error {
	return w.add(Run{Group: group, Entries: entries, Data: data})
}

// Remove adds encoded keys of one key group that are gone. They precede the group's entries: a key may come again. Only a
// segment of changes takes them.
func (w *Writer) Remove(group int, keys int64, data []byte) error {
	if w.desc.Base == "" {
		return fmt.Errorf("%d keys of key group %d are removed from a segment that builds on none", keys, group)
	}
	return w.add(Run{Group: group, Removed: true, Entries: keys, Data: data})
}

// Empty tells whether nothing was added so far.
func (w *Writer) Empty() bool { return len(w.raw) == 0 && len(w.blocks) == 0 }

func (w *Writer) add(r Run) error {
	group, entries, data := r.Group, r.Entries, r.Data
	if entries == 0 {
		return nil
	}
	if len(data) > MaxBlock-maxRunHead {
		return fmt.Errorf("%w: %d bytes of one key group in a run, limit is %d", ErrTooLarge, len(data), MaxBlock)
	}
	if group < w.desc.First || group > w.desc.Last || len(w.raw) > 0 && group < w.open.Last || len(w.blocks) > 0 && group < w.blocks[len(w.blocks)-1].Last {
		return fmt.Errorf("key group %d is out of order in [%d,%d]", group, w.desc.First, w.desc.Last)
	}
	stride := strideOf(entries, len(data))
	if len(data)+stride > MaxBlock-maxRunHead {
		stride = 0 // The columns' own bytes would not fit.
	}
	if len(w.raw) > 0 && len(w.raw)+len(w.plain)+len(data)+stride > MaxBlock-maxRunHead {
		if err := w.flush(); err != nil {
			return err
		}
	}
	if len(w.raw) == 0 {
		w.open = Block{First: group}
	}
	w.open.Last = group
	head := uint64(group)
	if w.desc.Base != "" {
		head <<= 1
	}
	if r.Removed {
		w.open.Removed += entries
		head |= 1
	} else {
		w.open.Entries += entries
	}
	w.raw = binary.AppendUvarint(w.raw, head)
	w.raw = binary.AppendUvarint(w.raw, uint64(entries))
	w.raw = binary.AppendUvarint(w.raw, uint64(len(data)))
	w.raw = binary.AppendUvarint(w.raw, uint64(stride))
	w.columns(data, stride)
	if len(w.raw)+len(w.plain) >= blockTarget {
		return w.flush()
	}
	return nil
}

func (w *Writer) flush() error {
	if err := w.begin(); err != nil {
		return err
	}
	b := w.open
	b.Offset, b.Raw = w.offset, int64(len(w.raw))
	w.stored, b.Zstd = compress(w.stored[:0], w.raw, w.desc.Compression)
	w.stored = append(w.stored, w.plain...)
	b.Plain = int64(len(w.plain))
	data := w.stored
	b.Stored, b.Hash = int64(len(data)), xxh3.Hash(data)
	w.blocks = append(w.blocks, b)
	w.entries += b.Entries
	w.removed += b.Removed
	w.raw, w.plain = w.raw[:0], w.plain[:0]
	return w.write(data)
}

func (w *Writer) begin() error {
	if w.offset > 0 {
		return nil
	}
	return w.write(append([]byte(magic), byte(w.version())))
}

func (w *Writer) version() int {
	if w.desc.Base != "" {
		return VersionChanges
	}
	return Version
}

func (w *Writer) write(data []byte) error {
	n, err := w.out.Write(data)
	w.offset += int64(n)
	return err
}

// Finish ends the segment.
func (w *Writer) Finish() (Summary, error) {
	if len(w.raw) > 0 {
		if err := w.flush(); err != nil {
			return Summary{}, err
		}
	}
	if err := w.begin(); err != nil {
		return Summary{}, err
	}
	if w.desc.Version = 0; w.desc.Base != "" {
		w.desc.Version = w.version()
	}
	desc, err := json.Marshal(w.desc)
	if err != nil {
		return Summary{}, err
	}
	t := binary.AppendUvarint(nil, uint64(len(desc)))
	t = append(t, desc...)
	t = binary.AppendUvarint(t, uint64(len(w.blocks)))
	for _, b := range w.blocks {
		t = binary.AppendUvarint(t, uint64(b.First))
		t = binary.AppendUvarint(t, uint64(b.Last-b.First))
		t = binary.AppendUvarint(t, uint64(b.Entries))
		if w.desc.Base != "" {
			t = binary.AppendUvarint(t, uint64(b.Removed))
		}
		t = binary.AppendUvarint(t, uint64(b.Stored))
		t = binary.AppendUvarint(t, uint64(b.Raw))
		t = append(t, flag(b.Zstd))
		t = binary.AppendUvarint(t, uint64(b.Plain))
		t = binary.LittleEndian.AppendUint64(t, b.Hash)
	}
	h := xxh3.Hash128(t).Bytes()
	index := HashText(t)
	t = binary.LittleEndian.AppendUint32(t, uint32(len(t)))
	t = append(t, h[:]...)
	t = append(t, magicEnd...)
	if err := w.write(t); err != nil {
		return Summary{}, err
	}
	return Summary{Entries: w.entries, Removed: w.removed, Length: w.offset, Index: index}, nil
}

// Entries of one size compress in a quarter of the time, and better, when their first bytes lie together, then
// their second ones, and so on: numbers differ mostly in their low bytes. Whether all entries have one size the
// writer cannot know, but it does no harm to take it that way when the sizes add up.
const (
	minTransposed = 16
	maxStride     = 64
)

func strideOf(entries int64, size int) int {
	if entries < minTransposed || int64(size)%entries != 0 || int64(size)/entries > maxStride || int64(size)/entries < 2 {
		return 0
	}
	return int(int64(size) / entries)
}

// How a column is stored. The high bytes of numbers are all the same, and their lowest ones as good as random: neither
// is worth the time of the compressor.
const (
	columnPacked   = 0 // In the compressed part of the block.
	columnConstant = 1 // As one byte.
	columnPlain    = 2 // In the part that is not compressed.
)

// columns adds data's columns to the block: the bytes 0, stride, 2 stride, ..., then 1, stride + 1, ..., each behind a byte
// that says how it is stored. Without a stride it adds data as it is.
func (w *Writer) columns(data []byte, stride int) {
	if stride == 0 {
		w.raw = append(w.raw, data...)
		return
	}
	rows := len(data) / stride
	w.raw = slices.Grow(w.raw, len(data)+stride)
	for c := range stride {
		head := len(w.raw)
		column := w.raw[head+1 : head+1+rows]
		first, same := data[c], byte(0)
		for i, at := 0, c; i < len(column); i, at = i+1, at+stride {
			b := data[at]
			column[i] = b
			same |= b ^ first
		}
		switch {
		case same == 0:
			w.raw = append(w.raw[:head], columnConstant, first)
		case random(column):
			w.raw = append(w.raw[:head], columnPlain)
			w.plain = append(w.plain, column...)
		default:
			column := w.raw[head : head+1+rows]
			column[0] = columnPacked
			w.raw = w.raw[:head+1+rows]
		}
	}
}

// sampled is how many bytes of a column random looks at: enough that chance makes less than a tenth of difference.
const sampled = 512

// random tells whether compression would save less than a few percent of a column. It counts the pairs of equal bytes: among
// random ones every 256th pair is one, and with a surplus of an eighth a byte still has 7.8 bits.
func random(column []byte) bool {
	if len(column) < sampled {
		return false
	}
	var counts [256]uint16
	pairs := 0
	for _, b := range column[:sampled] {
		pairs += int(counts[b])
		counts[b]++
	}
	return pairs < sampled*(sampled-1)/2/256*9/8
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}
