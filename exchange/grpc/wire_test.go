package grpc

import (
	"bytes"
	"context"
	"math/rand/v2"
	"strings"
	"testing"

	"google.golang.org/grpc/mem"
	"google.golang.org/grpc/metadata"
	"pgregory.net/rapid"

	ggrpc "google.golang.org/grpc"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/exchangetest"
	"github.com/cairnstream/cairn/internal/invariant"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// deadStream is a stream that nothing is sent on.
type deadStream struct{ ggrpc.ServerStream }

func (deadStream) Context() context.Context {
	return metadata.NewIncomingContext(context.Background(), metadata.Pairs(metaJob, "j", metaAttempt, "1", metaFrom, "tm-1"))
}

// newReceiver is the receiving side of a link without a network, with a gate of one port as
// channel 0>0 of edge 0.
func newReceiver(t testing.TB, frames record.Frames) (*inbound, *exchange.Gate) {
	t.Helper()
	dir := exchange.NewDirectory()
	s, err := NewServer(dir, Options{MaxFrame: 8 << 20})
	if err != nil {
		t.Fatal(err)
	}
	run, from, err := linkMeta(deadStream{}.Context())
	if err != nil {
		t.Fatal(err)
	}
	g := exchange.NewGate([]record.Frames{frames})
	dir.Register(run, job.Channel{}, g.Port(0))
	return newInbound(s, deadStream{}, run, from), g
}

// deliver is what receive does with a message.
func deliver(in *inbound, data mem.BufferSlice) error {
	e := entries{r: data.Reader()}
	data.Free()
	for e.more() {
		in.entry(&e)
	}
	_ = e.r.Close()
	return e.err
}

// Whatever is queued arrives, in order and to the byte, in messages of bounded size, however gRPC
// cuts them into buffers.
func TestMessagesRoundTrip(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		in, g := newReceiver(t, record.NewFrames(blob{}))
		items := []item{{kind: entryOpen, number: 9}}
		var want []any
		for range rapid.IntRange(0, 20).Draw(rt, "items") {
			if rapid.Bool().Draw(rt, "control") {
				c := record.Control{
					Kind:       record.ControlKind(rapid.IntRange(1, 3).Draw(rt, "kind")),
					Checkpoint: job.CheckpointID(rapid.Uint64().Draw(rt, "checkpoint")),
					Final:      rapid.Bool().Draw(rt, "final"),
					Mode:       modes[rapid.IntRange(0, len(modes)-1).Draw(rt, "mode")],
					Committed:  job.CheckpointID(rapid.Uint64().Draw(rt, "committed")),
					Started:    rapid.Int64().Draw(rt, "started"),
				}
				items = append(items, item{kind: entryControl, number: 9, control: c})
				want = append(want, c)
				continue
			}
			size := rapid.SampledFrom([]int{1, 100, smallFrame - 4, smallFrame, 20_000, maxMessage, 3 * maxMessage}).Draw(rt, "size")
			v := make([]byte, size)
			for i := range v {
				v[i] = byte(rand.Uint32())
			}
			b := record.PoolOf[[]byte]().Get()
			b.Rows = append(b.Rows, v)
			buf := buffers.Get(size)
			frame, err := record.NewFrames(blob{}).Append((*buf)[:0], b)
			if err != nil {
				rt.Fatal(err)
			}
			*buf = frame
			items = append(items, item{kind: entryFrame, number: 9, frame: buf})
			want = append(want, v)
		}
		var m message
		send := func() {
			data := m.take()
			if n := data.Len(); n > 2*maxMessage {
				rt.Fatalf("message of %d bytes", n)
			}
			all := data.Materialize()
			data.Free()
			var cut mem.BufferSlice
			for len(all) > 0 {
				n := min(len(all), rapid.SampledFrom([]int{1, 7, 4096, 16384, 1 << 20}).Draw(rt, "cut"))
				cut = append(cut, mem.SliceBuffer(all[:n]))
				all = all[n:]
				if len(cut) > 200 {
					cut = append(cut, mem.SliceBuffer(all))
					break
				}
			}
			if err := deliver(in, cut); err != nil {
				rt.Fatal(err)
			}
		}
		for i := range items {
			for done := false; !done; {
				done = m.add(&items[i])
				if m.size >= maxMessage || !done {
					send()
				}
			}
		}
		if m.size > 0 {
			send()
		}
		for i, w := range want {
			it, ok, err := g.Poll()
			if !ok || err != nil {
				rt.Fatalf("item %d of %d: %v", i, len(want), err)
			}
			if it.Batch == nil {
				if it.Control != w {
					rt.Fatalf("item %d is %+v, want %+v", i, it.Control, w)
				}
				continue
			}
			if v, ok := w.([]byte); !ok || !bytes.Equal(it.Batch.(*record.Batch[[]byte]).Rows[0], v) {
				rt.Fatalf("item %d differs", i)
			}
			it.Batch.Release()
		}
		if err := deliver(in, mem.BufferSlice{mem.SliceBuffer{entryClose, 9, 4, 'o', 'v', 'e', 'r'}}); err != nil {
			rt.Fatal(err)
		}
		_, _, err := g.Poll()
		if err == nil || !strings.Contains(err.Error(), "over") || !strings.Contains(err.Error(), "tm-1") {
			rt.Fatalf("gate is not broken: %v", err)
		}
		g.Close()
	})
}

