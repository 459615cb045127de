package inproc

import (
	"context"
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/exchangetest"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestConformance(t *testing.T) {
	exchangetest.Run(t, func(t *testing.T) exchangetest.Transport {
		return exchangetest.Transport{
			Window: DefaultLimit,
			Connect: func(ctx context.Context, ch job.Channel, p *exchange.Port) (exchange.Out, error) {
				return Connect(ctx, p, Options{Channel: ch}), nil
			},
		}
	})
}

// A batch arrives as it is: the same one, with selection and hashes.
func TestHandsOverTheBatchItself(t *testing.T) {
	g := exchange.NewGate([]record.Frames{nil})
	o := Connect(t.Context(), g.Port(0), Options{})
	defer o.Close()
	b := record.PoolOf[exchangetest.Record]().Get()
	b.Append(exchangetest.Record{Key: 1}, 1)
	if err := o.Send(b); err != nil {
		t.Fatal(err)
	}
	if item, ok, err := g.Poll(); !ok || err != nil || item.Batch != record.Any(b) {
		t.Errorf("got %v %v %v, want the batch that was sent", item, ok, err)
	}
	b.Release()
}

func BenchmarkSend(b *testing.B) {
	g := exchange.NewGate([]record.Frames{nil})
	o := Connect(b.Context(), g.Port(0), Options{})
	defer o.Close()
	pool := record.PoolOf[exchangetest.Record]()
	b.ReportAllocs()
	for range b.N {
		if err := o.Send(pool.Get()); err != nil {
			b.Fatal(err)
		}
		item, _, _ := g.Poll()
		item.Batch.Release()
	}
}
