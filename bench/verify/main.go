// Command verify measures how fast a checkpoint is verified, against what the store delivers when all of its objects are read
// and nothing is done with them, with the same number of readers. It makes the checkpoints itself, in a directory and in an S3
// gateway over one. Both read from the system's cache of files: a store that is further away is slower, and verifying not.
// The columns per CPU second hold also on a machine that is busy otherwise.
package main

import (
	"context"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"syscall"
	"text/tabwriter"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/blob/s3"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/stored"
	"github.com/cairnstream/cairn/test/servers"
	"github.com/cairnstream/cairn/test/snapshots"
)

func main() {
	entries := flag.Int64("entries", 1_000_000, "of each of the two states")
	rounds := flag.Int("rounds", 3, "how often each is measured; the fastest counts")
	flag.Parse()
	if err := run(context.Background(), *entries, *rounds); err != nil {
		fmt.Fprintln(os.Stderr, "verify:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, entries int64, rounds int) error {
	dir, err := os.MkdirTemp("", "cairn-bench-verify-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	files, err := local.Open(blob.Location{Scheme: blob.SchemeFile, Path: filepath.Join(dir, "blob")})
	if err != nil {
		return err
	}
	server, err := servers.StartS3(ctx, dir)
	if err != nil {
		return err
	}
	defer server.Kill()
	loc, err := blob.ParseLocation(server.URL("bench"))
	if err != nil {
		return err
	}
	gateway, err := s3.Open(loc, s3.Options{Credentials: s3.Credentials{AccessKey: server.AccessKey, SecretKey: server.SecretKey}})
	if err != nil {
		return err
	}
	defer gateway.Close()
	w := tabwriter.NewWriter(os.Stdout, 0, 8, 2, ' ', 0)
	fmt.Fprintln(w, "store\tsnapshot\tMB\tentries\tdelivered MB/s\tverified MB/s\tshare\tMB per CPU second\tentries per CPU second")
	for _, st := range []struct {
		name  string
		store blob.Store
	}{{"file", files}, {"versitygw", gateway}} {
		for _, c := range []snapshots.Spec{
			{Name: "fs full", Factory: fs.Factory{}, Inline: -1, Entries: entries, Checkpoints: 1, Groups: 720, Payload: 100},
			{Name: "fs incremental", Factory: fs.Factory{}, Inline: -1, Entries: entries, Checkpoints: 6, Groups: 720, Payload: 100},
			{Name: "pebble", Factory: &pebble.Factory{}, Inline: -1, Entries: entries, Checkpoints: 2, Groups: 720, Payload: 100},
		} {
			if err := measure(ctx, w, st.name, st.store, c, dir, rounds); err != nil {
				return fmt.Errorf("%s, %s: %w", st.name, c.Name, err)
			}
		}
	}
	return w.Flush()
}

// measure makes a snapshot, reads it and verifies it, and removes it.
func measure(ctx context.Context, w io.Writer, name string, store blob.Store, c snapshots.Spec, dir string, rounds int) error {
	key, err := c.Make(ctx, store, dir)
	if err != nil {
		return err
	}
	m, err := snapshot.LoadManifest(ctx, store, key)
	if err != nil {
		return err
	}
	parallel := 2 * runtime.NumCPU()
	var read, verified, used time.Duration
	var bytes int64
	var report *stored.Report
	for range rounds {
		runtime.GC()
		began := time.Now()
		if bytes, err = readAll(ctx, store, snapshot.ObjectsOf(m), parallel); err != nil {
			return err
		}
		read = fastest(read, time.Since(began))
		began = time.Now()
		before := cpuTime()
		if report, err = stored.Verify(ctx, store, key, stored.VerifyOptions{Trees: pebble.VerifyStored, Parallel: parallel, Dir: dir}); err != nil {
			return err
		}
		verified, used = fastest(verified, time.Since(began)), fastest(used, cpuTime()-before)
		if err := report.Err(); err != nil {
			return err
		}
	}
	mb := func(d time.Duration) float64 { return float64(bytes) / 1e6 / d.Seconds() }
	fmt.Fprintf(w, "%s\t%s\t%.1f\t%d\t%.0f\t%.0f\t%.0f %%\t%.0f\t%.1f M\n", name, c.Name, float64(bytes)/1e6, report.Entries, mb(read), mb(verified),
		100*mb(verified)/mb(read), mb(used), float64(report.Entries)/1e6/used.Seconds())
	all, err := snapshot.NewStore(store, snapshots.Cluster)
	if err != nil {
		return err
	}
	return all.DeleteJob(ctx, snapshots.Job)
}

// cpuTime is what the process has used so far.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err) // It has no reason to.
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func fastest(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// readAll reads objects and gives the sum of their sizes.
func readAll(ctx context.Context, store blob.Store, keys []string, parallel int) (int64, error) {
	sizes := make([]int64, len(keys))
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(parallel)
	for i, key := range keys {
		g.Go(func() error {
			body, _, err := store.Get(gctx, key)
			if err != nil {
				return err
			}
			defer body.Close()
			sizes[i], err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, body, make([]byte, 256<<10))
			return err
		})
	}
	err := g.Wait()
	var sum int64
	for _, n := range sizes {
		sum += n
	}
	return sum, err
}
