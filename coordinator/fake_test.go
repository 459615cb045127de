package coordinator

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zaptest"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/faulty"
	blobmem "github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore"
	metamem "github.com/cairnstream/cairn/metastore/mem"
	"github.com/cairnstream/cairn/snapshot"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// world is a cluster without processes: stores in memory, workers that answer as tasks would, and one
// coordinator at a time.
type world struct {
	t     *testing.T
	meta  *metamem.Cluster
	store metastore.Store
	blob  *faulty.Store
	inner blob.Store // The same without faults.
	other blob.Store // What the URL mem://other names.
	reg   *prometheus.Registry
	c     *Coordinator
	lead  metastore.Leadership
	ids   int

	mu      sync.Mutex
	workers map[job.WorkerID]*fakeWorker
	tasks   map[job.Task]job.WorkerID // Of the newest deployment.
	run     job.Run
	deaf    bool              // Completes do not arrive.
	astray  bool              // What is written for savepoints goes elsewhere.
	stopAt  job.CheckpointID  // Behind whose barrier the tasks wait.
	ended   map[job.Task]bool // At the end of their data.
	silent  map[job.Task]bool // Do not acknowledge.
	// parts is what each task has in the checkpoints that it knows of: its own and the one it was restored from.
	parts   map[job.Task]map[job.CheckpointID][]job.StateHandle
	log     []string
	deploys []job.Deploy
}

const cluster = "test"

// inWorld runs a test on virtual time, with a coordinator that has two workers of two slots.
func inWorld(t *testing.T, f func(w *world)) {
	synctest.Test(t, func(t *testing.T) {
		meta := metamem.NewCluster()
		inner := blobmem.New("test")
		w := &world{
			t: t, meta: meta, store: meta.Client(), blob: faulty.Wrap(inner, 1), inner: inner, other: blobmem.New("other"), reg: prometheus.NewRegistry(),
			workers: map[job.WorkerID]*fakeWorker{}, silent: map[job.Task]bool{},
		}
		w.takeOver()
		w.connect("w1", 2)
		w.connect("w2", 2)
		defer w.store.Close()
		defer w.close()
		f(w)
	})
}

// takeOver wins the election and makes a coordinator.
func (w *world) takeOver() {
	w.t.Helper()
	lead, err := w.store.Elect(context.Background(), "leader", "here")
	if err != nil {
		w.t.Fatal(err)
	}
	w.lead = lead
	log := zap.NewNop()
	if testing.Verbose() {
		log = zaptest.NewLogger(w.t)
	}
	w.c, err = New(context.Background(), Options{
		Cluster: cluster, Store: w.store, Leadership: lead, Blob: w.blob, BlobURL: "mem://test", Log: log, Metrics: w.reg,
		OpenBlob: func(_ context.Context, url string, _ bool) (blob.Store, func(), error) {
			if url != "mem://other" {
				return nil, nil, fmt.Errorf("there is no store %s", url)
			}
			return w.other, func() {}, nil
		},
		NewID: func() job.ID { w.ids++; return job.ID(fmt.Sprintf("%016x", w.ids)) },
	})
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
}

// failOver deposes the leader, which notices at once, and takes over anew. The workers stay.
func (w *world) failOver() {
	w.t.Helper()
	old := w.c
	w.meta.Depose("leader")
	<-old.Done()
	w.takeOver()
	for _, id := range slices.Sorted(maps.Keys(w.workers)) {
		w.reconnect(w.workers[id])
	}
}

func (w *world) close() {
	w.t.Helper()
	if err := w.c.Close(context.Background()); err != nil {
		w.t.Error(err)
	}
	_ = w.lead.Resign(context.Background())
}

type fakeWorker struct {
	w       *world
	info    job.WorkerInfo
	session atomic.Pointer[Session]
	in      atomic.Pointer[mailbox]
	mute    atomic.Bool // Sends nothing and does nothing.
}

