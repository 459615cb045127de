package grpc

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/exchangetest"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// receiverEnv makes the test binary the receiving process of a benchmark; its value is the number
// of records that each sender sends.
const receiverEnv = "CAIRN_EXCHANGE_RECEIVER"

func benchEdge(records int, times bool) exchangetest.Edge {
	return exchangetest.Edge{Run: job.Run{Job: "bench", Attempt: 1}, Senders: 4, Receivers: 4, Records: records, Keys: 100_000, Times: times}
}

// receiver is the receiving process: it says where it listens, receives and says what it saw.
func receiver() error {
	dir := exchange.NewDirectory()
	srv, err := NewServer(dir, Options{Self: "receiver"})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	n, err := strconv.Atoi(os.Getenv(receiverEnv))
	if err != nil {
		return err
	}
	r := benchEdge(n, true).Register(dir)
	ctx, cancel := context.WithCancel(context.Background())
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, lis) }()
	fmt.Println(lis.Addr())
	sum, err := r.Run(context.Background())
	fmt.Println(sum.Records, sum.Values, cpuTime().Nanoseconds())
	cancel()
	return errors.Join(err, <-served)
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkTwoProcesses sends records over a hash edge with four subtasks a side to another process.
func BenchmarkTwoProcesses(b *testing.B) {
	d, err := NewDialer(Options{Self: "sender"})
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	each := (b.N + 3) / 4
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), receiverEnv+"="+strconv.Itoa(each))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		b.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.Fatal(err)
	}
	lines := bufio.NewReader(stdout)
	addr, err := lines.ReadString('\n')
	if err != nil {
		b.Fatal(err)
	}
	before := cpuTime()
	b.ResetTimer()
	sent, err := benchEdge(each, true).Send(context.Background(), d, strings.TrimSpace(addr))
	if err != nil {
		b.Fatal(err)
	}
	line, err := lines.ReadString('\n')
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
	var got exchangetest.Sum
	var cpu int64
	if _, err := fmt.Sscan(line, &got.Records, &got.Values, &cpu); err != nil {
		b.Fatal(err)
	}
	if got != sent {
		b.Fatalf("received %+v of %+v", got, sent)
	}
	if _, err := io.Copy(io.Discard, lines); err != nil {
		b.Fatal(err)
	}
	if err := cmd.Wait(); err != nil {
		b.Fatal(err)
	}
	b.ReportMetric(float64(sent.Records)/b.Elapsed().Seconds()/1e6, "Mrecords/s")
	b.ReportMetric(float64(int64(cpuTime()-before)+cpu)/float64(sent.Records), "cpu-ns/record")
}

// shardings are the ways to share streams that were compared for docs/decisions.
var shardings = []struct {
	name  string
	shard func(job.Channel) job.Channel
}{
	{"pair", func(job.Channel) job.Channel { return job.Channel{} }},
	{"channel", func(ch job.Channel) job.Channel { return ch }},
}

// BenchmarkShardedThroughput compares a stream per pair of processes with one per channel, both
// ends in this process.
func BenchmarkShardedThroughput(b *testing.B) {
	for _, s := range shardings {
		b.Run(s.name, func(b *testing.B) {
			p := newPeers(b, Options{})
			p.dialer.shard = s.shard
			e := benchEdge((b.N+3)/4, true)
			r := e.Register(p.dir)
			done := make(chan exchangetest.Sum, 1)
			cpu := cpuTime()
			b.ResetTimer()
			go func() {
				sum, _ := r.Run(context.Background())
				done <- sum
			}()
			sent, err := e.Send(context.Background(), p.dialer, p.addr)
			if err != nil {
				b.Fatal(err)
			}
			if got := <-done; got != sent {
				b.Fatalf("received %+v of %+v", got, sent)
			}
			b.ReportMetric(float64(sent.Records)/b.Elapsed().Seconds()/1e6, "Mrecords/s")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(sent.Records), "cpu-ns/record")
		})
	}
}

// BenchmarkShardedBarrier measures what a barrier costs on 2,500 channels without data, and what
// the channels cost while they are idle. Both ends are in this process.
func BenchmarkShardedBarrier(b *testing.B) {
	const side = 50
	for _, s := range shardings {
		b.Run(s.name, func(b *testing.B) {
			p := newPeers(b, Options{})
			p.dialer.shard = s.shard
			before := memory()
			frames := make([]record.Frames, side)
			for i := range frames {
				frames[i] = record.NewFrames(exchangetest.Codec{})
			}
			var gates []*exchange.Gate
			var outs []exchange.Out
			for to := range side {
				g := exchange.NewGate(frames)
				gates = append(gates, g)
				for from := range side {
					ch := job.Channel{From: from, To: to}
					p.dir.Register(p.run, ch, g.Port(from))
					o, err := p.dialer.Dial(context.Background(), p.addr, p.run, ch, frames[from])
					if err != nil {
						b.Fatal(err)
					}
					outs = append(outs, o)
				}
			}
			bytes, goroutines := memory()-before, runtime.NumGoroutine()
			cpu := cpuTime()
			b.ResetTimer()
			for i := range b.N {
				for _, o := range outs {
					if err := o.Control(record.Control{Kind: record.Barrier, Checkpoint: job.CheckpointID(i + 1)}); err != nil {
						b.Fatal(err)
					}
				}
				for _, g := range gates {
					for range side {
						mustPoll(b, g)
					}
				}
			}
			b.StopTimer()
			b.ReportMetric(float64(bytes)/float64(len(outs)), "B/channel")
			b.ReportMetric(float64(goroutines)/float64(len(outs)), "goroutines/channel")
			b.ReportMetric(float64(cpuTime()-cpu)/float64(b.N*len(outs)), "cpu-ns/event")
			for _, o := range outs {
				o.Close()
			}
		})
	}
}

func memory() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapInuse + m.StackInuse)
}
