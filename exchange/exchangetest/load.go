package exchangetest

import (
	"context"
	"encoding/binary"
	"fmt"
	"slices"

	"github.com/zeebo/xxh3"
	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Record is what goes over the channels of the suite and of benchmarks: 24 bytes.
type Record struct{ Key, Value, Time uint64 }

// Size of an encoded record.
const recordBytes = 24

// Codec encodes Record as three little-endian numbers.
type Codec struct{}

var _ codec.Bulk[Record] = Codec{}

// Append implements codec.Codec.
func (Codec) Append(dst []byte, v *Record) ([]byte, error) {
	dst = binary.LittleEndian.AppendUint64(dst, v.Key)
	dst = binary.LittleEndian.AppendUint64(dst, v.Value)
	return binary.LittleEndian.AppendUint64(dst, v.Time), nil
}

// Decode implements codec.Codec.
func (Codec) Decode(src []byte, v *Record) (int, error) {
	if len(src) < recordBytes {
		return 0, fmt.Errorf("record of %d bytes, want %d", len(src), recordBytes)
	}
	v.Key = binary.LittleEndian.Uint64(src)
	v.Value = binary.LittleEndian.Uint64(src[8:])
	v.Time = binary.LittleEndian.Uint64(src[16:])
	return recordBytes, nil
}

// Copy implements codec.Codec.
func (Codec) Copy(dst, src *Record) { *dst = *src }

// Schema implements codec.Codec.
func (Codec) Schema() codec.Schema { return codec.Schema{Codec: "load-record", Version: 1} }

// AppendAll implements codec.Bulk.
func (Codec) AppendAll(dst []byte, vs []Record) ([]byte, error) {
	at := len(dst)
	dst = slices.Grow(dst, recordBytes*len(vs))[:at+recordBytes*len(vs)]
	rest := dst[at:]
	for i := range vs {
		b := rest[:recordBytes:recordBytes]
		rest = rest[recordBytes:]
		binary.LittleEndian.PutUint64(b, vs[i].Key)
		binary.LittleEndian.PutUint64(b[8:], vs[i].Value)
		binary.LittleEndian.PutUint64(b[16:], vs[i].Time)
	}
	return dst, nil
}

// DecodeAll implements codec.Bulk.
func (Codec) DecodeAll(src []byte, vs []Record) (int, error) {
	n := recordBytes * len(vs)
	if len(src) < n {
		return 0, fmt.Errorf("%d records in %d bytes", len(vs), len(src))
	}
	rest := src[:n]
	for i := range vs {
		b := rest[:recordBytes:recordBytes]
		rest = rest[recordBytes:]
		vs[i] = Record{binary.LittleEndian.Uint64(b), binary.LittleEndian.Uint64(b[8:]), binary.LittleEndian.Uint64(b[16:])}
	}
	return n, nil
}

// Edge is a hash edge and the load of a benchmark on it: senders make records and deal them out by
// key group, receivers sum them up.
type Edge struct {
	Run                job.Run
	Senders, Receivers int
	Records            int // Of each sender.
	Keys               uint64
	Times              bool // Rows have event times beside them, as in a stream with timestamps.
}

// Sum is what one side of an Edge saw.
type Sum struct {
	Records int
	Values  uint64
}

// Send makes and sends all records and returns when all of it is with the transport.
func (e Edge) Send(ctx context.Context, d exchange.Dialer, addr string) (Sum, error) {
	g, ctx := errgroup.WithContext(ctx)
	sums := make([]Sum, e.Senders)
	for i := range e.Senders {
		g.Go(func() (err error) {
			sums[i], err = e.send(ctx, d, addr, i)
			return err
		})
	}
	err := g.Wait()
	return totalOf(sums), err
}

func (e Edge) send(ctx context.Context, d exchange.Dialer, addr string, from int) (Sum, error) {
	var sum Sum
	pool := record.PoolOf[Record]()
	frames := record.NewFrames(Codec{})
	outs := make([]exchange.Out, e.Receivers)
	batches := make([]*record.Batch[Record], e.Receivers)
	for to := range outs {
		out, err := d.Dial(ctx, addr, e.Run, job.Channel{From: from, To: to}, frames)
		if err != nil {
			return sum, err
		}
		defer out.Close()
		outs[to], batches[to] = out, pool.Get()
	}
	owners := make([]int, job.DefaultMaxParallelism)
	for g := range owners {
		owners[g] = job.OwnerOf(g, len(owners), e.Receivers)
	}
	full := pool.Rows()
	x := uint64(from + 1)
	var key [8]byte
	for i := range e.Records {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		r := Record{Key: x % e.Keys, Value: x >> 40, Time: uint64(i)}
		binary.LittleEndian.PutUint64(key[:], r.Key)
		to := owners[job.GroupOf(xxh3.Hash(key[:]), len(owners))]
		b := batches[to]
		b.Rows = append(b.Rows, r)
		if e.Times {
			b.Times = append(b.Times, int64(r.Time))
		}
		sum.Values += r.Value
		if len(b.Rows) == full {
			if err := outs[to].Send(b); err != nil {
				return sum, err
			}
			batches[to] = pool.Get()
		}
	}
	sum.Records = e.Records
	for to, out := range outs {
		if err := out.Send(batches[to]); err != nil {
			return sum, err
		}
		if err := out.Control(record.Control{Kind: record.Close}); err != nil {
			return sum, err
		}
	}
	return sum, nil
}

// Receivers are the receiving side of an Edge.
type Receivers struct {
	edge  Edge
	gates []*exchange.Gate
}

// Register registers the ports of e in dir.
func (e Edge) Register(dir *exchange.Directory) *Receivers {
	r := &Receivers{edge: e}
	frames := slices.Repeat([]record.Frames{record.NewFrames(Codec{})}, e.Senders)
	for to := range e.Receivers {
		g := exchange.NewGate(frames)
		for from := range e.Senders {
			dir.Register(e.Run, job.Channel{From: from, To: to}, g.Port(from))
		}
		r.gates = append(r.gates, g)
	}
	return r
}

// Run takes everything until all channels have ended.
func (r *Receivers) Run(ctx context.Context) (Sum, error) {
	g, ctx := errgroup.WithContext(ctx)
	sums := make([]Sum, len(r.gates))
	for i, gate := range r.gates {
		g.Go(func() (err error) {
			sums[i], err = receive(ctx, gate, r.edge.Senders)
			return err
		})
	}
	err := g.Wait()
	return totalOf(sums), err
}

func receive(ctx context.Context, g *exchange.Gate, open int) (Sum, error) {
	defer g.Close()
	var sum Sum
	for open > 0 {
		item, ok, err := g.Poll()
		if err != nil {
			return sum, err
		}
		if !ok {
			select {
			case <-g.Ready():
			case <-ctx.Done():
				return sum, ctx.Err()
			}
			continue
		}
		if item.Batch == nil {
			if item.Control.Kind == record.Close {
				open--
			}
			continue
		}
		b := item.Batch.(*record.Batch[Record])
		for i := range b.Rows {
			sum.Values += b.Rows[i].Value
		}
		sum.Records += len(b.Rows)
		b.Release()
	}
	return sum, nil
}

func totalOf(sums []Sum) Sum {
	var t Sum
	for _, s := range sums {
		t.Records += s.Records
		t.Values += s.Values
	}
	return t
}