func (w *world) connect(id string, slots int) *fakeWorker {
	f := &fakeWorker{w: w, info: job.WorkerInfo{
		ID: job.WorkerID(id), Slots: slots, Data: id + ":1", Programs: []job.ProgramInfo{{Name: "prog", Version: "v1"}},
	}}
	w.workers[f.info.ID] = f
	w.reconnect(f)
	return f
}

func (w *world) reconnect(f *fakeWorker) {
	in := newMailbox()
	f.in.Store(in)
	s, err := w.c.Connect(f.info, f)
	if err != nil {
		w.t.Fatal(err)
	}
	f.session.Store(s)
	f.mute.Store(false)
	go func() {
		tick := time.NewTicker(time.Second)
		defer tick.Stop()
		for f.in.Load() == in {
			select {
			case <-in.ready:
				for _, c := range in.take() {
					f.handle(c.(job.Command))
				}
			case <-tick.C:
				if !f.mute.Load() {
					s.Heartbeat()
				}
			case <-s.c.Done():
				return
			}
		}
	}()
	synctest.Wait()
}

// kill is kill -9: the stream breaks.
func (w *world) kill(id job.WorkerID) {
	f := w.workers[id]
	delete(w.workers, id)
	f.mute.Store(true)
	f.session.Load().Disconnect(errors.New("the stream broke"))
	synctest.Wait()
}

func (f *fakeWorker) Close(error) { f.mute.Store(true) }

func (f *fakeWorker) Send(c job.Command) { f.in.Load().put(c) }

func (f *fakeWorker) report(r job.Report) { f.session.Load().Report(r) }

// handle answers as tasks would.
func (f *fakeWorker) handle(c job.Command) {
	if f.mute.Load() {
		return
	}
	w := f.w
	w.mu.Lock()
	defer w.mu.Unlock()
	w.log = append(w.log, fmt.Sprintf("%s %s", f.info.ID, strings.TrimPrefix(fmt.Sprintf("%T", c), "job.")))
	switch c := c.(type) {
	case job.Deploy:
		if w.run != c.Run {
			w.run, w.tasks, w.ended = c.Run, map[job.Task]job.WorkerID{}, map[job.Task]bool{}
			w.parts = map[job.Task]map[job.CheckpointID][]job.StateHandle{}
		}
		w.deploys = append(w.deploys, c)
		for _, t := range c.Tasks {
			w.tasks[t] = f.info.ID
			w.parts[t] = map[job.CheckpointID][]job.StateHandle{}
			if r := c.Restore; r != nil {
				w.parts[t][r.Checkpoint] = r.Operators[t.Vertex].Subtasks[t.Subtask].States
			}
			f.report(job.TaskChanged{Run: c.Run, Task: t, State: job.TaskReady})
		}
	case job.Start:
		w.each(f, c.Run, func(t job.Task) { f.report(job.TaskChanged{Run: c.Run, Task: t, State: job.TaskRunning}) })
	case job.Cancel:
		w.each(f, c.Run, func(t job.Task) {
			delete(w.tasks, t)
			f.report(job.TaskChanged{Run: c.Run, Task: t, State: job.TaskCancelled})
		})
	case job.Trigger:
		if len(c.To) == 0 {
			return // It is told where the savepoint goes.
		}
		base := c.Committed
		if c.Full {
			base = 0
		}
		w.stopAt = 0
		if c.Stop {
			w.stopAt = c.Checkpoint
		}
		for t, id := range w.tasks {
			if on := w.workers[id]; on != nil && !on.mute.Load() && !w.silent[t] {
				ack := w.ack(c.Run, t, c.Checkpoint, base)
				if c.Savepoint != nil {
					ack.Savepoint = w.save(t, *c.Savepoint)
				}
				on.report(ack)
			}
		}
	case job.Abort:
		if w.stopAt == c.Checkpoint {
			w.stopAt = 0
		}
	case job.Complete:
		if w.deaf {
			return
		}
		w.each(f, c.Run, func(t job.Task) {
			if len(w.ended) > 0 && w.ended[t] && t.Vertex != "enum" || w.stopAt > 0 && w.stopAt == c.UpTo {
				delete(w.tasks, t)
				f.report(job.TaskChanged{Run: c.Run, Task: t, State: job.TaskFinished})
			}
		})
	case job.Finish:
		w.each(f, c.Run, func(t job.Task) {
			delete(w.tasks, t)
			f.report(job.TaskChanged{Run: c.Run, Task: t, State: job.TaskFinished})
		})
	case job.ReadersDone:
		if _, ok := w.tasks[c.Task]; ok {
			delete(w.tasks, c.Task)
			f.report(job.TaskChanged{Run: c.Run, Task: c.Task, State: job.TaskFinished})
		}
	}
}

