package coordinator

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob/faulty"
	"github.com/cairnstream/cairn/job"
	metamem "github.com/cairnstream/cairn/metastore/mem"
)

// A random life of a cluster: workers die and come back, leaders are deposed, stores fail. Nothing
// commits twice or backwards, ids and attempts only grow, and in the end the job runs and the objects
// present are those referenced.
func TestRandomLife(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: repeat with -run TestRandomLife -seed %d", seed, seed)
	r := rand.New(rand.NewPCG(seed, 3))
	inWorld(t, func(w *world) {
		got := w.submit(Submission{Spec: spec("j", map[string]string{"checkpoint.interval": "1s", "checkpoint.timeout": "5s", "checkpoint.max-concurrent": "2", "checkpoint.retained": fmt.Sprint(1 + r.IntN(3))})})
		var attempt job.Attempt
		var newest job.CheckpointID
		workers := 2
		for range 200 {
			w.sleep(time.Duration(r.IntN(2000)) * time.Millisecond)
			switch r.IntN(20) {
			case 0:
				for _, id := range slices.Sorted(maps.Keys(w.workers)) {
					w.kill(id)
					workers++
					w.connect(fmt.Sprintf("w%d", workers), 2)
					break
				}
			case 1:
				w.failOver()
			case 2:
				w.meta.FailCommits(metamem.Fault(1+r.IntN(2)), metamem.Fault(1+r.IntN(2)))
			case 3:
				w.meta.SetDown(true)
				w.sleep(time.Duration(r.IntN(30)) * time.Second)
				w.meta.SetDown(false)
			case 4:
				w.blob.Set(faulty.Rule{Op: []string{"put-if-absent", "delete", "get", "list"}[r.IntN(4)], AfterEffect: r.IntN(2) == 0, Times: 1 + r.IntN(5)})
			case 5:
				w.mu.Lock()
				tasks := slices.SortedFunc(maps.Keys(w.tasks), job.Task.Compare)
				w.mu.Unlock()
				if len(tasks) > 0 {
					w.fail(tasks[r.IntN(len(tasks))], job.ClassUser)
				}
			}
			d := w.get("j")
			if d.Job.Attempt < attempt || d.Job.Checkpoint < newest {
				t.Fatalf("attempt %d after %d, checkpoint %d after %d", d.Job.Attempt, attempt, d.Job.Checkpoint, newest)
			}
			attempt, newest = d.Job.Attempt, d.Job.Checkpoint
			if lost := w.missing(got.Job.ID); len(lost) > 0 {
				t.Fatalf("deleted, though a checkpoint on record refers to them: %v", lost)
			}
		}
		w.blob.Set()
		w.sleep(5 * time.Minute)
		d := w.want("j", JobRunning)
		if d.Job.Checkpoint <= newest {
			t.Errorf("no checkpoint in the quiet: %+v", d.Job)
		}
		t.Logf("attempt %d, checkpoint %d, %d restarts", d.Job.Attempt, d.Job.Checkpoint, d.Job.Restarts)
		w.sleep(11 * time.Minute) // A sweep.
		w.mu.Lock()
		for _, task := range slices.Collect(maps.Keys(w.tasks)) {
			w.silent[task] = true
		}
		w.mu.Unlock()
		w.sleep(4 * time.Second)
		if have, want := w.objects(), w.referenced(got.Job.ID); !slices.Equal(have, want) {
			t.Errorf("objects present:\n%v\nreferenced:\n%v", have, want)
		}
	})
}

var seedFlag = flag.Uint64("seed", 0, "seed of the randomized test; 0 takes one from the clock")
