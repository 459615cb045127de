// Command flink runs the Nexmark benchmark on Apache Flink and on Cairn in turn, on the machine at hand, and prints how
// they compare. Flink's side is a harness with the same events, queries and rules: a folder with a run.sh that takes
// --query, --events, --warmup, --parallelism and --keys and prints a line of JSON with events and cpu_s, and
// peak_heap_mb.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/bench/nexmark"
	"github.com/cairnstream/cairn/internal/gcfloor"
)

// comparison is what to run.
type comparison struct {
	harness, cairn      string
	events, warmup      int64
	parallelism, rounds int
	taskManagers        int
	shares              int // Runs of the queries that are bound by the generator.
	progress, result    io.Writer
}

// side is what was measured of one of the two in each round.
type side struct {
	cpu       []float64 // Nanoseconds of CPU time per event.
	generator []float64 // The same of making the events alone.
	memory    float64   // The most of all rounds, in MiB.
}

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	c := comparison{progress: os.Stderr, result: os.Stdout}
	queries := flag.String("queries", "all", "comma separated; all: every query and micro-benchmark")
	flag.StringVar(&c.harness, "harness", "", "folder of the Flink harness (required)")
	flag.StringVar(&c.cairn, "cairn", "bin/cairn", "binary of cairn")
	flag.Int64Var(&c.events, "events", 10_000_000, "events of each run")
	flag.Int64Var(&c.warmup, "warmup", 5_000_000, "events that Flink's virtual machine warms up with")
	flag.IntVar(&c.parallelism, "parallelism", 2, "subtasks of each operator")
	flag.IntVar(&c.rounds, "rounds", 3, "runs of each side, in turn; figures are medians; 0: only the shares")
	flag.IntVar(&c.shares, "shares", 11, "runs of the generator and of q0, q1, q2 and q7 on Cairn, in turn; 0: none")
	flag.IntVar(&c.taskManagers, "taskmanagers", 1, "above 1: TaskManager processes of Cairn")
	flag.Parse()
	gcfloor.Keep() // The generator is measured in this process, under the rules of those of Cairn.
	var problems []error
	if c.harness == "" {
		problems = append(problems, errors.New("-harness is missing: the folder of the Flink harness (make bench-flink FLINK_BENCH=DIR)"))
	} else if _, err := os.Stat(filepath.Join(c.harness, "run.sh")); err != nil {
		problems = append(problems, fmt.Errorf("the Flink harness: %w", err))
	}
	if _, err := os.Stat(c.cairn); err != nil {
		problems = append(problems, fmt.Errorf("the binary of cairn: %w", err))
	}
	if c.shares != 0 && c.shares < 6 {
		problems = append(problems, errors.New("shares are at least 6: fewer have no interval"))
	}
	if c.events < 1 || c.warmup < 0 || c.parallelism < 1 || c.rounds < 0 || c.taskManagers < 1 {
		problems = append(problems, errors.New("events, parallelism and taskmanagers are at least 1, warmup and rounds at least 0"))
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	names := strings.Split(*queries, ",")
	if *queries == "all" {
		names = slices.DeleteFunc(nexmark.Names(), func(n string) bool { return n == "events" })
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	return c.all(ctx, names)
}

func (c *comparison) all(ctx context.Context, names []string) error {
	if c.rounds == 0 {
		return c.engineShares(ctx, names)
	}
	fmt.Fprintf(c.result, "%d events, parallelism %d, medians of %d rounds in turn. Engine: CPU per event less that of making the events alone.\n\n",
		c.events, c.parallelism, c.rounds)
	fmt.Fprintln(c.result, "| query | Flink M/CPU s | Cairn M/CPU s | ratio | Flink engine ns | Cairn engine ns | of Flink's | Flink heap MiB | Cairn RSS MiB |")
	fmt.Fprintln(c.result, "|---|---|---|---|---|---|---|---|---|")
	for _, name := range names {
		var flink, cairn side
		for range c.rounds {
			if err := c.flink(ctx, name, &flink); err != nil {
				return fmt.Errorf("%s on Flink: %w", name, err)
			}
			if err := c.run(ctx, name, &cairn); err != nil {
				return fmt.Errorf("%s on Cairn: %w", name, err)
			}
		}
		if len(flink.generator) == 0 { // The harness does not measure that of numbers, which is a few nanoseconds.
			flink.generator = cairn.generator
		}
		f, o := flink.engine(), cairn.engine()
		fmt.Fprintf(c.result, "| %s | %.2f | %.2f | %.2f | %.1f | %.1f | %.2f | %.0f | %.0f |\n", name,
			1000/median(flink.cpu), 1000/median(cairn.cpu), median(flink.cpu)/median(cairn.cpu), f, o, o/f, flink.memory, cairn.memory)
	}
	return c.engineShares(ctx, names)
}

// bound are the queries that are bound by the making of the events: next to nothing is done with one.
var bound = []string{"q0", "q1", "q2", "q7"}

// engineShares prints what the engine adds to the making of the events, which is too little to be seen between medians of
// a few runs: the two in turn, and the median of the differences with the interval that holds it with 95 %.
func (c *comparison) engineShares(ctx context.Context, names []string) error {
	head := false
	for _, name := range bound {
		if c.shares == 0 || !slices.Contains(names, name) {
			continue
		}
		var s side
		for range c.shares {
			if err := c.run(ctx, name, &s); err != nil {
				return fmt.Errorf("%s on Cairn: %w", name, err)
			}
		}
		var added []float64
		for i, cpu := range s.cpu {
			added = append(added, cpu-s.generator[i])
		}
		if !head {
			head = true
			fmt.Fprintf(c.result, "\n%d runs in turn with the generator alone: ns of CPU per event\n\n| query | generator | whole | engine | 95 %% of |\n|---|---|---|---|---|\n", c.shares)
		}
		engine := interval.Of(added)
		fmt.Fprintf(c.result, "| %s | %.1f | %.1f | %.1f | %.1f to %.1f |\n", name, median(s.generator), median(s.cpu), engine.Median, engine.Lo, engine.Hi)
	}
	return nil
}

func (s *side) engine() float64 { return median(s.cpu) - median(s.generator) }

func median(v []float64) float64 { return interval.Of(v).Median }

// micro tells whether a name is of a micro-benchmark, whose records are numbers.
func micro(name string) bool { return name == "passthrough" || strings.HasPrefix(name, "keyed-count") }

func (c *comparison) flink(ctx context.Context, name string, s *side) error {
	query, keys, keyed := strings.Cut(name, "/")
	args := []string{"--events", strconv.FormatInt(c.events, 10), "--warmup", strconv.FormatInt(c.warmup, 10), "--parallelism", strconv.Itoa(c.parallelism)}
	if keyed {
		args = append(args, "--keys", keys)
	}
	var r struct {
		Events   int64   `json:"events"`
		CPU      float64 `json:"cpu_s"`
		PeakHeap float64 `json:"peak_heap_mb"`
	}
	binary := filepath.Join(c.harness, "run.sh")
	if err := c.call(ctx, &r, binary, append([]string{"--query", query}, args...)...); err != nil {
		return err
	}
	if r.Events != c.events || r.CPU <= 0 {
		return fmt.Errorf("the harness says %d events in %v CPU seconds", r.Events, r.CPU)
	}
	s.cpu = append(s.cpu, r.CPU*1e9/float64(r.Events))
	s.memory = max(s.memory, r.PeakHeap)
	if micro(name) {
		return nil
	}
	r.CPU = 0
	if err := c.call(ctx, &r, binary, append([]string{"--query", "generate"}, args...)...); err != nil {
		return err
	}
	s.generator = append(s.generator, r.CPU*1e9/float64(c.events))
	return nil
}

func (c *comparison) run(ctx context.Context, name string, s *side) error {
	var r nexmark.Result
	args := []string{"bench", "nexmark", "--query", name, "--events", strconv.FormatInt(c.events, 10), "--parallelism", strconv.Itoa(c.parallelism), "-o", "json"}
	if c.taskManagers > 1 {
		args = append(args, "--taskmanagers", strconv.Itoa(c.taskManagers))
	}
	if err := c.call(ctx, &r, c.cairn, args...); err != nil {
		return err
	}
	if r.EventsPerCPUSecond == nil {
		return fmt.Errorf("there is no rate: %+v", r)
	}
	s.cpu = append(s.cpu, 1e9 / *r.EventsPerCPUSecond)
	s.memory = max(s.memory, float64(r.PeakRSSBytes>>20))
	took, err := nexmark.Generate(name, c.events, 1)
	s.generator = append(s.generator, float64(took.Nanoseconds())/float64(c.events))
	return err
}

// call runs a command and reads the JSON in the last line of what it prints.
func (c *comparison) call(ctx context.Context, into any, binary string, args ...string) error {
	start := time.Now()
	cmd := exec.CommandContext(ctx, binary, args...)
	var out bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, c.progress
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%s %s: %w", binary, strings.Join(args, " "), err)
	}
	lines := bytes.Split(bytes.TrimSpace(out.Bytes()), []byte("\n"))
	last := lines[len(lines)-1]
	fmt.Fprintf(c.progress, "%5.1fs  %s\n", time.Since(start).Seconds(), last)
	if err := json.Unmarshal(last, into); err != nil {
		return fmt.Errorf("%s %s printed %q: %w", binary, strings.Join(args, " "), last, err)
	}
	return nil
}