// each visits the tasks of a run on a worker.
func (w *world) each(f *fakeWorker, run job.Run, visit func(job.Task)) {
	if run != w.run {
		return
	}
	for t, id := range w.tasks {
		if id == f.info.ID {
			visit(t)
		}
	}
}

// ack writes the task's object and acknowledges. The sums build on base, as far as they know it: now and then they have
// nothing new, and now and then they write everything again.
func (w *world) ack(run job.Run, t job.Task, n, base job.CheckpointID) job.Ack {
	before := w.parts[t][base]
	if t.Vertex == "sum" && len(before) > 0 && (int(n)+t.Subtask)%3 == 0 {
		w.parts[t][n] = before
		return job.Ack{Run: run, Task: t, Checkpoint: n, Operators: map[string]job.SubtaskSnapshot{t.Vertex: {EndOfData: w.ended[t], States: before}}}
	}
	data := fmt.Sprintf("%v in %v", t, n)
	key := fmt.Sprintf("%sa%d.%s.%d", snapshot.CheckpointPrefix(cluster, run.Job, n), run.Attempt, t.Vertex, t.Subtask)
	if err := blob.PutBytes(context.Background(), w.blob, key, []byte(data)); err != nil {
		return job.Ack{}
	}
	h := job.StateHandle{Name: "s", Kind: "list", Groups: job.GroupRange{First: 0, Last: -1}, Entries: 1, Object: key, Length: int64(len(data)), Hash: strings.Repeat("0", 32)}
	states := []job.StateHandle{h}
	if t.Vertex == "sum" {
		h.Kind, h.Index = "keyed", key
		if states = []job.StateHandle{h}; len(before) > 0 && len(before) < 5 {
			h.Base = before[len(before)-1].Index
			states = append(slices.Clone(before), h)
		}
	}
	w.parts[t][n] = states
	return job.Ack{
		Run: run, Task: t, Checkpoint: n, Stats: job.CheckpointStats{Bytes: int64(len(data)), Sync: time.Millisecond},
		Operators: map[string]job.SubtaskSnapshot{t.Vertex: {EndOfData: w.ended[t], States: states}},
	}
}

// save writes the task's part of a savepoint.
func (w *world) save(t job.Task, to job.SavepointTarget) map[string]job.SubtaskSnapshot {
	key := fmt.Sprintf("%s/%s.%d", to.Folder, t.Vertex, t.Subtask)
	store := blob.Store(w.blob)
	if to.Store != "" {
		store = w.other
	}
	if w.astray {
		store = blobmem.New("elsewhere")
	}
	if err := blob.PutBytes(context.Background(), store, key, []byte(key)); err != nil {
		return nil
	}
	h := job.StateHandle{Name: "s", Kind: "list", Groups: job.GroupRange{First: 0, Last: -1}, Entries: 1, Object: key, Length: int64(len(key)), Hash: strings.Repeat("0", 32)}
	return map[string]job.SubtaskSnapshot{t.Vertex: {EndOfData: w.ended[t], States: []job.StateHandle{h}}}
}

