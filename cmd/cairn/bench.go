package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/bench/nexmark"
	"github.com/cairnstream/cairn/cli"
)

// benchmark is a call of cairn bench nexmark.
type benchmark struct {
	nexmark.Options
	query   string
	keys    int64
	verify  bool
	params  bool // Events, seed or jitter were given.
	output  string
	stdout  io.Writer
	heading bool // It has been printed.
}

func benchCommand(a *cli.App) *cobra.Command {
	b := &benchmark{query: "all", stdout: a.Stdout}
	b.Seed, b.Parallelism = 1, 2
	b.Say = func(format string, args ...any) { fmt.Fprintf(a.Stderr, format+"\n", args...) }
	number := func(p *int64, least int64, given *bool) func(string) error {
		return func(text string) error {
			n, err := strconv.ParseInt(text, 10, 64)
			if err != nil || n < least {
				return fmt.Errorf("%q is not a number from %d on", text, least)
			}
			*p = n
			if given != nil {
				*given = true
			}
			return nil
		}
	}
	small := func(p *int) func(string) error {
		var n int64
		set := number(&n, 1, nil)
		return func(text string) error {
			err := set(text)
			*p = int(n)
			return err
		}
	}
	choice := func(p *string, words ...string) func(string) error {
		return func(text string) error {
			if !slices.Contains(words, text) {
				return fmt.Errorf("%q is not %s", text, strings.Join(words, " or "))
			}
			*p = text
			return nil
		}
	}
	flags := map[string]cli.Text{
		"query": {Set: func(text string) error {
			b.query = text
			if text == "all" {
				return nil
			}
			return nexmark.CheckName(text)
		}, Arg: "NAME", Usage: "one of " + strings.Join(nexmark.Names(), ", ") + ", or all (default all)"},
		"events": {Set: number(&b.Events, 1, &b.params), Arg: "N", Usage: "number of events (default 10000000)"},
		"seed": {Set: func(text string) (err error) {
			b.params = true
			b.Seed, err = strconv.ParseUint(text, 10, 64)
			return err
		}, Arg: "S", Usage: "seed of the events (default 1)"},
		"parallelism": {Set: small(&b.Parallelism), Arg: "P", Usage: "subtasks of each operator (default 2)"},
		"jitter-ms":   {Set: number(&b.Jitter, 0, &b.params), Arg: "J", Usage: "how far events come out of order (default 0)"},
		"keys":        {Set: number(&b.keys, 1, nil), Arg: "K", Usage: "keys of keyed-count (default 1000000; with all: 100000, 1000000 and 10000000)"},
		"backend":     {Set: choice(&b.Backend, "fs", "memory", "pebble"), Arg: "NAME", Usage: "state backend, fs, memory or pebble (default fs)"},
		"verify":      {YesNo: &b.verify, Usage: "check answers only: without parameters every one that the reference has"},
		"taskmanagers": {Set: small(&b.TaskManagers), Arg: "N",
			Usage: "above 1: that many TaskManager processes, replaced when they end (default: everything in this process)"},
		"throttle": {Set: func(text string) (err error) {
			if b.Throttle, err = strconv.ParseFloat(text, 64); err == nil && !(b.Throttle > 0) {
				err = errors.New("it is more than 0")
			}
			return err
		}, Arg: "RECORDS_PER_S", Usage: "records per second that the source makes (default: as many as are taken)"},
		"output": {Set: choice(&b.output, "table", "json"), Short: "o", Arg: "FORMAT", Usage: "table, or json: an object a line (default table)"},
	}
	return a.Group(&cobra.Command{Use: "bench", Short: "measures"},
		a.Simple(&cobra.Command{
			Use: "nexmark", Short: "runs the queries of the Nexmark benchmark: rates, checkpoints, memory, and whether the answers are right",
		}, flags, b.run))
}

// run runs all that was asked for. Wrong answers are an error, at the end.
func (b *benchmark) run(ctx context.Context) error {
	if b.TaskManagers > 1 {
		binary, err := os.Executable()
		if err != nil {
			return fmt.Errorf("find the own executable: %w", err)
		}
		b.Binary = binary
	}
	var wrong []string
	one := func(o nexmark.Options) error {
		r, err := nexmark.Run(ctx, o)
		if err != nil {
			return err
		}
		if r.Verified != nil && !*r.Verified {
			wrong = append(wrong, fmt.Sprintf("%s of %d events", r.Query, r.Events))
		}
		return b.print(r, o)
	}
	for _, name := range b.names() {
		o := b.Options
		o.Query, o.Check = name, b.verify
		if !b.verify || b.params {
			if err := one(o); err != nil {
				return err
			}
			continue
		}
		var list []nexmark.Options
		if err := nexmark.Known(name, func(events int64, seed uint64, jitter int64) {
			o.Events, o.Seed, o.Jitter = events, seed, jitter
			list = append(list, o)
		}); err != nil {
			return err
		}
		for _, o := range list {
			if err := one(o); err != nil {
				return err
			}
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("the answers of these are wrong: %s", strings.Join(wrong, ", "))
	}
	return nil
}

func (b *benchmark) names() []string {
	switch {
	case b.query == "all":
		return nexmark.Names()
	case b.query == "keyed-count" && b.keys > 0:
		return []string{fmt.Sprintf("%s/%d", b.query, b.keys)}
	case b.query == "keyed-count":
		return []string{b.query + "/1000000"}
	}
	return []string{b.query}
}

// print writes a result at once, since the next one may take long.
func (b *benchmark) print(r nexmark.Result, o nexmark.Options) error {
	if b.output == "json" {
		return json.NewEncoder(b.stdout).Encode(r)
	}
	if !b.heading {
		b.heading = true
		fmt.Fprintf(b.stdout, "%-20s %11s %6s %8s %8s %9s %9s %5s %17s %8s %11s  %s\n", "query", "events", "jitter", "seconds",
			"CPU s", "M/s", "M/CPU s", "ckpts", "ckpt ms (max)", "RSS MiB", "rows", "answer")
	}
	figure := func(v *float64, scale float64) string {
		if v == nil {
			return "-"
		}
		return fmt.Sprintf("%.2f", *v/scale)
	}
	checkpoints, answer := "-", "not known to the reference"
	if d := r.CheckpointMS; d != nil {
		checkpoints = fmt.Sprintf("%.1f (%.1f)", d.Median, d.Max)
	}
	if r.Verified != nil {
		answer = map[bool]string{true: "right", false: "WRONG"}[*r.Verified]
	}
	_, err := fmt.Fprintf(b.stdout, "%-20s %11d %6d %8s %8s %9s %9s %5d %17s %8d %11d  %s\n", r.Query, r.Events, o.Jitter,
		figure(r.Seconds, 1), figure(r.CPUSeconds, 1), figure(r.EventsPerSecond, 1e6), figure(r.EventsPerCPUSecond, 1e6),
		r.Checkpoints, checkpoints, r.PeakRSSBytes>>20, r.Rows, answer)
	return err
}
