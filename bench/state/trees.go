package state

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"github.com/cairnstream/cairn/blob"
	bloblocal "github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/internal/gcfloor"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
)

// Load is what a tree is measured under: keys counted at random while an incremental checkpoint is taken every so often.
type Load struct {
	Keys   int
	Zipf   float64       // The exponent of the distribution of keys; 0 for all alike.
	Budget int64         // Memory for state, in bytes.
	Warm   time.Duration // Counted before anything is measured: the cache has what is used often.
	For    time.Duration
	Every  time.Duration // From checkpoint to checkpoint.
	Dir    string        // For the tree, and for the objects of checkpoints.
	// Share and Rounds are instead of For: so many checkpoints, each after that part of the keys was changed.
	Share  float64
	Rounds int
}

// Updates is what became of a Load.
type Updates struct {
	PerCPU      float64       // Updates for each second of the process's CPU time: compactions, encoding and uploads included.
	Fill        float64       // The same while the keys were put in.
	Freeze      time.Duration // The longest.
	Longest     time.Duration // The longest batch.
	Checkpoints int
	Bytes       int64   // Of the last checkpoint.
	Full        int64   // Of the first.
	Resident    int64   // The most memory of the process.
	Increments  []int64 // Bytes of each checkpoint of Rounds.
}

// MeasureTree measures the backend pebble. It is for a process of its own: the memory is the process's.
func MeasureTree(ctx context.Context, l Load) (u Updates, err error) {
	gcfloor.Keep() // As TaskManagers do.
	store, err := bloblocal.Open(blob.Location{Scheme: blob.SchemeFile, Path: filepath.Join(l.Dir, "store")})
	if err != nil {
		return u, err
	}
	local := filepath.Join(l.Dir, "tree")
	if err := os.MkdirAll(local, 0o755); err != nil {
		return u, err
	}
	w, err := newWorld(ctx, &pebble.Factory{}, l.Keys, store, statebackend.Params{
		Incremental: true, Dir: local, Budget: statebackend.NewBudget(l.Budget), Job: "state",
	})
	if err != nil {
		return u, err
	}
	defer func() { err = errors.Join(err, w.b.Close()) }()
	cpu := cpuOf(processClock)
	w.fillBatches()
	first, err := w.take(ctx, nil)
	if err != nil {
		return u, err
	}
	u.Full = first.bytes
	u.Fill = float64(l.Keys) / (cpuOf(processClock) - cpu).Seconds()
	if l.Rounds > 0 {
		for range l.Rounds {
			for range int(l.Share * float64(l.Keys) / batchSize) {
				w.count()
				w.b.Merge(100 * time.Microsecond)
			}
			c, err := w.take(ctx, nil)
			if err != nil {
				return u, err
			}
			u.Increments = append(u.Increments, c.bytes)
		}
		return u, nil
	}
	step := w.count
	if l.Zipf > 0 {
		z := rand.NewZipf(rand.New(rand.NewPCG(1, 2)), l.Zipf, 1, uint64(l.Keys-1))
		step = func() {
			for i := range w.rows {
				w.rows[i] = z.Uint64()
			}
			w.update()
		}
	}
	return u, w.under(ctx, l, step, &u)
}

// fillBatches counts each key once, in an order that is none.
func (w *world) fillBatches() {
	for at := uint64(0); at < w.keys; at += batchSize {
		for i := range w.rows {
			w.rows[i] = min(at+uint64(i), w.keys-1)
		}
		w.update()
		for w.b.Merge(100 * time.Microsecond) {
			break
		}
	}
}

// under counts for as long as l says, and takes checkpoints meanwhile.
func (w *world) under(ctx context.Context, l Load, step func(), u *Updates) error {
	n := 0
	start, cpu := time.Now().Add(l.Warm), time.Duration(0)
	next := time.Now().Add(l.Every)
	var taken chan error
	var c checkpoint
	id := w.next - 1
	for time.Since(start) < l.For || taken != nil {
		if cpu == 0 && !time.Now().Before(start) {
			n, cpu, u.Longest, u.Freeze, u.Checkpoints = 0, cpuOf(processClock), 0, 0, 0
		}
		began := time.Now()
		step()
		n += batchSize
		u.Longest = max(u.Longest, time.Since(began))
		w.b.Merge(500 * time.Microsecond)
		if taken != nil {
			select {
			case err := <-taken:
				if err != nil {
					return err
				}
				taken, id = nil, w.next-1
				u.Bytes = c.bytes
				u.Checkpoints++
			default:
			}
		}
		if taken == nil && time.Now().After(next) && time.Since(start) < l.For {
			next = next.Add(l.Every)
			began := time.Now()
			w.b.Committed(id)
			now := w.next
			w.next++
			snap, err := w.b.Freeze(now)
			if err != nil {
				return err
			}
			u.Freeze = max(u.Freeze, time.Since(began))
			taken = make(chan error, 1)
			c = checkpoint{}
			go func() {
				defer snap.Release()
				taken <- w.write(ctx, snap, now, &c)
			}()
		}
	}
	u.PerCPU = float64(n) / (cpuOf(processClock) - cpu).Seconds()
	var err error
	if u.Resident, err = peakResident(); err != nil {
		return err
	}
	return nil
}

func (u Updates) String() string {
	return fmt.Sprintf("%.0f updates per CPU second, filled at %.0f; %d checkpoints, the last of %.1f MB, the first of %.1f MB; longest freeze %v, longest batch %v; resident %d MiB",
		u.PerCPU, u.Fill, u.Checkpoints, float64(u.Bytes)/1e6, float64(u.Full)/1e6, u.Freeze.Round(time.Microsecond), u.Longest.Round(time.Microsecond), u.Resident>>20)
}
