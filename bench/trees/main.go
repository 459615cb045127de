// Command trees measures the backend pebble against the bars that are set for it: updates under incremental checkpoints, beside
// Apache Flink with RocksDB when its harness is given, memory, increments, restores from an S3 gateway beside what that
// delivers, and a look at one key. Each measurement is a process of its own, since memory and CPU time are the process's.
package main

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/cairnstream/cairn/bench/nexmark"
	"github.com/cairnstream/cairn/bench/state"
)

// budget is the memory for state of every measurement.
const budget = 256 << 20

func main() {
	if len(os.Args) == 3 && os.Args[1] == "child" {
		if err := child(os.Args[2]); err != nil {
			fmt.Fprintf(os.Stderr, "error: %v\n", err)
			os.Exit(1)
		}
		return
	}
	missed, err := run()
	if err != nil {
		fmt.Fprintf(os.Stderr, "error: %v\n", err)
		os.Exit(2)
	}
	if missed {
		os.Exit(1)
	}
}

// task is what a child does.
type task struct {
	Load    *state.Load
	Restore *state.RestoreLoad
}

func child(text string) error {
	var t task
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		return err
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	var out any
	var err error
	if t.Load != nil {
		out, err = state.MeasureTree(ctx, *t.Load)
	} else {
		out, err = state.MeasureRestore(ctx, *t.Restore)
	}
	if err != nil {
		return err
	}
	return json.NewEncoder(os.Stdout).Encode(out)
}

// trees is what to measure, and what with.
type trees struct {
	dir, cairn, flink string
	out               *tabwriter.Writer
	missed            bool
}

// bars are all of them, by name.
var bars = []struct {
	name    string
	measure func(*trees, context.Context) error
}{
	{"jobs", (*trees).jobs},
	{"zipf", (*trees).zipf},
	{"increment", (*trees).increment},
	{"restore", (*trees).restore},
	{"memory", (*trees).memory},
}

func run() (missed bool, err error) {
	var t trees
	var names []string
	for _, b := range bars {
		names = append(names, b.name)
	}
	only := flag.String("bars", strings.Join(names, ","), "bars to measure, comma separated")
	dir := flag.String("dir", "", "folder for trees and snapshots, some 8 GB (default: a new one in the folder for temporary files)")
	flag.StringVar(&t.cairn, "cairn", "bin/cairn", "binary of cairn")
	flag.StringVar(&t.flink, "flink", "", "folder of the Flink harness with its run.sh; without it Flink is not measured")
	flag.Parse()
	for name := range strings.SplitSeq(*only, ",") {
		if !slices.Contains(names, name) {
			return false, fmt.Errorf("-bars: there is no %q, want some of %s", name, strings.Join(names, ","))
		}
	}
	if t.dir, err = os.MkdirTemp(*dir, "cairn-trees-"); err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(t.dir)) }()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	t.out = tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t.out, "BAR\tLIMIT\tFIGURE\t\tNOTE")
	for _, b := range bars {
		if slices.Contains(strings.Split(*only, ","), b.name) {
			if err := b.measure(&t, ctx); err != nil {
				return false, fmt.Errorf("%s: %w", b.name, err)
			}
			if err := t.out.Flush(); err != nil {
				return false, err
			}
		}
	}
	return t.missed, nil
}

// row prints a figure against its limit, 0 for none.
func (t *trees) row(f state.Figure) {
	verdict, limit := "", ""
	if f.Limit != 0 {
		limit, verdict = number(f.Limit, f.Unit), "met"
		if f.AtLeast && f.Value < f.Limit || !f.AtLeast && f.Value > f.Limit {
			verdict, t.missed = "missed", true
		}
	}
	fmt.Fprintf(t.out, "%s\t%s\t%s\t%s\t%s\n", f.What, limit, number(f.Value, f.Unit), verdict, f.Note)
}

func number(v float64, unit string) string {
	switch {
	case unit == "/s" && v >= 1e6:
		return fmt.Sprintf("%.2f M/s", v/1e6)
	case unit == "/s":
		return fmt.Sprintf("%.0f k/s", v/1e3)
	case unit == "B" && v >= 1e5:
		return fmt.Sprintf("%.1f MB", v/1e6)
	}
	return strings.TrimSpace(strconv.FormatFloat(v, 'g', 3, 64) + " " + unit)
}

// call runs a program and reads the JSON that it prints in its last line.
func call(ctx context.Context, into any, program string, args ...string) error {
	c := exec.CommandContext(ctx, program, args...)
	c.Stderr = os.Stderr
	text, err := c.Output()
	if err != nil {
		return fmt.Errorf("%s %s: %w", filepath.Base(program), strings.Join(args, " "), err)
	}
	lines := bytes.Split(bytes.TrimSpace(text), []byte("\n"))
	return json.Unmarshal(lines[len(lines)-1], into)
}

func (t *trees) child(ctx context.Context, into any, what task) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	text, err := json.Marshal(what)
	if err != nil {
		return err
	}
	return call(ctx, into, self, "child", string(text))
}

