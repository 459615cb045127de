package grpc

import (
	"fmt"
	"net"
	"os"
	"testing"
	"time"

	"go.uber.org/goleak"
	ggrpc "google.golang.org/grpc"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/job"
)

func TestMain(m *testing.M) {
	if os.Getenv(receiverEnv) != "" {
		if err := receiver(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	goleak.VerifyTestMain(m)
}

// peers are two processes in one: a server with its directory, and a dialer.
type peers struct {
	dir    *exchange.Directory
	server *Server
	grpc   *ggrpc.Server
	addr   string
	dialer *Dialer
	run    job.Run
}

func newPeers(t testing.TB, opts Options) *peers {
	t.Helper()
	p := &peers{dir: exchange.NewDirectory(), run: job.Run{Job: "0123456789abcdef", Attempt: 3}}
	receiving, sending := opts, opts
	receiving.Self, sending.Self = "tm-receiver", "tm-sender"
	var err error
	if p.server, err = NewServer(p.dir, receiving); err != nil {
		t.Fatal(err)
	}
	if p.dialer, err = NewDialer(sending); err != nil {
		t.Fatal(err)
	}
	p.grpc = ggrpc.NewServer(ServerOptions()...)
	p.server.Register(p.grpc)
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p.addr = lis.Addr().String()
	served := make(chan struct{})
	go func() {
		defer close(served)
		_ = p.grpc.Serve(lis)
	}()
	t.Cleanup(func() {
		p.dialer.Close()
		p.server.Close()
		p.grpc.GracefulStop()
		<-served
	})
	return p
}

// poll takes the next item of g, or fails after a while.
func poll(g *exchange.Gate) (exchange.Item, error) {
	deadline := time.NewTimer(20 * time.Second)
	defer deadline.Stop()
	for {
		item, ok, err := g.Poll()
		if ok || err != nil {
			return item, err
		}
		select {
		case <-g.Ready():
		case <-deadline.C:
			return item, fmt.Errorf("nothing arrived")
		}
	}
}

func mustPoll(t testing.TB, g *exchange.Gate) exchange.Item {
	t.Helper()
	item, err := poll(g)
	if err != nil {
		t.Fatal(err)
	}
	return item
}
