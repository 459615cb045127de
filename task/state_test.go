package task_test

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/stream"
)

// recorder notes for whom backends are made.
type recorder struct {
	mu   sync.Mutex
	made map[string]statebackend.Params // By name of the backend and operator.
}

type recording struct {
	r    *recorder
	name string
}

func (r *recorder) of(name string) statebackend.Factory { return recording{r, name} }

func (f recording) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	f.r.mu.Lock()
	defer f.r.mu.Unlock()
	f.r.made[f.name+" "+p.Operator] = p
	return fs.Factory{}.New(ctx, p)
}

// What a job says of its state reaches the backends, and each operator has the one that is set for it.
func TestBackendsOfOperators(t *testing.T) {
	out, cnt := collect.New[total](), collect.New[string]()
	s := settings(job.ExactlyOnce, "fs")
	c := newCluster(t, 1, windowed(1000, 0, out, cnt), s)
	var keyed []string
	for _, op := range c.spec.Graph.Operators {
		if op.Keyed() {
			keyed = append(keyed, op.Name)
		}
	}
	if len(keyed) < 2 {
		t.Fatalf("keyed operators are %q", keyed)
	}
	if err := c.spec.Settings.Apply(map[string]string{
		"state.backend." + keyed[0]: "memory", "checkpoint.max-concurrent": "2", "checkpoint.incremental": "true", "state.compression": "3",
		"state.max-value": "1MiB",
	}); err != nil {
		t.Fatal(err)
	}
	rec := &recorder{made: map[string]statebackend.Params{}}
	c.factory = rec.of
	c.deploy(1)
	check := func(own bool, restored job.CheckpointID) {
		t.Helper()
		rec.mu.Lock()
		defer rec.mu.Unlock()
		if len(rec.made) != len(keyed) {
			t.Errorf("%d backends for %q", len(rec.made), keyed)
		}
		for i, op := range keyed {
			name := "fs "
			if i == 0 {
				name = "memory "
			}
			p, ok := rec.made[name+op]
			if !ok {
				t.Errorf("operator %q has not the backend %s", op, name)
				continue
			}
			if p.Job != "job" || p.K != 720 || p.MaxConcurrent != 2 || !p.Incremental || p.Own != own || p.Restored != restored || p.Compression != 3 || p.MaxValue != 1<<20 ||
				p.Dir == "" || p.Local == "" || p.Dir == p.Local || p.Budget == nil || p.Budget.Bytes() != 64<<20 {
				t.Errorf("operator %q: %+v", op, p)
			}
		}
	}
	check(false, 0)
	c.checkpoint(true)
	c.crash()
	rec.made = map[string]statebackend.Params{}
	c.deploy(1)
	check(true, 1)
	c.crash()
	// The checkpoint of another job.
	other := *c.committed
	other.Job = "other"
	c.committed = &other
	rec.made = map[string]statebackend.Params{}
	c.deploy(1)
	check(false, 1)
	c.finish()
}

// A fault of state is no fault of user code, though it is thrown in the midst of it, and user code may have had it in
// its hands.
func TestFaultOfState(t *testing.T) {
	fault := statebackend.Fault{Err: fmt.Errorf("operator \"count\", state \"n\": write: %w", syscall.ENOSPC), Path: "/data"}
	for name, record := range map[string]func(){
		"thrown": func() { panic(fault) },
		"recovered and thrown again": func() {
			defer func() { panic(recover()) }()
			panic(fault)
		},
		"wrapped": func() {
			defer func() { panic(fmt.Errorf("user code says: %w", recover().(error))) }()
			panic(fault)
		},
	} {
		t.Run(name, func(t *testing.T) {
			p := stream.Program{Name: "faulty", Build: func(j *stream.Job) {
				j.Source("in", datagen.Source[event]{Count: 10, Make: makeEvent}).KeyBy(func(e *event) string { return e.Key }).
					Process("count", func(s *operator.States[string]) operator.Handler[string, event, string] {
						n := s.Value[int64]("n")
						return operator.Handler[string, event, string]{
							Record: func(*operator.KeyedContext[string, string], *event) {
								*n.Ref()++
								record()
							},
						}
					}).Sink("out", collect.New[string]())
			}}
			c := newCluster(t, 1, p, settings(job.ExactlyOnce, "fs"))
			c.deploy(1)
			f := c.failed(t)
			if f.Class != job.ClassExternal || f.Stack != "" || !f.Retriable() || !strings.HasPrefix(f.Task, "count/") {
				t.Errorf("%v with a stack of %d bytes", f, len(f.Stack))
			}
			for _, want := range []string{`operator "count", state "n"`, "no space left on device", "the disk of /data is full", "--dir"} {
				if !strings.Contains(f.Message, want) {
					t.Errorf("%q does not say %q", f.Message, want)
				}
			}
			if strings.Contains(f.Message, "panic") {
				t.Errorf("%q speaks of a panic", f.Message)
			}
		})
	}
}

