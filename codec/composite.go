package codec

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// A composite is a codec that operators keep their states with: numbers and flags around values whose schemas its shape
// names. The codecs themselves are generic and live with the operators; what is here is the same encodings without the Go
// types, and tests there compare the two.
type composite struct {
	parts   int                                                    // Schemas in the shape, separated by commas.
	prefix  func(shape string) (count int, rest string, err error) // What is before them, or nil.
	key     bool                                                   // Of keys, which begin with the user's key: the first part.
	members []compositeMember                                      // Of the Object, in order.
	split   func(l *Layout, c *partCursor, p *Parts)               // Takes an encoding apart.
	join    func(l *Layout, dst []byte, p *Parts) ([]byte, error)  // Puts one together.
}

// compositeMember is a member of the Object that a value is.
type compositeMember struct {
	name string
	kind memberKind
	at   int // Index in Nums or Vals.
	part int // Index of the layout.
}

type memberKind uint8

const (
	memberNumber   memberKind = iota
	memberTime                // Milliseconds since 1970.
	memberFlag                // A number that is 0 or 1.
	memberPart                // A value.
	memberOptional            // A value that may be missing.
	memberList                // The values of Elems.
)

// Parts are what a value of a composite codec consists of: its numbers, the encodings of the values that it always or
// sometimes has (nil where it is missing), and of those of which it has several. What they are, see the codecs below.
type Parts struct {
	Nums  []int64
	Vals  [][]byte
	Elems [][]byte
}

// Numbers of a list's elements that are stored together, as the codec of list parts has them.
const listPart = 4