func TestBuffers(t *testing.T) {
	for _, n := range []int{0, 1, 1023, 1024, 1025, 40_000, 1 << 20, 1<<20 + 1, 5 << 20} {
		b := buffers.Get(n)
		if len(*b) != n {
			t.Errorf("buffer of %d bytes has %d", n, len(*b))
		}
		view := (*b)[:cap(*b)]
		buffers.Put(b)
		if want := bytes.Repeat([]byte{0xDB}, len(view)); invariant.Enabled && !bytes.Equal(view, want) {
			t.Errorf("a released buffer of %d bytes can be read", n)
		}
	}
	odd := make([]byte, 3000) // Grown by append: serves requests of at most its own size.
	buffers.Put(&odd)
	for range 100 {
		if b := buffers.Get(4000); cap(*b) < 4000 {
			t.Fatalf("buffer of capacity %d", cap(*b))
		}
	}
}

// FuzzEntries: no message makes the receiver panic or take more than it may.
func FuzzEntries(f *testing.F) {
	f.Add([]byte{entryOpen, 1, 0, 0, 0, entryControl, 1, 1, 1, 1, 5, 4, 0, entryFrame, 1, 4, 4, 1, 0, 0, 0})
	f.Add([]byte{entryOpen, 1, 0, 0, 0, entryFrame, 1, 4, 2, 1, 0, entryFrame, 1, 4, 2, 0, 0, entryClose, 1, 2, 'n', 'o'})
	f.Add([]byte{entryOpen, 1, 0, 0, 0, entryOpen, 1, 0, 0, 0})
	f.Add([]byte{entryOpen, 1, 0, 0, 0, entryOpen, 2, 0, 0, 0, entryFrame, 2, 3, 3, 1, 2, 3})
	f.Add([]byte{entryFrame, 1, 0xff, 0xff, 0xff, 0xff, 0x0f, 0})
	f.Add([]byte{entryClose, 1, 0xff, 0xff, 0x7f})
	f.Fuzz(func(t *testing.T, data []byte) {
		in, g := newReceiver(t, record.NewFrames(exchangetest.Codec{}))
		defer g.Close()
		err := deliver(in, mem.BufferSlice{mem.SliceBuffer(data)})
		in.end(err)
		for {
			item, ok, err := g.Poll()
			if !ok || err != nil {
				break
			}
			if item.Batch != nil {
				item.Batch.Release()
			}
		}
		if len(in.channels) > 0 || len(in.server.mu.live) > 0 {
			t.Error("channels are left")
		}
	})
}
