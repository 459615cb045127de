// Command exchange measures the exchange alone between two processes; see package transport.
// It starts itself once more as the receiving process.
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/cairnstream/cairn/bench/transport"
)

func main() {
	var l transport.Load
	receive := flag.Bool("receive", false, "be the receiving process (internal)")
	output := flag.String("o", "text", "text or json")
	flag.IntVar(&l.Records, "records", 100_000_000, "records to send")
	flag.BoolVar(&l.Times, "times", true, "send event times beside the records")
	flag.Parse()
	if flag.NArg() > 0 || l.Records < 4 || *output != "text" && *output != "json" {
		flag.Usage()
		os.Exit(2)
	}
	if err := run(context.Background(), l, *receive, *output); err != nil {
		fmt.Fprintln(os.Stderr, "exchange:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, l transport.Load, receive bool, output string) error {
	if receive {
		return l.Receive(ctx)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	res, err := l.Measure(ctx, []string{self, "-receive", fmt.Sprintf("-records=%d", l.Records), fmt.Sprintf("-times=%v", l.Times)})
	if err != nil {
		return err
	}
	if output == "json" {
		return json.NewEncoder(os.Stdout).Encode(res)
	}
	fmt.Printf("exchange throughput  %6.1f M records/s, %.0f ns of CPU a record, both processes\n", res.RecordsPerSecond/1e6, res.CPUPerRecord)
	fmt.Printf("exchange latency     %6.2f ms p99, %.2f ms p50 of %d, without flush timeout\n", res.LatencyP99, res.LatencyP50, transport.Probes)
	return nil
}