var composites = map[string]*composite{
	// A value of a state with a time to live. Nums: the time its age is counted from. Vals: the value.
	"aged": {
		parts: 1, members: []compositeMember{{"from", memberTime, 0, 0}, {"value", memberPart, 0, 0}},
		split: func(l *Layout, c *partCursor, p *Parts) { c.word(p); c.part(l, p, 0) },
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			return append(appendWord(dst, p.Nums[0]), p.Vals[0]...), nil
		},
	},
	// A key of timers, windows and lists. Nums: the time, or the number of the list. Vals: the user's key.
	"key-time": {
		parts: 1, key: true, members: []compositeMember{{"key", memberPart, 0, 0}, {"time", memberTime, 0, 0}},
		split: func(l *Layout, c *partCursor, p *Parts) { c.part(l, p, 0); c.word(p) },
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			return appendWord(append(dst, p.Vals[0]...), p.Nums[0]), nil
		},
	},
	// A key of a map's entries. Vals: the user's key, the map key.
	"map-key": {
		parts: 2, key: true, members: []compositeMember{{"key", memberPart, 0, 0}, {"map_key", memberPart, 1, 1}},
		split: func(l *Layout, c *partCursor, p *Parts) { c.part(l, p, 0); c.part(l, p, 1) },
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			return append(append(dst, p.Vals[0]...), p.Vals[1]...), nil
		},
	},
	// The beginning of a map's entries. Nums: how many there are. Vals: the first one's key.
	"map-head": {
		parts: 1, members: []compositeMember{{"entries", memberNumber, 0, 0}, {"first", memberPart, 0, 0}},
		split: func(l *Layout, c *partCursor, p *Parts) {
			if c.word(p); c.err == nil && p.Nums[0] < 1 {
				c.err = fmt.Errorf("a map of %d entries", p.Nums[0])
			}
			c.part(l, p, 0)
		},
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			if p.Nums[0] < 1 {
				return dst, fmt.Errorf("a map of %d entries: want at least 1", p.Nums[0])
			}
			return append(appendWord(dst, p.Nums[0]), p.Vals[0]...), nil
		},
	},
	// An entry of a map. Vals: the keys of the entries before and behind it, the value.
	"map-entry": {
		parts: 2,
		members: []compositeMember{
			{"prev", memberOptional, 0, 0}, {"next", memberOptional, 1, 0}, {"value", memberPart, 2, 1},
		},
		split: func(l *Layout, c *partCursor, p *Parts) {
			flags := c.byte()
			if flags > 3 {
				c.err = fmt.Errorf("flags %08b of a map's entry", flags)
			}
			c.optional(l, p, 0, flags&1 != 0)
			c.optional(l, p, 0, flags&2 != 0)
			c.part(l, p, 1)
		},
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			var flags byte
			for i := range 2 {
				if p.Vals[i] != nil {
					flags |= 1 << i
				}
			}
			dst = append(dst, flags)
			return append(append(append(dst, p.Vals[0]...), p.Vals[1]...), p.Vals[2]...), nil
		},
	},
	// The head of a list. Nums: the number of its first element, and that behind its last one. Elems: those of the last part.
	"list-head": {
		parts: 1,
		members: []compositeMember{
			{"first", memberNumber, 0, 0}, {"next", memberNumber, 1, 0}, {"elements", memberList, 0, 0},
		},
		split: func(l *Layout, c *partCursor, p *Parts) {
			c.word(p)
			c.word(p)
			n, err := heldElements(p.Nums)
			if c.err == nil {
				c.err = err
			}
			c.list(l, p, n)
		},
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			n, err := heldElements(p.Nums)
			if err == nil && len(p.Elems) != n {
				err = fmt.Errorf("a list from %d to %d has %d elements in its last part, not %d", p.Nums[0], p.Nums[1], n, len(p.Elems))
			}
			return appendAll(appendWord(appendWord(dst, p.Nums[0]), p.Nums[1]), p.Elems), err
		},
	},
	// A part of a list. Nums: how many of its elements are gone. Elems: the others.
	"list-part": {
		parts: 1, members: []compositeMember{{"gone", memberNumber, 0, 0}, {"elements", memberList, 0, 0}},
		split: func(l *Layout, c *partCursor, p *Parts) {
			gone := int(c.byte())
			if gone >= listPart && c.err == nil {
				c.err = fmt.Errorf("a list's part of which %d elements are gone", gone)
			}
			p.Nums = append(p.Nums, int64(gone))
			c.list(l, p, listPart-gone)
		},
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			if p.Nums[0] < 0 || p.Nums[0] >= listPart || int(p.Nums[0])+len(p.Elems) != listPart {
				return dst, fmt.Errorf("a list's part of %d elements and %d that are gone: want %d in all", len(p.Elems), p.Nums[0], listPart)
			}
			return appendAll(append(dst, byte(p.Nums[0])), p.Elems), nil
		},
	},
	// A key of a list's parts. Nums: the list's number, the part's. Vals: the user's key.
	"list-item": {
		parts: 1, key: true,
		members: []compositeMember{{"key", memberPart, 0, 0}, {"list", memberNumber, 0, 0}, {"part", memberNumber, 1, 0}},
		split:   func(l *Layout, c *partCursor, p *Parts) { c.part(l, p, 0); c.varint(p); c.uvarint(p) },
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			if p.Nums[1] < 0 {
				return dst, fmt.Errorf("part %d of a list", p.Nums[1])
			}
			return binary.AppendUvarint(binary.AppendVarint(append(dst, p.Vals[0]...), p.Nums[0]), uint64(p.Nums[1])), nil
		},
	},
	// A session. Nums: the times of its first and last record, when its key is looked at, how many sessions are behind it,
	// whether it was emitted. Vals: the accumulator.
	"session": {
		parts: 1,
		members: []compositeMember{
			{"first", memberTime, 0, 0}, {"last", memberTime, 1, 0}, {"next", memberTime, 2, 0},
			{"more", memberNumber, 3, 0}, {"fired", memberFlag, 4, 0}, {"acc", memberPart, 0, 0},
		},
		split: func(l *Layout, c *partCursor, p *Parts) {
			var raw Parts
			c.word(&raw)
			c.word(&raw)
			c.uvarint(&raw)
			c.uvarint(&raw)
			n := raw.Nums
			if c.err == nil && n[3]>>1 > math.MaxInt32 {
				c.err = fmt.Errorf("%d sessions of a key", n[3]>>1)
			}
			p.Nums = append(p.Nums, n[0], n[0]+n[2], n[1], n[3]>>1, n[3]&1)
			c.part(l, p, 0)
		},
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			n := p.Nums
			if n[1]-n[0] < 0 || n[3] < 0 || n[3] > math.MaxInt32 {
				return dst, fmt.Errorf("a session from %d to %d with %d more", n[0], n[1], n[3])
			}
			dst = appendWord(appendWord(dst, n[0]), n[2])
			dst = binary.AppendUvarint(binary.AppendUvarint(dst, uint64(n[1]-n[0])), uint64(n[3]<<1|n[4]))
			return append(dst, p.Vals[0]...), nil
		},
	},
	// Panes of sliding windows, one behind the other. Nums: a bit for each pane that has records. Elems: their accumulators.
	"panes": {
		parts: 1, prefix: panesPrefix,
		members: []compositeMember{{"has", memberNumber, 0, 0}, {"panes", memberList, 0, 0}},
		split: func(l *Layout, c *partCursor, p *Parts) {
			has := int64(c.byte())
			n, err := panesOf(has, l.count)
			if c.err == nil {
				c.err = err
			}
			p.Nums = append(p.Nums, has)
			c.list(l, p, n)
		},
		join: func(l *Layout, dst []byte, p *Parts) ([]byte, error) {
			n, err := panesOf(p.Nums[0], l.count)
			if err == nil && n != len(p.Elems) {
				err = fmt.Errorf("%d panes, but %d accumulators", n, len(p.Elems))
			}
			return appendAll(append(dst, byte(p.Nums[0])), p.Elems), err
		},
	},
	// A window with a trigger. Nums: how many records it has, the time of the last one, when it is looked at next, whether it
	// was emitted. Vals: the accumulator.
	"firing": {
		parts: 1,
		members: []compositeMember{
			{"count", memberNumber, 0, 0}, {"last", memberTime, 1, 0}, {"next", memberTime, 2, 0},
			{"fired", memberFlag, 3, 0}, {"acc", memberOptional, 0, 0},
		},
		split: func(l *Layout, c *partCursor, p *Parts) {
			c.word(p)
			c.word(p)
			c.word(p)
			flags := c.byte()
			if flags > 3 && c.err == nil {
				c.err = fmt.Errorf("flags %08b of a window", flags)
			}
			p.Nums = append(p.Nums, int64(flags&1))
			c.optional(l, p, 0, flags&2 != 0)
		},
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			for _, n := range p.Nums[:3] {
				dst = appendWord(dst, n)
			}
			flags := byte(p.Nums[3])
			if p.Vals[0] != nil {
				flags |= 2
			}
			return append(append(dst, flags), p.Vals[0]...), nil
		},
	},
	// The records of a window, in order. Elems: the records.
	"list": {
		parts: 1, members: []compositeMember{{"elements", memberList, 0, 0}},
		split: func(l *Layout, c *partCursor, p *Parts) {
			var n Parts
			if c.uvarint(&n); c.err == nil {
				c.list(l, p, int(n.Nums[0]))
			}
		},
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			return appendAll(binary.AppendUvarint(dst, uint64(len(p.Elems))), p.Elems), nil
		},
	},
	// Records of a key and window that were combined before they were sent. Nums: the window, how many. Vals: key, accumulator.
	"combined": {
		parts: 2,
		members: []compositeMember{
			{"key", memberPart, 0, 0}, {"span", memberNumber, 0, 0}, {"count", memberNumber, 1, 0}, {"acc", memberPart, 1, 1},
		},
		split: func(l *Layout, c *partCursor, p *Parts) { c.part(l, p, 0); c.uvarint(p); c.uvarint(p); c.part(l, p, 1) },
		join: func(_ *Layout, dst []byte, p *Parts) ([]byte, error) {
			if p.Nums[0] < 0 || p.Nums[1] < 0 {
				return dst, fmt.Errorf("%d records of window %d", p.Nums[1], p.Nums[0])
			}
			dst = append(dst, p.Vals[0]...)
			return append(binary.AppendUvarint(binary.AppendUvarint(dst, uint64(p.Nums[0])), uint64(p.Nums[1])), p.Vals[1]...), nil
		},
	},
}

