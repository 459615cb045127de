package transport

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
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

// Probes is how many records go alone.
const Probes = 1000

// probeChannel carries the records that go alone.
var probeChannel = job.Channel{Edge: 1}

// Load is what goes over the edge. Both processes must have the same.
type Load struct {
	Records int  // Of all senders together.
	Times   bool // Event times go beside the records.
}

// Result is what one run measured.
type Result struct {
	RecordsPerSecond float64 `json:"records_per_second"`
	CPUPerRecord     float64 `json:"cpu_ns_per_record"` // Of both processes.
	LatencyP50       float64 `json:"latency_p50_ms"`    // Without any flush timeout, which is the sender's affair.
	LatencyP99       float64 `json:"latency_p99_ms"`
}

// received is what the receiving process says at the end.
type received struct {
	Sum       exchangetest.Sum
	CPU       time.Duration
	Latencies []time.Duration
}

func (l Load) edge() exchangetest.Edge {
	return exchangetest.Edge{
		Run: job.Run{Job: "bench", Attempt: 1}, Senders: 4, Receivers: 4,
		Records: l.Records / 4, Keys: 100_000, Times: l.Times,
	}
}

// Receive is the receiving process. It talks to the sending one on its standard output.
func (l Load) Receive(ctx context.Context) error {
	dir := exchange.NewDirectory()
	srv, err := grpc.NewServer(dir, grpc.Options{Self: "receiver"})
	if err != nil {
		return err
	}
	lis, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	e := l.edge()
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

// Measure is the sending process. argv starts the receiving one.
func (l Load) Measure(ctx context.Context, argv []string) (Result, error) {
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Stderr = os.Stderr
	stdout, err := cmd.StdoutPipe()
	if err != nil {
		return Result{}, err
	}
	if err := cmd.Start(); err != nil {
		return Result{}, err
	}
	res, err := l.measure(ctx, bufio.NewReader(stdout))
	if err != nil {
		_ = cmd.Process.Kill() // It may be gone already.
	}
	return res, errors.Join(err, cmd.Wait())
}

func (l Load) measure(ctx context.Context, peer *bufio.Reader) (Result, error) {
	line, err := peer.ReadString('\n')
	if err != nil {
		return Result{}, fmt.Errorf("start the receiving process: %w", err)
	}
	addr := strings.TrimSpace(line)
	d, err := grpc.NewDialer(grpc.Options{Self: "sender"})
	if err != nil {
		return Result{}, err
	}
	defer d.Close()
	if err := sendProbes(ctx, d, addr, l.edge().Run); err != nil {
		return Result{}, err
	}
	before, start := cpuTime(), time.Now()
	sent, err := l.edge().Send(ctx, d, addr)
	if err != nil {
		return Result{}, err
	}
	var r received
	if err := json.NewDecoder(peer).Decode(&r); err != nil {
		return Result{}, fmt.Errorf("result of the receiving process: %w", err)
	}
	took := time.Since(start)
	cpu := cpuTime() - before + r.CPU // The receiver's start is a few milliseconds of it.
	if _, err := io.Copy(io.Discard, peer); err != nil {
		return Result{}, err
	}
	if r.Sum != sent || len(r.Latencies) != Probes {
		return Result{}, fmt.Errorf("received %+v and %d probes, sent %+v and %d", r.Sum, len(r.Latencies), sent, Probes)
	}
	slices.Sort(r.Latencies)
	ms := func(i int) float64 { return float64(r.Latencies[i]) / 1e6 }
	return Result{
		RecordsPerSecond: float64(sent.Records) / took.Seconds(),
		CPUPerRecord:     float64(cpu) / float64(sent.Records),
		LatencyP50:       ms(Probes / 2), LatencyP99: ms(Probes * 99 / 100),
	}, nil
}

func sendProbes(ctx context.Context, d *grpc.Dialer, addr string, run job.Run) error {
	out, err := d.Dial(ctx, addr, run, probeChannel, record.NewFrames(exchangetest.Codec{}))
	if err != nil {
		return err
	}
	defer out.Close()
	for range Probes {
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