// load measures keys counted at random, in a folder of its own.
func (t *trees) load(ctx context.Context, l state.Load) (u state.Updates, err error) {
	if l.Dir, err = os.MkdirTemp(t.dir, "load-"); err != nil {
		return u, err
	}
	l.Budget = budget
	err = t.child(ctx, &u, task{Load: &l})
	return u, errors.Join(err, os.RemoveAll(l.Dir))
}

// job is the keyed count of the benchmark as a whole job, with the times that it has to be as fast as Flink. Flink's figures
// were measured with 1 GiB a slot, and stand in when its harness is not given.
type job struct {
	keys         int
	ours, theirs int // Events.
	times        float64
	flink        float64
}

func (t *trees) jobs(ctx context.Context) error {
	for _, j := range []job{{100_000, 300_000_000, 10_000_000, 10, 230e3}, {1_000_000, 200_000_000, 10_000_000, 10, 175e3}, {10_000_000, 20_000_000, 20_000_000, 2, 140e3}} {
		var r nexmark.Result
		if err := call(ctx, &r, t.cairn, "bench", "nexmark", "--query", fmt.Sprintf("keyed-count/%d", j.keys), "--backend", "pebble",
			"--events", strconv.Itoa(j.ours), "--parallelism", "1", "-o", "json"); err != nil {
			return err
		}
		if r.EventsPerCPUSecond == nil {
			return fmt.Errorf("keyed-count of %d keys: the answer is wrong", j.keys)
		}
		note := fmt.Sprintf("a job at parallelism 1, %d checkpoints, %d MiB resident", r.Checkpoints, r.PeakRSSBytes>>20)
		flink, from := j.flink, "as measured before"
		if t.flink != "" {
			var f struct {
				PerCPU float64 `json:"events_per_cpu_s"`
			}
			if err := call(ctx, &f, filepath.Join(t.flink, "run.sh"), "--query", "keyed-count", "--keys", strconv.Itoa(j.keys), "--backend", "rocksdb",
				"--managed-mb", strconv.Itoa(budget>>20), "--events", strconv.Itoa(j.theirs), "--warmup", "2000000", "--parallelism", "1"); err != nil {
				return err
			}
			flink, from = f.PerCPU, "in the same run"
		}
		t.row(state.Figure{What: fmt.Sprintf("updates per CPU second, %d keys, checkpoints every 5 s", j.keys), Value: *r.EventsPerCPUSecond, Unit: "/s", Note: note})
		t.row(state.Figure{What: "  times Flink with RocksDB", Value: *r.EventsPerCPUSecond / flink, Limit: j.times, AtLeast: true,
			Note: fmt.Sprintf("which has %.0f k/s, %s", flink/1e3, from)})
	}
	return nil
}

func (t *trees) zipf(ctx context.Context) error {
	u, err := t.load(ctx, state.Load{Keys: 10_000_000, Zipf: 1.1, Warm: 30 * time.Second, For: 30 * time.Second, Every: 5 * time.Second})
	if err != nil {
		return err
	}
	t.row(state.Figure{What: "updates per CPU second, 10 M keys by a Zipf distribution of 1.1", Value: u.PerCPU, Unit: "/s", Limit: 2e6, AtLeast: true, Note: u.String()})
	t.row(state.Figure{What: "  longest freeze", Value: u.Freeze.Seconds() * 1000, Unit: "ms", Limit: 10})
	return nil
}

func (t *trees) memory(ctx context.Context) error {
	u, err := t.load(ctx, state.Load{Keys: 100_000_000, For: 20 * time.Second, Every: 5 * time.Second})
	if err != nil {
		return err
	}
	t.row(state.Figure{What: "memory of the process, 100 M keys", Value: float64(u.Resident >> 20), Unit: "MiB", Limit: budget>>20 + 150, Note: u.String()})
	return nil
}

func (t *trees) increment(ctx context.Context) error {
	u, err := t.load(ctx, state.Load{Keys: 10_000_000, Share: 0.01, Rounds: 16})
	if err != nil {
		return err
	}
	sum, most := int64(0), int64(0)
	for _, n := range u.Increments {
		sum, most = sum+n, max(most, n)
	}
	mean := float64(sum) / float64(len(u.Increments))
	t.row(state.Figure{What: "bytes of a checkpoint after 1 % of 10 M keys changed, part of a full one", Value: mean / float64(u.Full), Limit: 0.25,
		Note: fmt.Sprintf("mean of %d in a row, merges included; the first %.3f, the largest %.2f; a full one has %.1f MB", len(u.Increments),
			float64(u.Increments[0])/float64(u.Full), float64(most)/float64(u.Full), float64(u.Full)/1e6)})
	return nil
}

func (t *trees) restore(ctx context.Context) error {
	var figures []state.Figure
	dir, err := os.MkdirTemp(t.dir, "restore-")
	if err != nil {
		return err
	}
	if err := t.child(ctx, &figures, task{Restore: &state.RestoreLoad{Bytes: 1 << 30, Budget: budget, Dir: dir}}); err != nil {
		return err
	}
	for _, f := range figures {
		t.row(f)
	}
	return os.RemoveAll(dir)
}