// end brings every task to the end of its data.
func (w *world) end() {
	w.mu.Lock()
	run := w.run
	tasks := map[job.Task]job.WorkerID{}
	for t, id := range w.tasks {
		tasks[t] = id
		w.ended[t] = true
	}
	w.mu.Unlock()
	for t, id := range tasks {
		w.workers[id].report(job.TaskChanged{Run: run, Task: t, State: job.TaskEndOfData})
	}
	synctest.Wait()
}

func (w *world) fail(t job.Task, class job.Class) {
	w.mu.Lock()
	on, run := w.workers[w.tasks[t]], w.run
	delete(w.tasks, t)
	w.mu.Unlock()
	if on == nil {
		return
	}
	on.report(job.TaskChanged{Run: run, Task: t, State: job.TaskFailed, Failure: &job.Failure{Class: class, Message: "boom"}})
	synctest.Wait()
}

// spec is a job of an enumerator and readers and sums of parallelism 4.
func spec(name string, settings map[string]string) job.Spec {
	s := job.DefaultSettings()
	s.Parallelism = 4
	if err := s.Apply(settings); err != nil {
		panic(err)
	}
	return job.Spec{Name: name, Program: "prog", Version: "v1", Settings: s, Graph: job.Graph{Operators: []job.Operator{
		{Name: "enum", Named: true, Kind: job.KindEnumerator, Bounded: true},
		{Name: "read", Named: true, Kind: job.KindReader, Inputs: []job.Edge{{From: 0, Partition: job.Splits}}},
		{Name: "sum", Named: true, Kind: job.KindSink, Stateful: true, Inputs: []job.Edge{{From: 1, Partition: job.Hash, Key: "string"}}},
	}}}
}

func (w *world) submit(s Submission) Submitted {
	w.t.Helper()
	got, err := w.c.Submit(context.Background(), s)
	if err != nil {
		w.t.Fatal(err)
	}
	synctest.Wait()
	return got
}

func (w *world) get(ref string) JobDetail {
	w.t.Helper()
	synctest.Wait()
	d, err := w.c.Get(context.Background(), ref)
	if err != nil {
		w.t.Fatal(err)
	}
	return d
}

func (w *world) want(ref string, s JobState) JobDetail {
	w.t.Helper()
	d := w.get(ref)
	if d.Job.State != s {
		w.t.Fatalf("job is %s (%s), want %s", d.Job.State, d.Job.Reason, s)
	}
	return d
}

// objects lists what is in the blob store.
func (w *world) objects() []string {
	w.t.Helper()
	var out []string
	for info, err := range w.blob.List(context.Background(), "") {
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(out, info.Key)
	}
	return out
}

// referenced lists what the checkpoints on record refer to, manifests included.
func (w *world) referenced(id job.ID) []string {
	w.t.Helper()
	var out []string
	r, err := w.c.records.loadOne(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	store, _ := snapshot.NewStore(w.blob, cluster)
	for _, p := range r.checkpoints {
		m, err := store.LoadManifest(context.Background(), p.Manifest)
		if err != nil {
			w.t.Fatal(err)
		}
		out = append(append(out, p.Manifest), snapshot.ObjectsOf(m)...)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// missing lists the objects that the checkpoints on record refer to and that are not there.
func (w *world) missing(id job.ID) (out []string) {
	w.t.Helper()
	r, err := w.c.records.loadOne(context.Background(), id)
	if err != nil {
		w.t.Fatal(err)
	}
	store, _ := snapshot.NewStore(w.inner, cluster)
	for n, p := range r.checkpoints {
		m, err := store.LoadManifest(context.Background(), p.Manifest)
		if err != nil {
			w.t.Fatal(err)
		}
		for _, o := range snapshot.ObjectsOf(m) {
			if _, err := w.inner.Stat(context.Background(), o); err != nil {
				out = append(out, fmt.Sprintf("%v of %v", o, n))
			}
		}
	}
	return out
}

// sleep lets virtual time pass.
func (w *world) sleep(d time.Duration) {
	time.Sleep(d)
	synctest.Wait()
}
