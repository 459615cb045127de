package stored

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/segment"
)

// wholeSection is below what a section is read at once.
const wholeSection = 1 << 20

// segmentReader reads a segment once, from its first byte to its last, and hashes all of it on the way.
type segmentReader struct {
	v      *verifier
	h      job.StateHandle
	ix     *segment.Index
	body   io.ReadCloser
	hash   xxh3.Hasher
	off    int64 // Bytes that were read.
	next   int   // Block.
	stored []byte
	raw    []byte
	held   heldRuns // Of the last block, for groups to come.
}

// openSegment reads the end of a segment, which says where its blocks are, and begins at its front.
func (v *verifier) openSegment(ctx context.Context, h job.StateHandle) (*segmentReader, error) {
	r := &segmentReader{v: v, h: h}
	if h.Length <= wholeSection {
		data, err := v.section(ctx, h)
		if err != nil {
			return nil, err
		}
		here := h
		here.Object, here.Offset, here.Inline = "", 0, data
		if r.ix, _, err = segment.Open(ctx, v.reader, here, v.m.K); err != nil {
			return nil, err
		}
		r.body = io.NopCloser(bytes.NewReader(data))
		return r, nil
	}
	var err error
	if r.ix, _, err = segment.Open(ctx, v.reader, h, v.m.K); err != nil {
		return nil, err
	}
	if r.body, err = v.reader.Range(ctx, h, 0, h.Length); err != nil {
		return nil, err
	}
	return r, nil
}

// section reads a section whole, and verifies it.
func (v *verifier) section(ctx context.Context, h job.StateHandle) ([]byte, error) {
	var b bytes.Buffer
	err := v.fetch(ctx, h, &b)
	return b.Bytes(), err
}

// fetch copies a section and compares its hash.
func (v *verifier) fetch(ctx context.Context, h job.StateHandle, to io.Writer) error {
	body, err := v.reader.Range(ctx, h, 0, h.Length)
	if err != nil {
		return err
	}
	in := &hashing{r: body, v: v}
	n, err := io.Copy(to, in)
	if err = errors.Join(err, body.Close()); err != nil {
		return err
	}
	if n != h.Length {
		return fmt.Errorf("%w: %d bytes of %d", io.ErrUnexpectedEOF, n, h.Length)
	}
	return compare(h, in.hash.Sum128())
}

func (r *segmentReader) close() { _ = r.body.Close() } // It was read only.

// take reads the next n bytes.
func (r *segmentReader) take(n int64) ([]byte, error) {
	if int64(cap(r.stored)) < n {
		r.stored = make([]byte, n)
	}
	b := r.stored[:n]
	if _, err := io.ReadFull(r.body, b); err != nil {
		return nil, fmt.Errorf("at byte %d: %w", r.off, err)
	}
	if r.h.Length > wholeSection {
		_, _ = r.hash.Write(b)
		r.v.read(len(b))
	}
	r.off += n
	return b, nil
}

// block reads the next block; false when there is none.
func (r *segmentReader) block(visit func(run) error) (bool, error) {
	if r.next == len(r.ix.Blocks) {
		return false, nil
	}
	b := r.ix.Blocks[r.next]
	r.next++
	if _, err := r.take(b.Offset - r.off); err != nil { // The magic word.
		return false, err
	}
	stored, err := r.take(b.Stored)
	if err != nil {
		return false, err
	}
	c, err := b.Decode(stored, &r.raw)
	if err != nil {
		return false, err
	}
	return true, runs(b, c, visit)
}

// group visits the runs of a key group. Groups come in ascending order.
func (r *segmentReader) group(g int, visit func(run) error) error {
	return r.held.group(g, func() bool { return r.next < len(r.ix.Blocks) && r.ix.Blocks[r.next].First <= g }, r.block, visit)
}

// end reads what is behind the blocks and compares the hash of all.
func (r *segmentReader) end() error {
	for r.off < r.h.Length {
		if _, err := r.take(min(r.h.Length-r.off, wholeSection)); err != nil {
			return err
		}
	}
	if r.h.Length <= wholeSection {
		return nil
	}
	return compare(r.h, r.hash.Sum128())
}

func compare(h job.StateHandle, sum xxh3.Uint128) error {
	b := sum.Bytes()
	if got := hex.EncodeToString(b[:]); got != h.Hash {
		return corrupt("%d bytes with hash %s, the checkpoint has %s", h.Length, got, h.Hash)
	}
	return nil
}

