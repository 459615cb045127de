package grpc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"
	"time"

	ggrpc "google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/status"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/internal/invariant"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// inbound is the receiving side of a link.
type inbound struct {
	server   *Server
	stream   ggrpc.ServerStream
	run      job.Run
	from     string              // The peer, for errors.
	channels map[uint32]*arrival // The receiving goroutine's.
	wake     chan struct{}       // There is something to answer.

	mu struct {
		sync.Mutex
		replies []reply
		credits []*arrival // Those with much of their window to give back.
	}
}

// reply is an answer to an open, or the news that the gate is closed.
type reply struct {
	kind   byte
	number uint32
	rows   int64
	text   string
}

// arrival is the receiving side of a channel. The receiving goroutine owns it, but for taken.
type arrival struct {
	in      *inbound
	number  uint32
	ch      job.Channel
	port    *exchange.Port
	ended   bool    // The Close control came.
	partial *[]byte // A frame of which not all pieces have come.
	have    int

	taken  atomic.Int64 // Credit that the sender has not got back yet,
	frames atomic.Int64 // and the frames that it is for.
	told   atomic.Int64 // The pace that the sender knows.
}

func newInbound(s *Server, stream ggrpc.ServerStream, run job.Run, from string) *inbound {
	return &inbound{
		server: s, stream: stream, run: run, from: from,
		channels: map[uint32]*arrival{}, wake: make(chan struct{}, 1),
	}
}

// receive delivers what arrives until the stream ends, with nil when the sender ended it.
func (in *inbound) receive() error {
	for {
		var m incoming
		if err := in.stream.RecvMsg(&m); err != nil {
			if errors.Is(err, io.EOF) {
				return nil
			}
			return in.server.cause(err)
		}
		e := entries{r: m.data.Reader()}
		m.data.Free()
		for e.more() {
			in.entry(&e)
		}
		_ = e.r.Close()
		if e.err != nil {
			return fmt.Errorf("bad message: %w", e.err)
		}
	}
}

// end breaks the gates of the channels that the stream's end cut off, but for those of a run that
// was removed: nobody is interested in them.
func (in *inbound) end(cause error) {
	if cause == nil {
		cause = errors.New("the sender ended the stream")
	}
	for _, a := range in.channels {
		in.part(a, cause)
	}
}

func (in *inbound) entry(e *entries) {
	kind, number := e.byte(), e.number()
	a := in.channels[number] // nil when it was refused, or closed by either end.
	switch kind {
	case entryOpen:
		ch := e.channel()
		switch {
		case e.err != nil:
		case a != nil:
			e.fail("channel number %d is in use", number)
		default:
			in.open(number, ch)
		}
	case entryFrame:
		total := e.length("frame", in.server.opts.MaxFrame)
		n := e.length("piece of a frame", total)
		if a == nil {
			e.skip(n)
			return
		}
		in.frame(a, total, n, e)
	case entryControl:
		c := e.control()
		if a != nil && e.err == nil {
			if c.Kind == record.Close {
				a.ended = true
			}
			in.delivered(a, a.port.Control(c))
		}
	case entryClose:
		why := e.text()
		if a != nil && e.err == nil {
			in.part(a, errors.New(why))
		}
	default:
		e.fail("unknown entry %d", kind)
	}
}

func (in *inbound) open(number uint32, ch job.Channel) {
	port, err := in.server.dir.Lookup(in.run, ch)
	if err == nil && !in.server.claim(port) {
		err = fmt.Errorf("channel %v of job %s attempt %d is open already", ch, in.run.Job, in.run.Attempt)
	}
	if err != nil {
		in.reply(reply{kind: replyRefuse, number: number, text: err.Error()})
		return
	}
	a := &arrival{in: in, number: number, ch: ch, port: port}
	rows := a.pace()
	a.told.Store(rows)
	in.channels[number] = a
	in.reply(reply{kind: replyAccept, number: number, rows: rows})
}

// frame takes n bytes of a frame of total bytes and delivers it when it is whole. The bytes are
// copied once, because they come in pieces of at most 16 KiB, the size of an HTTP/2 frame, and a
// view would keep such a piece alive for every small frame in it.
func (in *inbound) frame(a *arrival, total, n int, e *entries) {
	if a.partial == nil {
		a.partial, a.have = buffers.Get(total), 0
	}
	if len(*a.partial) != total || a.have+n > total {
		e.fail("pieces of frames of channel %v do not fit together", a.ch)
	}
	if e.err != nil {
		return
	}
	e.fill((*a.partial)[a.have : a.have+n])
	if a.have += n; a.have < total || e.err != nil {
		return
	}
	p := parcels.Get().(*parcel)
	p.buf, p.to = a.partial, a
	a.partial = nil
	m := in.server.opts.Metrics
	m.received.Inc()
	m.receivedBytes.Add(float64(total))
	in.delivered(a, a.port.Frame(exchange.Frame{Bytes: *p.buf, Free: p.free}))
}

// delivered looks at the outcome of a delivery: the sender is told of a closed gate.
func (in *inbound) delivered(a *arrival, err error) {
	if err == nil {
		return
	}
	in.forget(a)
	in.reply(reply{kind: replyClosed, number: a.number})
}

