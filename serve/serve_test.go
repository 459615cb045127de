package serve

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore/etcd"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/stream"
)

func TestMain(m *testing.M) {
	if dir := os.Getenv(childDir); dir != "" {
		holdStateDir(dir)
		return
	}
	goleak.VerifyTestMain(m)
}

const patience = 60 * time.Second

// running is a process of a cluster in a test.
type running struct {
	t    *testing.T
	stop context.CancelFunc
	done chan error
	logs *observer.ObservedLogs
	log  *zap.Logger
	file string
}

func newRunning(t *testing.T) *running {
	core, logs := observer.New(zapcore.DebugLevel)
	return &running{t: t, done: make(chan error, 1), logs: logs, log: zap.New(core), file: filepath.Join(t.TempDir(), "ports")}
}

func (r *running) start(f func(context.Context) error) {
	ctx, cancel := context.WithCancel(context.Background())
	r.stop = cancel
	go func() { r.done <- f(ctx) }()
	r.t.Cleanup(func() { r.end() })
}

// end drains the process and checks that it ends well.
func (r *running) end() {
	r.t.Helper()
	if r.stop == nil {
		return
	}
	r.stop()
	r.stop = nil
	select {
	case err := <-r.done:
		if err != nil {
			r.t.Errorf("ended with %v", err)
		}
	case <-time.After(patience):
		r.t.Fatal("does not end")
	}
}

// ports waits for the ports file.
func (r *running) ports() map[string]string {
	r.t.Helper()
	var out map[string]string
	eventually(r.t, "ports file", func() error {
		b, err := os.ReadFile(r.file)
		if err != nil {
			return err
		}
		return json.Unmarshal(b, &out)
	})
	return out
}

func eventually(t *testing.T, what string, f func() error) {
	t.Helper()
	deadline := time.Now().Add(patience)
	for {
		err := f()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(5 * time.Millisecond)
	}
}