// where names what an error is about.
func where(h job.StateHandle, err error) error {
	what := fmt.Sprintf("state %q", h.Name)
	if h.Kind == statebackend.KindFile {
		what = "file " + h.Name
	}
	if h.Object == "" {
		return fmt.Errorf("%s, inline: %w", what, err)
	}
	return fmt.Errorf("%s, bytes %d to %d: %w", what, h.Offset, h.Offset+h.Length, err)
}

// chain verifies a state of one subtask: a segment with all, and those of changes.
func (v *verifier) chain(ctx context.Context, of Concern, c statebackend.Chain) error {
	var list []*segmentReader
	defer func() {
		for _, r := range list {
			r.close()
		}
	}()
	whole := true
	for _, h := range c {
		if v.lost[h.Object] {
			whole = false
			continue
		}
		r, err := v.openSegment(ctx, h)
		if err == nil && (r.ix.Operator != of.Operator || r.ix.State != of.State) {
			err = content("it is state %q of operator %q", r.ix.State, r.ix.Operator)
		}
		if err != nil {
			whole = false
			if r != nil {
				r.close()
			}
			if err := v.failed(ctx, v.at(h), []Concern{of}, where(h, err)); err != nil {
				return err
			}
			continue
		}
		list = append(list, r)
	}
	l := v.layoutsOf(of, c[0].Key, c[0].Codec)
	if whole && len(c) > 1 && l.key != nil && l.value != nil {
		return v.merge(ctx, of, c, list, l)
	}
	for _, r := range list {
		order := keyOrder{group: -1}
		err := r.all(ctx, func(x run) error {
			if !r.ix.Sorted {
				return l.verify(x, v.m.K, nil)
			}
			return errors.Join(l.verify(x, v.m.K, order.of(x.group)), order.err)
		})
		if err := v.failed(ctx, v.at(r.h), []Concern{of}, wrapWhere(r.h, err)); err != nil {
			return err
		}
		v.entries(r.ix.Entries + r.ix.Removed)
	}
	return nil
}

// keyOrder finds keys that a segment which says that it is sorted has out of order.
type keyOrder struct {
	group int
	last  []byte // Nil before a group's first.
	err   error
}

// of is told the keys of a run.
func (o *keyOrder) of(group int) func(key []byte) {
	if group != o.group {
		o.group, o.last = group, nil
	}
	return func(key []byte) {
		if o.last != nil && bytes.Compare(key, o.last) <= 0 && o.err == nil {
			o.err = content("key group %d: the segment is said to be sorted, and key %x comes after %x", group, key[:min(len(key), 32)], o.last[:min(len(o.last), 32)])
		}
		if o.last = append(o.last[:0], key...); o.last == nil {
			o.last = []byte{}
		}
	}
}

func wrapWhere(h job.StateHandle, err error) error {
	if err == nil {
		return nil
	}
	return where(h, err)
}

// all goes over all blocks, and what is behind them.
func (r *segmentReader) all(ctx context.Context, visit func(run) error) error {
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		more, err := r.block(visit)
		if err != nil {
			return err
		}
		if !more {
			return r.end()
		}
	}
}

// merge goes over the segments of a chain group by group, and counts the keys that the state has after each of them.
func (v *verifier) merge(ctx context.Context, of Concern, c statebackend.Chain, list []*segmentReader, l layouts) error {
	totals := make([]int64, len(list))
	keys := map[xxh3.Uint128]struct{}{}
	groups := c[0].Groups
	bad := func(r *segmentReader, err error) error {
		return v.failed(ctx, v.at(r.h), []Concern{of}, where(r.h, err))
	}
	for g := groups.First; g <= groups.Last; g++ {
		if err := ctx.Err(); err != nil {
			return err
		}
		clear(keys)
		for i, r := range list {
			err := r.group(g, func(x run) error {
				return l.verify(x, v.m.K, func(key []byte) {
					if h := xxh3.Hash128(key); x.removed {
						delete(keys, h)
					} else {
						keys[h] = struct{}{}
					}
				})
			})
			if err != nil {
				return bad(r, err) // The links behind it say nothing without it.
			}
			totals[i] += int64(len(keys))
		}
	}
	for i, r := range list {
		err := r.all(ctx, func(x run) error { return content("key group %d is out of order", x.group) })
		if err == nil && totals[i] != r.h.Entries {
			err = content("the state has %d entries after it, the checkpoint has %d", totals[i], r.h.Entries)
		}
		if err != nil {
			if err := bad(r, err); err != nil {
				return err
			}
		}
		v.entries(r.ix.Entries + r.ix.Removed)
	}
	return nil
}