// part ends a channel and breaks its gate if it had not ended itself.
func (in *inbound) part(a *arrival, cause error) {
	in.forget(a)
	if a.ended {
		return
	}
	if p, err := in.server.dir.Lookup(in.run, a.ch); err != nil || p != a.port {
		return
	}
	a.port.Fail(job.Errorf(job.ClassInfrastructure, "channel %v of job %s attempt %d from %s broke before its end: %w",
		a.ch, in.run.Job, in.run.Attempt, in.from, cause))
}

func (in *inbound) forget(a *arrival) {
	delete(in.channels, a.number)
	in.server.unclaim(a.port)
	if a.partial != nil {
		buffers.Put(a.partial)
		a.partial = nil
	}
}

func (in *inbound) reply(r reply) {
	in.mu.Lock()
	in.mu.replies = append(in.mu.replies, r)
	in.mu.Unlock()
	in.signal()
}

func (in *inbound) signal() {
	select {
	case in.wake <- struct{}{}:
	default:
	}
}

// parcel is a frame on its way through a gate. It carries its Free along, so that a frame costs no
// allocation.
type parcel struct {
	buf  *[]byte
	to   *arrival
	free func()
}

var parcels = sync.Pool{}

func init() {
	parcels.New = func() any {
		p := &parcel{}
		p.free = p.release
		return p
	}
}

// release gives the bytes back and the credit to the sender.
func (p *parcel) release() {
	if invariant.Enabled {
		invariant.Check(p.buf != nil, "frame freed twice")
	}
	n, a := len(*p.buf), p.to
	buffers.Put(p.buf)
	p.buf, p.to = nil, nil
	parcels.Put(p)
	a.give(frameCost(n))
}

// give returns credit for a frame to the sender, not more often than four times a window unless this end is slow: what is
// kept back meanwhile does not stop a sender, which may send as long as it has any credit.
func (a *arrival) give(n int64) {
	quarter := int64(a.in.server.opts.Window / 4)
	a.frames.Add(1)
	now := a.taken.Add(n)
	if now >= quarter && now-n < quarter || a.news() {
		a.in.list(a)
	}
}

// pace is how many rows this end can deal with in good time.
func (a *arrival) pace() int64 { return min(int64(a.port.Rows()), fullPace) }

// news tells whether the sender needs to hear of the pace, or of every frame because it is slow.
func (a *arrival) news() bool {
	rows, told := a.pace(), a.told.Load()
	return rows < slowPace || told < slowPace || rows < told/2 || rows > told && told < fastPace
}

// list has a in the next message to the sender.
func (in *inbound) list(a *arrival) {
	in.mu.Lock()
	in.mu.credits = append(in.mu.credits, a)
	in.mu.Unlock()
	in.signal()
}

// answer writes replies until the link ends, and a sign of life when there is nothing else.
func (in *inbound) answer(received <-chan error) error {
	beat := time.NewTicker(in.server.opts.Beat)
	defer beat.Stop()
	for {
		alive := false
		select {
		case <-in.wake:
		case <-beat.C:
			alive = true
		case err := <-received:
			if err != nil {
				return status.Error(codes.Aborted, err.Error())
			}
			return nil
		case <-in.server.closing:
			return status.Error(codes.Unavailable, errShutdown.Error())
		}
		data := in.collect(alive)
		if len(data) == 0 {
			continue
		}
		if err := in.stream.SendMsg(&outgoing{mem.BufferSlice{mem.SliceBuffer(data)}}); err != nil {
			return err
		}
	}
}

// collect encodes all replies that wait.
func (in *inbound) collect(alive bool) []byte {
	in.mu.Lock()
	replies, credits := in.mu.replies, in.mu.credits
	in.mu.replies, in.mu.credits = nil, nil
	in.mu.Unlock()
	var data []byte
	for _, r := range replies {
		data = append(data, r.kind)
		data = binary.AppendUvarint(data, uint64(r.number))
		switch r.kind {
		case replyAccept:
			data = binary.AppendUvarint(data, uint64(in.server.opts.Window))
			data = binary.AppendUvarint(data, uint64(r.rows))
		case replyRefuse:
			data = appendText(data, r.text)
		}
	}
	for _, a := range credits {
		if rows := a.pace(); a.told.Swap(rows) != rows {
			data = append(data, replyPace)
			data = binary.AppendUvarint(data, uint64(a.number))
			data = binary.AppendUvarint(data, uint64(rows))
		}
		frames := a.frames.Swap(0) // Before taken, which is added behind it: no frame is counted ahead of its credit.
		n := a.taken.Swap(0)
		if n == 0 && frames == 0 {
			continue // Listed twice.
		}
		data = append(data, replyCredit)
		data = binary.AppendUvarint(data, uint64(a.number))
		data = binary.AppendUvarint(data, uint64(n))
		data = binary.AppendUvarint(data, uint64(frames))
	}
	if alive && len(data) == 0 {
		data = append(data, replyBeat, 0)
	}
	return data
}
