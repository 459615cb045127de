// Command exchange measures the exchange between two processes: how many records a second a hash
// edge with four subtasks a side carries, and how long a record alone on an idle stream takes.
// It starts itself once more as the receiving process.
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/cairnstream/cairn/exchange"
	"github.com/cairnstream/cairn/exchange/exchangetest"
	"github.com/cairnstream/cairn/exchange/grpc"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// The bars.
const (
	barRate    = 8e6                  // Records a second.
	barLatency = 2 * time.Millisecond // Beside the flush timeout, which is the sender's affair.
)

// probes is how many records go alone, of which 99 in 100 must be in time.
const probes = 1000

type config struct {
	receive bool
	output  string
	records int
	times   bool
}

func (c config) edge() exchangetest.Edge {
	return exchangetest.Edge{
		Run: job.Run{Job: "bench", Attempt: 1}, Senders: 4, Receivers: 4,
		Records: c.records / 4, Keys: 100_000, Times: c.times,
	}
}

// probeChannel carries the records that go alone.
var probeChannel = job.Channel{Edge: 1}

// result is what one run measured.
type result struct {
	RecordsPerSecond float64 `json:"records_per_second"`
	CPUPerRecord     float64 `json:"cpu_ns_per_record"` // Of both processes.
	LatencyP50       float64 `json:"latency_p50_ms"`
	LatencyP99       float64 `json:"latency_p99_ms"`
}

// received is what the receiving process says at the end.
type received struct {
	Sum       exchangetest.Sum
	CPU       time.Duration
	Latencies []time.Duration
}

func main() {
	var c config
	flag.BoolVar(&c.receive, "receive", false, "be the receiving process (internal)")
	flag.StringVar(&c.output, "o", "text", "text or json")
	flag.IntVar(&c.records, "records", 100_000_000, "records to send")
	flag.BoolVar(&c.times, "times", true, "send event times beside the records")
	flag.Parse()
	if flag.NArg() > 0 || c.records < 4 || c.output != "text" && c.output != "json" {
		flag.Usage()
		os.Exit(2)
	}
	run := c.send
	if c.receive {
		run = c.serve
	}
	if err := run(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, "exchange:", err)
		os.Exit(1)
	}
}

// serve is the receiving process.
func (c config) serve(ctx context.Context) error {
	dir := exchange.NewDirectory()
	srv, err := grpc.NewServer(dir, grpc.Options{Self: "receiver"})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	e := c.edge()
	receivers := e.Register(dir)
	gate := exchange.NewGate([]record.Frames{record.NewFrames(exchangetest.Codec{})})
	dir.Register(e.Run, probeChannel, gate.Port(0))

	ctx, cancel := context.WithCancel(ctx)
	served := make(chan error, 1)
	go func() { served <- srv.Serve(ctx, lis) }()
	fmt.Println(lis.Addr())
	var r received
	r.Latencies, err = takeProbes(gate)
	if err == nil {
		r.Sum, err = receivers.Run(ctx)
	}
	r.CPU = cpuTime()
	if err == nil {
		err = json.NewEncoder(os.Stdout).Encode(r)
	}
	cancel()
	return errors.Join(err, <-served)
}

// takeProbes notes how long after its making each record of the probe channel arrives.
func takeProbes(g *exchange.Gate) ([]time.Duration, error) {
	var all []time.Duration
	for {
		item, ok, err := g.Poll()
		switch {
		case err != nil:
			return nil, err
		case !ok:
			<-g.Ready()
		case item.Batch == nil:
			return all, nil
		default:
			made := item.Batch.(*record.Batch[exchangetest.Record]).Rows[0].Time
			all = append(all, time.Since(time.Unix(0, int64(made))))
			item.Batch.Release()
		}
	}
}

// send is the sending process: it starts the receiving one and prints what both measured.
func (c config) send(ctx context.Context) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	cmd := exec.CommandContext(ctx, self, "-receive", fmt.Sprintf("-records=%d", c.records), fmt.Sprintf("-times=%v", c.times))
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := cmd.Start(); err != nil {
		return err
	}
	res, err := c.measure(ctx, bufio.NewReader(stdout))
	if err != nil {
		_ = cmd.Process.Kill() // It may be gone already.
	}
	if err := errors.Join(err, cmd.Wait()); err != nil {
		return err
	}
	if c.output == "json" {
		return json.NewEncoder(os.Stdout).Encode(res)
	}
	met := map[bool]string{true: "met", false: "MISSED"}
	fmt.Printf("exchange throughput  %6.1f M records/s  (bar: at least %.1f M: %s; %.0f ns of CPU a record, both processes)\n",
		res.RecordsPerSecond/1e6, barRate/1e6, met[res.RecordsPerSecond >= barRate], res.CPUPerRecord)
	fmt.Printf("exchange latency     %6.2f ms p99, %.2f ms p50 of %d  (bar: at most %v beside the flush timeout: %s)\n",
		res.LatencyP99, res.LatencyP50, probes, barLatency, met[res.LatencyP99 <= float64(barLatency)/1e6])
	return nil
}

func (c config) measure(ctx context.Context, peer *bufio.Reader) (result, error) {
	line, err := peer.ReadString('\n')
	if err != nil {
		return result{}, fmt.Errorf("start the receiving process: %w", err)
	}
	addr := strings.TrimSpace(line)
	d, err := grpc.NewDialer(grpc.Options{Self: "sender"})
	if err != nil {
		return result{}, err
	}
	defer d.Close()
	if err := sendProbes(ctx, d, addr, c.edge().Run); err != nil {
		return result{}, err
	}
	before, start := cpuTime(), time.Now()
	sent, err := c.edge().Send(ctx, d, addr)
	if err != nil {
		return result{}, err
	}
	var r received
	if err := json.NewDecoder(peer).Decode(&r); err != nil {
		return result{}, fmt.Errorf("result of the receiving process: %w", err)
	}
	took := time.Since(start)
	cpu := cpuTime() - before + r.CPU // The receiver's start is a few milliseconds of it.
	if _, err := io.Copy(io.Discard, peer); err != nil {
		return result{}, err
	}
	if r.Sum != sent || len(r.Latencies) != probes {
		return result{}, fmt.Errorf("received %+v and %d probes, sent %+v and %d", r.Sum, len(r.Latencies), sent, probes)
	}
	slices.Sort(r.Latencies)
	ms := func(i int) float64 { return float64(r.Latencies[i]) / 1e6 }
	return result{
		RecordsPerSecond: float64(sent.Records) / took.Seconds(),
		CPUPerRecord:     float64(cpu) / float64(sent.Records),
		LatencyP50:       ms(probes / 2), LatencyP99: ms(probes * 99 / 100),
	}, nil
}

func sendProbes(ctx context.Context, d *grpc.Dialer, addr string, run job.Run) error {
	out, err := d.Dial(ctx, addr, run, probeChannel, record.NewFrames(exchangetest.Codec{}))
	if err != nil {
		return err
	}
	defer out.Close()
	for range probes {
		time.Sleep(2 * time.Millisecond) // Idle, so that each wakes all that it passes.
		b := record.PoolOf[exchangetest.Record]().Get()
		b.Rows = append(b.Rows, exchangetest.Record{Time: uint64(time.Now().UnixNano())})
		if err := out.Send(b); err != nil {
			return err
		}
	}
	return out.Control(record.Control{Kind: record.Close})
}

func cpuTime() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u) // Fails for a bad argument only.
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}
