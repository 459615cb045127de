package grpc

import (
	"encoding/binary"
	"fmt"
	"io"
	"math"

	"google.golang.org/grpc/mem"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// The entries of messages from the sender to the receiver; FORMAT.md has their layout.
const (
	entryOpen    = 1
	entryFrame   = 2
	entryControl = 3
	entryClose   = 4
)

// The entries of messages from the receiver to the sender.
const (
	replyAccept = 1
	replyRefuse = 2
	replyCredit = 3
	replyClosed = 4
	replyBeat   = 5
	replyPace   = 6
)

// Sizes of messages. A frame that does not fit goes in pieces, so that no message comes near
// gRPC's own limit of 4 MiB and no large frame holds the others up for long.
const (
	maxMessage = 256 << 10 // A message takes no further entry beyond this.
	maxText    = 4 << 10   // Of an error that is told to the peer.
	smallFrame = 1 << 10   // Up to this size copying is cheaper than a buffer of its own.
)

// frameOverhead is what a frame costs of its channel's window beside its bytes: about what the two
// ends spend on keeping it. It bounds the number of small frames in flight.
const frameOverhead = 256

func frameCost(n int) int64 { return int64(n) + frameOverhead }

// A receiver is slow when it wants batches of fewer rows than slowPace. What is under way to it is bounded by frames then
// too: hundreds of frames of one row fit in a window, and a barrier waits behind them.
const (
	slowPace   = 64
	slowFrames = 4
	fastPace   = 1 << 10 // From here on a sender need not know better.
	fullPace   = 1 << 20 // More rows than any batch has.
)

// item is one entry that waits to be written.
type item struct {
	kind    byte
	number  uint32         // Of the channel, within its stream.
	control record.Control // Of entryControl.
	channel job.Channel    // Of entryOpen.
	text    string         // Of entryClose.
	frame   *[]byte        // Of entryFrame.
	rest    mem.Buffer     // What is left of a frame that goes in pieces; frame is nil by then.
	total   int            // Bytes of that frame.
}

// release gives back what an item that is not written holds.
func (it *item) release() {
	if it.frame != nil {
		buffers.Put(it.frame)
	}
	if it.rest != nil {
		it.rest.Free()
	}
}

// message builds one gRPC message. What is small follows one behind the other in head; the large
// frames lie between as buffers of their own.
type message struct {
	head     *[]byte
	segments []segment
	size     int
}

// segment is a part of a message: a buffer, or a range of head.
type segment struct {
	buf      mem.Buffer
	from, to int
}

// add writes it, or as much of a large frame as there is room for. It tells whether that was all.
func (m *message) add(it *item) bool {
	if m.head == nil {
		m.head = buffers.Get(4 << 10)
		*m.head = (*m.head)[:0]
	}
	from := len(*m.head)
	h := append(*m.head, it.kind)
	h = binary.AppendUvarint(h, uint64(it.number))
	switch it.kind {
	case entryOpen:
		h = binary.AppendUvarint(h, uint64(it.channel.Edge))
		h = binary.AppendUvarint(h, uint64(it.channel.From))
		h = binary.AppendUvarint(h, uint64(it.channel.To))
	case entryControl:
		h = appendControl(h, it.control)
	case entryClose:
		h = appendText(h, it.text)
	case entryFrame:
		return m.addFrame(it, from, h)
	}
	m.extend(from, h)
	return true
}

func (m *message) addFrame(it *item, from int, h []byte) bool {
	if it.frame != nil && len(*it.frame) <= smallFrame {
		n := uint64(len(*it.frame))
		h = binary.AppendUvarint(h, n)
		h = binary.AppendUvarint(h, n)
		h = append(h, *it.frame...)
		m.extend(from, h)
		it.release()
		it.frame = nil
		return true
	}
	if it.frame != nil {
		it.total = len(*it.frame)
		it.rest = mem.NewBuffer(it.frame, buffers)
		it.frame = nil
	}
	left := it.rest.Len()
	n := min(left, max(maxMessage-m.size, maxMessage/2))
	h = binary.AppendUvarint(h, uint64(it.total))
	h = binary.AppendUvarint(h, uint64(n))
	m.extend(from, h)
	m.size += n
	if n == left {
		m.segments = append(m.segments, segment{buf: it.rest})
		it.rest = nil
		return true
	}
	m.segments = append(m.segments, segment{buf: it.rest.Slice(0, n)})
	rest := it.rest.Slice(n, left)
	it.rest.Free()
	it.rest = rest
	return false
}

// extend makes h, which continues head from there on, the new head.
func (m *message) extend(from int, h []byte) {
	*m.head = h
	m.size += len(h) - from
	if n := len(m.segments); n > 0 && m.segments[n-1].buf == nil {
		m.segments[n-1].to = len(h)
		return
	}
	m.segments = append(m.segments, segment{from: from, to: len(h)})
}

// take returns the message, which the caller owns, and starts a new one.
func (m *message) take() mem.BufferSlice {
	if m.head == nil {
		return nil
	}
	out := make(mem.BufferSlice, 0, len(m.segments))
	head := mem.NewBuffer(m.head, buffers)
	for _, s := range m.segments {
		if s.buf != nil {
			out = append(out, s.buf)
		} else {
			out = append(out, head.Slice(s.from, s.to))
		}
	}
	head.Free()
	clear(m.segments)
	*m = message{segments: m.segments[:0]}
	return out
}

// Flags of a control entry.
const (
	controlFinal = 1 << iota
	controlFull
	controlSavepoint
	controlStop
)

// modes are the checkpoint modes by their number on the wire.
var modes = [...]job.Mode{"", job.ExactlyOnce, job.AtLeastOnce, job.Off}

func appendControl(dst []byte, c record.Control) []byte {
	flags, mode := byte(0), byte(0)
	for flag, set := range map[byte]bool{controlFinal: c.Final, controlFull: c.Full, controlSavepoint: c.Savepoint, controlStop: c.Stop} {
		if set {
			flags |= flag
		}
	}
	for i, m := range modes {
		if m == c.Mode {
			mode = byte(i)
		}
	}
	dst = append(dst, byte(c.Kind), flags, mode)
	dst = binary.AppendUvarint(dst, uint64(c.Checkpoint))
	dst = binary.AppendUvarint(dst, uint64(c.Committed))
	return binary.AppendVarint(dst, c.Started)
}

func appendText(dst []byte, s string) []byte {
	s = s[:min(len(s), maxText)]
	dst = binary.AppendUvarint(dst, uint64(len(s)))
	return append(dst, s...)
}

// entries reads the entries of a message that arrived. After an error the message is of no
// further use; the error is in err, and all further reads give zeros.
type entries struct {
	r   *mem.Reader
	err error
}

func (e *entries) more() bool { return e.err == nil && e.r.Remaining() > 0 }

func (e *entries) fail(format string, args ...any) {
	if e.err == nil {
		e.err = fmt.Errorf(format, args...)
	}
}

func (e *entries) byte() byte {
	if e.err != nil {
		return 0
	}
	b, err := e.r.ReadByte()
	if err != nil {
		e.fail("truncated message")
	}
	return b
}

func (e *entries) uvarint() uint64 {
	if e.err != nil {
		return 0
	}
	v, err := binary.ReadUvarint(e.r)
	if err != nil {
		e.fail("bad number: %v", err)
		return 0
	}
	return v
}

func (e *entries) varint() int64 {
	if e.err != nil {
		return 0
	}
	v, err := binary.ReadVarint(e.r)
	if err != nil {
		e.fail("bad number: %v", err)
		return 0
	}
	return v
}

// length reads a number of bytes of at most limit that what describes.
func (e *entries) length(what string, limit int) int {
	v := e.uvarint()
	if v > uint64(limit) {
		e.fail("%s of %d bytes: the limit is %d", what, v, limit)
		return 0
	}
	return int(v)
}

func (e *entries) number() uint32 {
	v := e.uvarint()
	if v > math.MaxUint32 {
		e.fail("channel number %d is out of range", v)
		return 0
	}
	return uint32(v)
}

// fill reads exactly len(dst) bytes.
func (e *entries) fill(dst []byte) {
	if e.err != nil {
		return
	}
	if _, err := io.ReadFull(e.r, dst); err != nil {
		e.fail("truncated message")
	}
}

func (e *entries) skip(n int) {
	if e.err != nil {
		return
	}
	if _, err := e.r.Discard(n); err != nil {
		e.fail("truncated message")
	}
}

func (e *entries) text() string {
	b := make([]byte, e.length("text", maxText))
	e.fill(b)
	return string(b)
}

func (e *entries) channel() job.Channel {
	var v [3]int
	for i := range v {
		n := e.uvarint()
		if n > math.MaxInt32 {
			e.fail("channel index %d is out of range", n)
			n = 0
		}
		v[i] = int(n)
	}
	return job.Channel{Edge: v[0], From: v[1], To: v[2]}
}

func (e *entries) control() record.Control {
	kind, flags, mode := e.byte(), e.byte(), e.byte()
	c := record.Control{Kind: record.ControlKind(kind), Final: flags&controlFinal != 0}
	c.Full, c.Savepoint, c.Stop = flags&controlFull != 0, flags&controlSavepoint != 0, flags&controlStop != 0
	c.Checkpoint = job.CheckpointID(e.uvarint())
	c.Committed = job.CheckpointID(e.uvarint())
	c.Started = e.varint()
	if kind < byte(record.Barrier) || kind > byte(record.Close) || int(mode) >= len(modes) {
		e.fail("unknown control event: kind %d, mode %d", kind, mode)
		return c
	}
	c.Mode = modes[mode]
	return c
}

// The codec that takes messages through gRPC as they are.

// outgoing is a message to send; gRPC frees its buffers.
type outgoing struct{ data mem.BufferSlice }

// incoming is a message that arrived; whoever received it frees it.
type incoming struct{ data mem.BufferSlice }

type passthrough struct{}

func (passthrough) Name() string { return codecName }

func (passthrough) Marshal(v any) (mem.BufferSlice, error) {
	m, ok := v.(*outgoing)
	if !ok {
		return nil, fmt.Errorf("exchange: cannot marshal %T", v)
	}
	data := m.data
	m.data = nil
	return data, nil
}

func (passthrough) Unmarshal(data mem.BufferSlice, v any) error {
	m, ok := v.(*incoming)
	if !ok {
		return fmt.Errorf("exchange: cannot unmarshal into %T", v)
	}
	data.Ref()
	m.data = data
	return nil
}