// A value that grows without end fails the job with its name when it is written, and not by way of its checkpoints.
func TestValueTooLarge(t *testing.T) {
	p := stream.Program{Name: "growing", Build: func(j *stream.Job) {
		j.Source("in", datagen.Source[event]{Count: 100_000, Make: makeEvent}).KeyBy(func(*event) string { return "all" }).
			Process("collect", func(s *operator.States[string]) operator.Handler[string, event, string] {
				seen := s.Value[[]string]("seen")
				return operator.Handler[string, event, string]{Record: func(_ *operator.KeyedContext[string, string], e *event) {
					all := seen.Ref()
					*all = append(*all, e.Key)
				}}
			}).Sink("out", collect.New[string]())
	}}
	s := settings(job.ExactlyOnce, "fs")
	s.MaxValue = 20 * job.KiB
	c := newCluster(t, 1, p, s)
	c.deploy(1)
	f := c.failed(t)
	if f.Class != job.ClassUser || f.Stack != "" {
		t.Errorf("%v with a stack of %d bytes", f, len(f.Stack))
	}
	for _, want := range []string{`operator "collect", state "seen": the value of key "all" has 2`, "the limit is 20480 (20KiB)", "List or Map", "state.max-value"} {
		if !strings.Contains(f.Message, want) {
			t.Errorf("%q does not say %q", f.Message, want)
		}
	}
}

// Tasks report the keys that they have the most records of.
func TestHotKeysAreReported(t *testing.T) {
	p := stream.Program{Name: "skewed", Build: func(j *stream.Job) {
		j.Source("in", datagen.Source[event]{Count: 1 << 40, Rate: 20_000, Make: func(n int64, e *event) {
			*e = event{Key: fmt.Sprint("k", n%1000)}
			if n%2 == 0 {
				e.Key = "hot"
			}
		}}).KeyBy(func(e *event) string { return e.Key }).
			Process("count", func(s *operator.States[string]) operator.Handler[string, event, string] {
				n := s.Value[int64]("n")
				return operator.Handler[string, event, string]{Record: func(*operator.KeyedContext[string, string], *event) { *n.Ref()++ }}
			}).Sink("out", collect.New[string]())
	}}
	c := newCluster(t, 1, p, settings(job.ExactlyOnce, "fs"))
	c.deploy(2)
	timeout := time.After(time.Minute)
	found := map[job.Task][]job.HotKeys{}
	for {
		select {
		case r := <-c.reports:
			c.handle(r)
			if r, ok := r.(job.Counters); ok && len(r.Hot) > 0 {
				found[r.Task] = r.Hot
			}
		case <-timeout:
			t.Fatal("nothing is reported")
		}
		if len(found) < 2 {
			continue
		}
		var parts []job.HotKeys
		for task, hot := range found {
			if task.Vertex != "count" || len(hot) != 1 || hot[0].Operator != "count" {
				t.Fatalf("%v reports %+v", task, hot)
			}
			parts = append(parts, hot[0])
		}
		all := job.MergeHotKeys("count", parts, operator.HotKeysShown)
		if k := all.Keys[0]; k.Key != "hot" || all.Share(k) < 0.4 || all.Share(k) > 0.6 {
			t.Errorf("%+v", all)
		}
		break
	}
	c.crash()
}
