package grpc

import (
	"context"
	"testing"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/exchangetest"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

func TestConformance(t *testing.T) {
	exchangetest.Run(t, func(t *testing.T) exchangetest.Transport {
		p := newPeers(t, Options{})
		frame := 24*exchangetest.BatchRows + frameOverhead
		return exchangetest.Transport{
			// The last frame may exceed the window, and its sender goes on to fill the next.
			Window: p.server.opts.Window/frame + 1,
			Connect: func(ctx context.Context, ch job.Channel, port *exchange.Port) (exchange.Out, error) {
				p.dir.Register(p.run, ch, port)
				return p.dialer.Dial(ctx, p.addr, p.run, ch, record.NewFrames(exchangetest.Codec{}))
			},
			Kill: func() {
				p.dialer.mu.Lock()
				c := p.dialer.mu.conns[p.addr]
				p.dialer.mu.Unlock()
				_ = c.ClientConn.Close()
			},
		}
	})
}