// verify goes over the entries of a run, or over keys that are gone.
func (l layouts) verify(x run, k int, visit func(key []byte)) error {
	if l.key == nil || !x.removed && l.value == nil {
		return nil
	}
	data := x.data
	for i := range x.entries {
		n, err := l.key.Len(data)
		if err != nil {
			return content("key group %d, key of entry %d: %v", x.group, i, err)
		}
		key := data[:n]
		data = data[n:]
		if g, err := l.groupOf(key, k); err != nil || g != x.group {
			return content("key group %d, entry %d: its key belongs to key group %d (%v)", x.group, i, g, err)
		}
		if !x.removed {
			if n, err = l.value.Len(data); err != nil {
				return content("key group %d, value of entry %d: %v", x.group, i, err)
			}
			data = data[n:]
		}
		if visit != nil {
			visit(key)
		}
	}
	if len(data) > 0 {
		return content("key group %d: %d entries leave %d bytes", x.group, x.entries, len(data))
	}
	return nil
}

// list verifies operator state, item by item.
func (v *verifier) list(ctx context.Context, of Concern, h job.StateHandle) error {
	if v.lost[h.Object] {
		return nil
	}
	body, err := v.reader.Range(ctx, h, 0, h.Length)
	if err == nil {
		err = v.items(of, h, body)
		err = errors.Join(err, body.Close())
	}
	return v.failed(ctx, v.at(h), []Concern{of}, wrapWhere(h, err))
}

// items reads a list as snapshot.DecodeList does, in little memory: damage is told apart by the section's hash, which counts
// more than what cannot be read because of it.
func (v *verifier) items(of Concern, h job.StateHandle, body io.Reader) error {
	sum := &hashing{r: body, v: v}
	in := bufio.NewReaderSize(sum, 64<<10)
	err := v.listItems(of, h, in)
	if _, rest := io.Copy(io.Discard, in); rest != nil {
		return rest
	}
	if sum.n != h.Length {
		return fmt.Errorf("%w: %d bytes of %d", io.ErrUnexpectedEOF, sum.n, h.Length)
	}
	if damage := compare(h, sum.hash.Sum128()); damage != nil {
		return damage
	}
	return err
}

// hashing hashes what is read through it.
type hashing struct {
	r    io.Reader
	v    *verifier
	hash xxh3.Hasher
	n    int64
}

func (s *hashing) Read(p []byte) (int, error) {
	n, err := s.r.Read(p)
	_, _ = s.hash.Write(p[:n])
	s.n += int64(n)
	s.v.read(n)
	return n, err
}

func (v *verifier) listItems(of Concern, h job.StateHandle, in *bufio.Reader) error {
	var item *codec.Layout
	if items := itemSchema(h); items != "" {
		var err error
		if item, err = layout(items); err != nil {
			v.mu.Lock()
			v.report.Undecoded = append(v.report.Undecoded, of)
			v.mu.Unlock()
		}
	}
	head := make([]byte, snapshot.ListHead)
	if _, err := io.ReadFull(in, head); err != nil {
		return content("it is no list")
	}
	if err := snapshot.CheckListHead(head); err != nil {
		return content("%v", err)
	}
	count, err := binary.ReadUvarint(in)
	if err != nil || int64(count) != h.Entries {
		return content("a list of %d items, the checkpoint has %d", count, h.Entries)
	}
	var data bytes.Buffer
	for i := range count {
		n, err := binary.ReadUvarint(in)
		if err != nil || n > uint64(h.Length) {
			return content("item %d of the list is cut short", i)
		}
		data.Reset()
		if _, err := io.CopyN(&data, in, int64(n)); err != nil {
			return content("item %d of the list is cut short", i)
		}
		if item != nil {
			if took, err := item.Len(data.Bytes()); err != nil || took != data.Len() {
				return content("item %d of the list takes %d bytes of %d (%v)", i, took, data.Len(), err)
			}
		}
	}
	v.entries(int64(count))
	if n, err := io.CopyN(io.Discard, in, 9); n != 8 || !errors.Is(err, io.EOF) {
		return content("%d bytes behind the last item of the list, not 8", n)
	}
	return nil
}

// itemSchema is the schema of a list's items, in the form that layout takes; empty for bytes of the engine's own.
func itemSchema(h job.StateHandle) string {
	if rest, ok := strings.CutPrefix(h.Codec, "item:"); ok {
		return rest
	}
	if rest, ok := strings.CutPrefix(h.Codec, "entry:"); ok {
		return "map-key:" + rest
	}
	return ""
}
