//go:build e2e

package e2e

import (
	"context"
	"encoding/csv"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/s3"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/test/e2e/large"
)

var fullState = flag.Bool("full-state", false, "2 GiB of state and 256 MiB of memory for it in each TaskManager, not a tenth of it")

// largeSize is how much state there is in TestLargeState.
type largeSize struct {
	state  int64 // Bytes, about.
	memory int64 // MiB for it in each TaskManager.
	rate   int   // Records per second.
	kills  int
	// overhead is how many MiB above the memory for state, and above what it takes without state, a TaskManager may have.
	overhead int64
}

// TestLargeState: state that is several times larger than the memory for it is right after TaskManagers were killed, in
// the middle of snapshots too. They keep to their memory; the bucket holds what the retained checkpoints list and nothing
// else, and the folders of local state nothing of processes that are gone.
func TestLargeState(t *testing.T) {
	t.Parallel()
	// A small heap grows by gcfloor.Bytes before it is collected, which the job without state is too short to show.
	size := largeSize{state: 200 << 20, memory: 32, rate: 100_000, kills: 3, overhead: 200}
	if *fullState {
		size = largeSize{state: 2 << 30, memory: 256, rate: 100_000, kills: 8, overhead: 150}
	}
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64() >> 32
	}
	fmt.Printf("large state: seed %d\n", seed)
	rng := rand.New(rand.NewPCG(seed, 3))
	c := newCluster(t, 2)
	c.program, c.memory = filepath.Join(build(t, "", "large/program"), "program"), fmt.Sprintf("%dMiB", size.memory)
	ctx, cancel := context.WithTimeout(context.Background(), 15*time.Minute)
	defer cancel()
	peaks := watchMemory(t, c)
	c.start(2)

	// The same program with next to no state tells what a TaskManager needs anyway.
	small := c.submitTexts(t, 4000, 2*size.rate, 0, size.rate)
	if d := c.waitEnd(ctx, small.id); d.Job.State != coordinator.JobFinished {
		t.Fatalf("the job without state ended as %s: %s", d.Job.State, d.Job.Reason)
	}
	small.check(t)
	without := peaks.most()

	keys := int(size.state / large.EntrySize / large.Splits * large.Splits)
	count := keys * 5 / 4
	begun := time.Now()
	job := c.submitTexts(t, keys, count, count/10*9, size.rate) // The last tenth comes when all kills are done.
	k := &killer{c: c, id: job.id, rng: rng}
	k.until(ctx, "a third of the records", func(d coordinator.JobDetail) bool {
		return d.Job.Counters["records_read"] > int64(count/3) && d.Job.Checkpoint > 1
	})
	for n := range size.kills {
		k.kill(ctx, n)
	}
	if err := os.WriteFile(job.gate, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	d := c.waitEnd(ctx, job.id)
	if d.Job.State != coordinator.JobFinished {
		t.Fatalf("the job ended as %s: %s", d.Job.State, d.Job.Reason)
	}
	took := time.Since(begun)
	if d.Job.Restarts < int64(size.kills) {
		t.Errorf("%d restarts with %d kills", d.Job.Restarts, size.kills)
	}
	job.check(t)

	most := peaks.most()
	fmt.Printf("large state: %d keys, %d records in %v, %d restarts, %d checkpoints; without state %d MiB, with it at most %d MiB with a budget of %d MiB\n",
		keys, count, took.Round(time.Second), d.Job.Restarts, d.Job.Checkpoint, without, most, size.memory)
	if most > without+size.memory+size.overhead {
		t.Errorf("a TaskManager had %d MiB: more than %d MiB without state, %d MiB for state and %d MiB", most, without, size.memory, size.overhead)
	}
	checkBucket(ctx, t, c, small.id, job.id)
	k.checkDirs(t)
}

// texts is a job of the program large/program.
type texts struct {
	id, output, gate string
	keys, count      int
}

func (c *cluster) submitTexts(t *testing.T, keys, count, hold, rate int) *texts {
	t.Helper()
	j := &texts{output: filepath.Join(t.TempDir(), "out"), gate: filepath.Join(t.TempDir(), "go-on"), keys: keys, count: count}
	j.id = c.submit(c.program, "texts", "--name", fmt.Sprintf("texts-%d", keys), "--parallelism", "4",
		"--arg", fmt.Sprint("keys=", keys), "--arg", fmt.Sprint("count=", count), "--arg", fmt.Sprint("hold=", hold), "--arg", "gate="+j.gate,
		"--arg", fmt.Sprint("rate=", rate), "--arg", "output="+j.output,
		"--set", "state.backend=pebble", "--set", "state.backend.classes=fs", "--set", "checkpoint.interval=3s", "--set", "checkpoint.min-pause=1s", "--set", "restart.initial=100ms")
	return j
}