// stores are an etcd of the test's own and a folder for snapshots.
func stores(t *testing.T) (endpoint, blob string) {
	t.Helper()
	dir := t.TempDir()
	e, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedConfig{Dir: filepath.Join(dir, "etcd"), UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e.Endpoints()[0], "file://" + filepath.ToSlash(filepath.Join(dir, "blob"))
}

func startJM(t *testing.T, etcd, blob string) *running {
	r := newRunning(t)
	r.start(func(ctx context.Context) error {
		return JobManager(ctx, JobManagerConfig{
			Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Etcd: etcd, Blob: blob, PortsFile: r.file, Log: r.log, Version: "v1",
		})
	})
	return r
}

func startTM(t *testing.T, programs Programs, jobManagers ...string) *running {
	r := newRunning(t)
	dir := t.TempDir()
	t.Cleanup(func() { // After its end.
		if left, err := filepath.Glob(filepath.Join(dir, "state", "*", "*")); err != nil || len(left) > 0 {
			t.Errorf("a TaskManager leaves %q behind, %v", left, err)
		}
	})
	r.start(func(ctx context.Context) error {
		return TaskManager(ctx, TaskManagerConfig{
			JobManagers: jobManagers, Slots: 2, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", PortsFile: r.file, Log: r.log,
			Programs: programs, Dir: dir,
		})
	})
	return r
}

func get(t *testing.T, addr, path string) (int, string) {
	t.Helper()
	client := &http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := client.Get("http://" + addr + path)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

func api(t *testing.T, addrs ...string) *rpc.Client {
	t.Helper()
	c, err := rpc.NewClient(rpc.ClientConfig{JobManagers: addrs, ElectionPatience: patience})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	return c
}

func isReady(t *testing.T, addr string) func() error {
	return func() error {
		if code, text := get(t, addr, "/readyz"); code != http.StatusOK {
			return errors.New(text)
		}
		return nil
	}
}

// numbers is a program of one source and one sink.
type numbers struct {
	sink *collect.Sink[int64]
	rate float64
	n    int64
}

func (p *numbers) List() []job.ProgramInfo {
	return []job.ProgramInfo{{Name: "numbers", Version: "v1"}}
}

func (p *numbers) Build(s job.Spec) (*operator.Blueprint, error) {
	return stream.Build(stream.Program{Name: "numbers", Build: func(j *stream.Job) {
		j.Source("numbers", datagen.Source[int64]{Make: func(n int64, v *int64) { *v = n }, Count: p.n, Rate: p.rate}).Sink("out", p.sink)
	}}, s.Args)
}

func (p *numbers) spec(t *testing.T) job.Spec {
	t.Helper()
	s := job.Spec{Name: "numbers", Program: "numbers", Version: "v1", Settings: job.DefaultSettings()}
	s.Settings.Parallelism, s.Settings.CheckpointInterval = 2, 50*time.Millisecond
	b, err := p.Build(s)
	if err != nil {
		t.Fatal(err)
	}
	s.Graph = b.Graph
	return s
}

// check demands every number once.
func (p *numbers) check(t *testing.T) {
	t.Helper()
	rows := p.sink.Rows()
	slices.Sort(rows)
	for i, v := range rows {
		if v != int64(i) {
			t.Fatalf("row %d is %d", i, v)
		}
	}
	if int64(len(rows)) != p.n {
		t.Errorf("%d rows, want %d", len(rows), p.n)
	}
}

func TestJobManager(t *testing.T) {
	dir := t.TempDir()
	blob := "file://" + filepath.ToSlash(filepath.Join(dir, "blob"))
	jm := startJM(t, "embedded:"+filepath.Join(dir, "metadata"), blob)
	p := jm.ports()
	v, err := api(t, p["listen"]).Version(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if first := jm.logs.All()[0]; first.Message != "jobmanager starts" || first.ContextMap()["listen"] != p["listen"] || first.ContextMap()["http"] != p["http"] {
		t.Errorf("first line: %v %v", first.Message, first.ContextMap())
	}
	eventually(t, "readiness", isReady(t, p["http"]))
	if v, err = api(t, p["listen"]).Version(t.Context()); err != nil || !v.Leader || v.LeaderAddress != p["advertise"] || v.Cluster != "default" || v.Epoch == 0 {
		t.Errorf("version %+v, %v", v, err)
	}
	if code, _ := get(t, p["http"], "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	if _, text := get(t, p["http"], "/metrics"); !strings.Contains(text, `cairn_leader{cluster="default"} 1`) {
		t.Error("no cairn_leader in the metrics")
	}
	if code, _ := get(t, p["http"], "/debug/pprof/"); code != http.StatusNotFound {
		t.Errorf("pprof: %d", code)
	}
	jm.end()

	again := startJM(t, "embedded:"+filepath.Join(dir, "metadata"), blob)
	q := again.ports()
	eventually(t, "leader", func() error {
		w, err := api(t, q["listen"]).Version(t.Context())
		if err == nil && (!w.Leader || w.Epoch <= v.Epoch) {
			err = fmt.Errorf("%+v after epoch %d", w, v.Epoch)
		}
		return err
	})
}

// With both stores away a JobManager starts, is alive and not ready, says so about once a second, and can be stopped.
func TestStoresAway(t *testing.T) {
	away := closedPort(t)
	jm := startJM(t, away, "s3://bucket/x?endpoint=http://"+away+"&path-style=true")
	p := jm.ports()
	eventually(t, "lines", func() error {
		for _, what := range []string{whatBlob, whatMetadata} {
			if n := jm.logs.FilterMessage(what + " is away; trying again every second").Len(); n < 2 {
				return fmt.Errorf("%d lines about the %s", n, what)
			}
		}
		return nil
	})
	code, text := get(t, p["http"], "/readyz")
	if code != http.StatusServiceUnavailable || !strings.Contains(text, "connection refused") || !strings.Contains(text, whatMetadata) {
		t.Errorf("readyz: %d %s", code, text)
	}
	if code, _ := get(t, p["http"], "/healthz"); code != http.StatusOK {
		t.Errorf("healthz: %d", code)
	}
	c, err := rpc.NewClient(rpc.ClientConfig{JobManagers: []string{p["listen"]}, ElectionPatience: time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if _, err := c.List(t.Context()); rpc.KindOf(err) != rpc.Unreachable {
		t.Errorf("list: %v", err)
	}
}

func closedPort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// A job goes on, exactly once, when the leading JobManager hands over to the other, and when a TaskManager leaves.
func TestHandOver(t *testing.T) {
	endpoint, blob := stores(t)
	prog := &numbers{sink: collect.New[int64](), n: 6000, rate: 1500}
	first := startJM(t, endpoint, blob)
	a := first.ports()
	eventually(t, "first leader", isReady(t, a["http"]))
	second := startJM(t, endpoint, blob)
	b := second.ports()
	eventually(t, "standby", isReady(t, b["http"])) // It knows the leader.
	if v, err := api(t, b["listen"]).Version(t.Context()); err != nil || v.Leader || v.LeaderAddress != a["advertise"] {
		t.Errorf("standby: %+v, %v", v, err)
	}

	tm1 := startTM(t, prog, b["listen"], a["listen"])
	eventually(t, "TaskManager", isReady(t, tm1.ports()["http"]))
	c := api(t, b["listen"], a["listen"])
	sub, err := c.Submit(t.Context(), coordinator.Submission{Spec: prog.spec(t)})
	if err != nil {
		t.Fatal(err)
	}
	id := string(sub.Job.ID)
	checkpoint := func(least job.CheckpointID) func() error {
		return func() error {
			d, err := c.Get(t.Context(), id)
			if err == nil && (d.Job.State != coordinator.JobRunning || d.Job.Checkpoint < least) {
				err = fmt.Errorf("%s, checkpoint %v", d.Job.State, d.Job.Checkpoint)
			}
			return err
		}
	}
	eventually(t, "first checkpoint", checkpoint(1))
	first.end()
	eventually(t, "checkpoint under the second leader", func() error {
		v, err := c.Version(t.Context())
		if err != nil || !v.Leader {
			return fmt.Errorf("%+v, %w", v, err)
		}
		return checkpoint(2)()
	})

	tm2 := startTM(t, prog, b["listen"])
	eventually(t, "second TaskManager", isReady(t, tm2.ports()["http"]))
	tm1.end()
	if err := c.Watch(t.Context(), id, func(coordinator.JobDetail) error { return nil }); err != nil {
		t.Fatal(err)
	}
	d, err := c.Get(t.Context(), id)
	if err != nil || d.Job.State != coordinator.JobFinished || d.Job.Attempt < 3 {
		t.Errorf("ended as %s: %s in attempt %d, %v", d.Job.State, d.Job.Reason, d.Job.Attempt, err)
	}
	prog.check(t)
	tm2.end()
	second.end()
}

func TestLocal(t *testing.T) {
	for _, c := range []struct {
		name   string
		memory bool
	}{{"embedded", false}, {"memory", true}} {
		t.Run(c.name, func(t *testing.T) {
			prog := &numbers{sink: collect.New[int64](), n: 5000}
			temp := t.TempDir()
			t.Setenv("TMPDIR", temp)
			l, err := StartLocal(t.Context(), LocalConfig{
				TaskManagers: 2, Slots: 1, InMemory: c.memory, Listen: "127.0.0.1:0", HTTP: "127.0.0.1:0", Programs: prog,
			})
			if err != nil {
				t.Fatal(err)
			}
			if err := l.StartTaskManagers(); err != nil {
				t.Fatal(err)
			}
			jobs := api(t, l.Address())
			sub, err := jobs.Submit(t.Context(), coordinator.Submission{Spec: prog.spec(t)})
			if err != nil {
				t.Fatal(err)
			}
			if err := jobs.Watch(t.Context(), string(sub.Job.ID), func(coordinator.JobDetail) error { return nil }); err != nil {
				t.Fatal(err)
			}
			prog.check(t)
			if err := l.Stop(); err != nil {
				t.Error(err)
			}
			left, err := os.ReadDir(temp)
			if err != nil || len(left) > 0 {
				t.Errorf("left behind: %v, %v", left, err)
			}
		})
	}
}

func TestPortInUse(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	used := l.Addr().String()
	err = JobManager(t.Context(), JobManagerConfig{Listen: used, Etcd: "embedded:" + t.TempDir(), Blob: "file:///tmp"})
	if err == nil || !strings.Contains(err.Error(), used) {
		t.Errorf("jobmanager: %v", err)
	}
	err = TaskManager(t.Context(), TaskManagerConfig{Listen: "127.0.0.1:0", HTTP: used, JobManagers: []string{"127.0.0.1:1"}})
	if err == nil || !strings.Contains(err.Error(), used) {
		t.Errorf("taskmanager: %v", err)
	}
}

func TestValidateListsAll(t *testing.T) {
	for _, c := range []struct {
		err  error
		want []string
	}{
		{JobManagerConfig{}.WithDefaults().Validate(), []string{"etcd: required", "blob: required"}},
		{
			JobManagerConfig{Listen: "x", HTTP: "127.0.0.1:99999", Etcd: "embedded:", Blob: "ftp://x", Cluster: "a//b"}.WithDefaults().Validate(),
			[]string{"listen: ", "http: ", "etcd: ", "blob: ", "cluster: "},
		},
		{JobManagerConfig{HTTP: "127.0.0.1:6123", Etcd: "a:1,b", Blob: "file:///x"}.WithDefaults().Validate(), []string{`etcd: "b"`, "http: the same address"}},
		{TaskManagerConfig{Slots: -1, Listen: "x"}.WithDefaults().Validate(), []string{"jobmanager: required", "slots: ", "listen: "}},
		{LocalConfig{TaskManagers: 1000, Listen: "x"}.WithDefaults().Validate(), []string{"taskmanagers: ", "listen: "}},
	} {
		var p *job.Problems
		if !errors.As(c.err, &p) || len(p.List) != len(c.want) {
			t.Errorf("got %v, want %q", c.err, c.want)
			continue
		}
		for _, want := range c.want {
			if !slices.ContainsFunc(p.List, func(s string) bool { return strings.HasPrefix(s, want) }) {
				t.Errorf("%q is not in %q", want, p.List)
			}
		}
	}
	if err := (JobManagerConfig{Etcd: "http://a:1, b:2", Blob: "file:///x", HTTP: Off}).WithDefaults().Validate(); err != nil {
		t.Error(err)
	}
}

func TestReachable(t *testing.T) {
	l, err := net.Listen("tcp", "0.0.0.0:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	port := portOf(l.Addr().String())
	for advertise, want := range map[string]string{
		"": net.JoinHostPort(hostname(), port), "a.example": "a.example:" + port, "a.example:0": "a.example:" + port, "a.example:7": "a.example:7",
	} {
		if got := reachable(l, advertise); got != want {
			t.Errorf("advertise %q: got %s, want %s", advertise, got, want)
		}
	}
	core, logs := observer.New(zapcore.WarnLevel)
	warnOpen(zap.New(core), "port", l)
	if logs.Len() != 1 {
		t.Error("no warning about an open port")
	}
}
