package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstream/cairn/bench/interval"
	"github.com/cairnstream/cairn/rpc"
)

const (
	starts     = 10
	startLimit = 1 // Seconds.
)

func measureStart(ctx context.Context, c config) ([]figure, error) {
	dir := filepath.Join(c.dir, "start")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	var fresh, again []float64
	for i := range starts {
		name := fmt.Sprintf("jobmanager-%d", i)
		for _, to := range []*[]float64{&fresh, &again} { // On an empty directory, and on the one it left.
			d, err := startOnce(ctx, c, dir, name)
			if err != nil {
				return nil, err
			}
			*to = append(*to, d.Seconds())
		}
	}
	f, a := interval.Of(fresh), interval.Of(again)
	return []figure{
		{
			What: "a JobManager's first answer, embedded etcd", Value: f.Median, Unit: "s", Limit: startLimit, Samples: fresh,
			Note: fmt.Sprintf("median of %d; at most %.2f", starts, f.Hi),
		},
		{
			What: "  on the directory of an earlier one", Value: a.Median, Unit: "s", Limit: startLimit, Samples: again,
			Note: fmt.Sprintf("median of %d; at most %.2f", starts, a.Hi),
		},
	}, nil
}

// startOnce is the time from the start of the process until it has listed its jobs, which only a leader does.
func startOnce(ctx context.Context, c config, dir, name string) (time.Duration, error) {
	start := time.Now()
	p, err := startJobManager(c, dir, name)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Stop(stopTimeout) }() // Killed if it does not end.
	client, err := rpc.NewClient(rpc.ClientConfig{JobManagers: []string{p.Ports["listen"]}})
	if err != nil {
		return 0, err
	}
	defer client.Close()
	if _, err := client.List(ctx); err != nil {
		return 0, err
	}
	return time.Since(start), nil
}