// check computes the answer in plain Go and compares.
func (j *texts) check(t *testing.T) {
	t.Helper()
	want := make([]large.Row, large.Classes)
	digests := make([]uint64, j.keys)
	met := make([]bool, j.keys)
	for n := range int64(j.count) {
		i := large.Index(n, int64(j.keys))
		text := ""
		if met[i] {
			text = large.Text(digests[i])
		}
		digests[i], met[i] = large.Digest(text, n), true
		class := large.ClassOf(large.Key(i))
		want[class].Class = class
		want[class].Add(digests[i])
	}
	parts, err := filepath.Glob(filepath.Join(j.output, "part-*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	got := map[string]int{}
	for _, name := range parts {
		f, err := os.Open(name)
		if err != nil {
			t.Fatal(err)
		}
		rows, err := csv.NewReader(f).ReadAll()
		_ = f.Close()
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, row := range rows[1:] { // Behind the header.
			got[strings.Join(row, ",")]++
		}
	}
	for _, r := range want {
		text := fmt.Sprintf("%d,%d,%d,%d", r.Class, r.Records, r.Sum, r.Xor)
		if got[text] != 1 {
			t.Errorf("%d rows are %s", got[text], text)
		}
		delete(got, text)
	}
	for text, n := range got {
		t.Errorf("%d rows more: %s", n, text)
	}
}

// killer kills the TaskManagers under a job and starts others.
type killer struct {
	c   *cluster
	id  string
	rng *rand.Rand
}

func (k *killer) until(ctx context.Context, what string, cond func(coordinator.JobDetail) bool) coordinator.JobDetail {
	k.c.t.Helper()
	for {
		d := k.c.get(ctx, k.id)
		switch {
		case cond(d):
			return d
		case d.Job.State.Ended() || ctx.Err() != nil:
			k.c.t.Fatalf("no %s: the job is %s: %s, %d restarts, checkpoint %d", what, d.Job.State, d.Job.Reason, d.Job.Restarts, d.Job.Checkpoint)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// kill kills a TaskManager: two times of three while a checkpoint is taken, else at any moment. The next one takes its folder
// or a fresh one by turns. It prints how long it took until every task ran again and until records were read, and returns
// when another checkpoint was taken.
func (k *killer) kill(ctx context.Context, n int) {
	t := k.c.t
	t.Helper()
	moment := "at any moment"
	if n%3 < 2 {
		moment = k.inCheckpoint(ctx)
	} else {
		time.Sleep(time.Duration(k.rng.Int64N(int64(3 * time.Second))))
	}
	who := k.rng.IntN(len(k.c.tms))
	before := k.c.get(ctx, k.id)
	killed := time.Now()
	k.c.tms[who].Kill()
	dir := "the same folder"
	if n%2 == 1 {
		dir = "a fresh folder"
		if k.c.dirs == nil {
			k.c.dirs = map[int]string{}
		}
		k.c.dirs[who] = filepath.Join(k.c.dir, fmt.Sprintf("local-%d-after-%d", who, n))
	}
	k.c.startTaskManager(who)
	running := k.until(ctx, "restart", func(d coordinator.JobDetail) bool {
		return d.Job.Attempt > before.Job.Attempt && d.Job.State == coordinator.JobRunning
	})
	ran := time.Since(killed)
	// The counters of an attempt that is over do not change.
	read := "none"
	k.until(ctx, "checkpoint", func(d coordinator.JobDetail) bool {
		if read == "none" && d.Job.Counters["records_read"] > running.Job.Counters["records_read"] {
			read = time.Since(killed).Round(10 * time.Millisecond).String()
		}
		return d.Job.Checkpoint >= running.Restored+1
	})
	if running.Restored < before.Job.Checkpoint {
		t.Errorf("it went on from checkpoint %d, not from %d or a later one", running.Restored, before.Job.Checkpoint)
	}
	fmt.Printf("large state: kill %d, %s: TaskManager %d, replaced in %s: from checkpoint %d, all tasks running after %v, first records known of after %s\n",
		n+1, moment, who, dir, running.Restored, ran.Round(10*time.Millisecond), read)
}

// inCheckpoint waits for a checkpoint to be taken, and then for a part of the time that it will take.
func (k *killer) inCheckpoint(ctx context.Context) string {
	k.c.t.Helper()
	for ctx.Err() == nil {
		list, err := k.c.client.ListCheckpoints(ctx, k.id)
		if err != nil {
			time.Sleep(50 * time.Millisecond)
			continue
		}
		under := slices.IndexFunc(list, func(p coordinator.Checkpoint) bool { return p.State == coordinator.CheckpointInProgress })
		last := slices.IndexFunc(list, func(p coordinator.Checkpoint) bool { return p.State == coordinator.CheckpointCompleted })
		if under < 0 || last < 0 {
			time.Sleep(5 * time.Millisecond)
			continue
		}
		wait := time.Duration(k.rng.Int64N(int64(list[last].Duration) + 1))
		time.Sleep(wait)
		return fmt.Sprintf("in checkpoint %d after %v", list[under].ID, wait.Round(time.Millisecond))
	}
	k.c.t.Fatal("out of time before a checkpoint was taken")
	return ""
}

// checkDirs looks through the folders of the TaskManagers that live, and once more when they have ended.
func (k *killer) checkDirs(t *testing.T) {
	t.Helper()
	of := func(i int) []string {
		entries, err := os.ReadDir(filepath.Join(k.c.localDir(i), "state"))
		if err != nil {
			t.Fatal(err)
		}
		var names []string
		for _, e := range entries {
			if e.IsDir() {
				names = append(names, e.Name())
			}
		}
		return names
	}
	for i := range k.c.tms {
		if names := of(i); len(names) != 1 {
			t.Errorf("the folder of TaskManager %d has the state of %d processes: %v", i, len(names), names)
		}
	}
	for i, p := range k.c.tms {
		if err := p.Stop(40 * time.Second); err != nil {
			t.Errorf("%s did not end well: %v", p.Name, err)
		}
		if names := of(i); len(names) > 0 {
			t.Errorf("TaskManager %d has ended and left %v", i, names)
		}
	}
}

// waitEnd waits until a job has ended.
func (c *cluster) waitEnd(ctx context.Context, id string) coordinator.JobDetail {
	c.t.Helper()
	for {
		d := c.get(ctx, id)
		if d.Job.State.Ended() {
			return d
		}
		if ctx.Err() != nil {
			c.t.Fatalf("the job does not end: it is %s: %s", d.Job.State, d.Job.Reason)
		}
		time.Sleep(50 * time.Millisecond)
	}
}

// memoryPeaks are the most MiB that each TaskManager had of the machine's memory.
type memoryPeaks struct {
	sync.Mutex
	kib map[int]int64 // By process.
}

// watchMemory samples the TaskManagers until the test ends.
func watchMemory(t *testing.T, c *cluster) *memoryPeaks {
	p := &memoryPeaks{kib: map[int]int64{}}
	c.started = func(pid int) {
		p.Lock()
		p.kib[pid] = 0
		p.Unlock()
	}
	stop, stopped := make(chan struct{}), make(chan struct{})
	t.Cleanup(func() { close(stop); <-stopped })
	go func() {
		defer close(stopped)
		for {
			p.sample()
			select {
			case <-stop:
				return
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	return p
}

// sample looks at all of them. The kernel keeps the peak of each, so that none is missed between two looks but the last one.
func (p *memoryPeaks) sample() {
	p.Lock()
	defer p.Unlock()
	for pid, most := range p.kib {
		data, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
		if err != nil {
			continue // It is gone.
		}
		for line := range strings.Lines(string(data)) {
			if rest, ok := strings.CutPrefix(line, "VmHWM:"); ok {
				var kib int64
				if _, err := fmt.Sscan(rest, &kib); err == nil {
					p.kib[pid] = max(most, kib)
				}
			}
		}
	}
}

// most is the most that any of them had, in MiB.
func (p *memoryPeaks) most() (mib int64) {
	p.Lock()
	defer p.Unlock()
	for _, kib := range p.kib {
		mib = max(mib, kib>>10)
	}
	return mib
}

// checkBucket compares the objects in the bucket with what the retained checkpoints of the jobs list. What is not needed
// any more is deleted after a job has ended, so it waits a little.
func checkBucket(ctx context.Context, t *testing.T, c *cluster, jobs ...string) {
	t.Helper()
	loc, err := blob.ParseLocation(c.s3.URL("e2e"))
	if err != nil {
		t.Fatal(err)
	}
	store, err := s3.Open(loc, s3.Options{Credentials: s3.Credentials{AccessKey: c.s3.AccessKey, SecretKey: c.s3.SecretKey}})
	if err != nil {
		t.Fatal(err)
	}
	defer store.Close()
	deadline := time.Now().Add(20 * time.Second)
	for {
		want := map[string]bool{}
		for _, id := range jobs {
			list, err := c.client.ListCheckpoints(ctx, id)
			if err != nil {
				t.Fatal(err)
			}
			for _, p := range list {
				if p.State != coordinator.CheckpointCompleted {
					continue
				}
				want[p.Manifest] = true
				m, err := snapshot.LoadManifest(ctx, store, p.Manifest)
				if err != nil {
					t.Fatalf("checkpoint %d is retained: %v", p.ID, err)
				}
				for _, key := range snapshot.ObjectsOf(m) {
					want[key] = true
				}
			}
		}
		var surplus []string
		for info, err := range store.List(ctx, "") {
			if err != nil {
				t.Fatal(err)
			}
			if !want[info.Key] {
				surplus = append(surplus, info.Key)
			}
			delete(want, info.Key)
		}
		if len(want) == 0 && len(surplus) == 0 {
			return
		}
		if time.Now().After(deadline) {
			t.Errorf("the bucket lacks %d objects that retained checkpoints list, and has %d that none lists: %v", len(want), len(surplus), surplus[:min(20, len(surplus))])
			return
		}
		time.Sleep(200 * time.Millisecond)
	}
}