// heldElements is how many elements the head of a list holds.
func heldElements(nums []int64) (int, error) {
	if len(nums) < 2 {
		return 0, nil // Cut short, which is an error already.
	}
	first, next := nums[0], nums[1]
	if first < 0 || next <= first {
		return 0, fmt.Errorf("the head of a list has elements %d to %d", first, next)
	}
	start := (next - 1) / listPart * listPart
	return int(next - max(first, start)), nil
}

// panesPrefix reads 8x3600000ms: of a shape.
func panesPrefix(shape string) (int, string, error) {
	head, rest, ok := strings.Cut(shape, ":")
	panes, pane, ok2 := strings.Cut(head, "x")
	n, err := strconv.Atoi(panes)
	_, err2 := strconv.ParseInt(strings.TrimSuffix(pane, "ms"), 10, 64)
	if !ok || !ok2 || err != nil || err2 != nil || !strings.HasSuffix(pane, "ms") || n < 1 || n > 8 {
		return 0, "", fmt.Errorf("shape %.80q: want COUNTxMILLISECONDSms:SCHEMA with 1 to 8 panes", shape)
	}
	return n, rest, nil
}

// panesOf counts the panes that have records.
func panesOf(has int64, panes int) (int, error) {
	if has <= 0 || has>>panes != 0 {
		return 0, fmt.Errorf("panes %b of %d", has, panes)
	}
	n := 0
	for ; has != 0; has &= has - 1 {
		n++
	}
	return n, nil
}

func appendWord(dst []byte, n int64) []byte { return binary.LittleEndian.AppendUint64(dst, uint64(n)) }

func appendAll(dst []byte, list [][]byte) []byte {
	for _, b := range list {
		dst = append(dst, b...)
	}
	return dst
}

// partCursor reads an encoding from the front. After an error it reads nothing more.
type partCursor struct {
	src []byte
	pos int
	err error
}

func (c *partCursor) byte() byte {
	if c.err == nil && c.pos >= len(c.src) {
		c.err = truncated(c.pos, 1, 0)
	}
	if c.err != nil {
		return 0
	}
	c.pos++
	return c.src[c.pos-1]
}

func (c *partCursor) word(p *Parts) {
	if c.err == nil && len(c.src)-c.pos < 8 {
		c.err = truncated(c.pos, 8, len(c.src)-c.pos)
	}
	var n int64
	if c.err == nil {
		n = int64(binary.LittleEndian.Uint64(c.src[c.pos:]))
		c.pos += 8
	}
	p.Nums = append(p.Nums, n)
}

func (c *partCursor) uvarint(p *Parts) {
	n, size := uint64(0), 0
	if c.err == nil {
		if n, size = binary.Uvarint(c.src[c.pos:]); size <= 0 || n > math.MaxInt64 || size > 1 && c.src[c.pos+size-1] == 0 {
			c.err = fmt.Errorf("malformed number at offset %d", c.pos)
			n, size = 0, 0
		}
	}
	c.pos += size
	p.Nums = append(p.Nums, int64(n))
}

func (c *partCursor) varint(p *Parts) {
	n, size := int64(0), 0
	if c.err == nil {
		if n, size = binary.Varint(c.src[c.pos:]); size <= 0 || size > 1 && c.src[c.pos+size-1] == 0 {
			c.err = fmt.Errorf("malformed number at offset %d", c.pos)
			n, size = 0, 0
		}
	}
	c.pos += size
	p.Nums = append(p.Nums, n)
}

func (c *partCursor) take(l *Layout) []byte {
	if c.err != nil {
		return nil
	}
	n, err := l.Len(c.src[c.pos:])
	if err != nil {
		c.err = fmt.Errorf("at offset %d: %w", c.pos, err)
		return nil
	}
	b := c.src[c.pos : c.pos+n : c.pos+n]
	c.pos += n
	return b
}

func (c *partCursor) part(l *Layout, p *Parts, i int) { p.Vals = append(p.Vals, c.take(l.parts[i])) }

func (c *partCursor) optional(l *Layout, p *Parts, i int, present bool) {
	if present {
		c.part(l, p, i)
		return
	}
	p.Vals = append(p.Vals, nil)
}

// list takes n values.
func (c *partCursor) list(l *Layout, p *Parts, n int) {
	for i := 0; i < n && c.err == nil; i++ {
		before := c.pos
		p.Elems = append(p.Elems, c.take(l.parts[0]))
		if c.pos == before && n > listPart && c.err == nil {
			c.err = errors.New("a list of values that take no bytes") // Its length could be anything.
		}
	}
}

// Split takes the value of a composite codec at the front of src apart, into p, whose memory is used again. The parts share
// memory with src.
func (l *Layout) Split(src []byte, p *Parts) (int, error) {
	p.Nums, p.Vals, p.Elems = p.Nums[:0], p.Vals[:0], p.Elems[:0]
	if l.comp == nil {
		return 0, fmt.Errorf("a value of codec %s has no parts", l.schema.Codec)
	}
	return l.split(src, p)
}

func (l *Layout) split(src []byte, p *Parts) (int, error) {
	c := partCursor{src: src}
	l.comp.split(l, &c, p)
	if c.err != nil {
		return 0, fmt.Errorf("%s: %w", l.schema.Codec, c.err)
	}
	return c.pos, nil
}

// Join appends the value of a composite codec with those parts. It is the opposite of Split.
func (l *Layout) Join(dst []byte, p Parts) ([]byte, error) {
	if l.comp == nil {
		return dst, fmt.Errorf("a value of codec %s has no parts", l.schema.Codec)
	}
	nums, vals := 0, 0
	for _, m := range l.comp.members {
		switch m.kind {
		case memberNumber, memberTime, memberFlag:
			nums++
		case memberPart, memberOptional:
			vals++
		}
	}
	if len(p.Nums) != nums || len(p.Vals) != vals {
		return dst, fmt.Errorf("%s: %d numbers and %d values, want %d and %d", l.schema.Codec, len(p.Nums), len(p.Vals), nums, vals)
	}
	out, err := l.comp.join(l, dst, &p)
	if err != nil {
		return dst, fmt.Errorf("%s: %w", l.schema.Codec, err)
	}
	return out, nil
}

func (l *Layout) decodeParts(src []byte) (any, int, error) {
	var p Parts
	n, err := l.split(src, &p)
	if err != nil {
		return nil, 0, err
	}
	whole := func(i int, b []byte) (any, error) {
		v, n, err := l.parts[i].Decode(b)
		if err == nil && n != len(b) {
			err = fmt.Errorf("%d of %d bytes decoded", n, len(b))
		}
		return v, err
	}
	o := make(Object, 0, len(l.comp.members))
	for _, m := range l.comp.members {
		var v any
		var err error
		switch m.kind {
		case memberNumber:
			v = p.Nums[m.at]
		case memberTime:
			v = MillisValue(p.Nums[m.at])
		case memberFlag:
			v = p.Nums[m.at] != 0
		case memberOptional, memberPart:
			if p.Vals[m.at] == nil && m.kind == memberOptional {
				continue
			}
			v, err = whole(m.part, p.Vals[m.at])
		case memberList:
			list := make([]any, len(p.Elems))
			for i, b := range p.Elems {
				if list[i], err = whole(m.part, b); err != nil {
					break
				}
			}
			v = list
		}
		if err != nil {
			return nil, 0, fmt.Errorf("%s: %s: %w", l.schema.Codec, m.name, err)
		}
		o = append(o, Member{m.name, v})
	}
	return o, n, nil
}

// MillisValue is what a Dynamic makes of milliseconds since 1970: a time.Time, or the number where JSON has no such time.
func MillisValue(ms int64) any {
	at := time.UnixMilli(ms).UTC()
	if _, ok := timeValue(at).(time.Time); ok && at.UnixMilli() == ms {
		return at
	}
	return ms
}
