package rpc

import (
	"context"
	"errors"
	"fmt"
	"net"
	"reflect"
	"strings"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	healthpb "google.golang.org/grpc/health/grpc_health_v1"
	reflectionpb "google.golang.org/grpc/reflection/grpc_reflection_v1"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
)

// fakeJobs has one job, or answers everything with err.
type fakeJobs struct {
	mu   sync.Mutex
	err  error
	subs []coordinator.Submission
}

var aJob = coordinator.Job{ID: "00112233aabbccdd", Name: "orders", State: coordinator.JobRunning, Failure: &job.Failure{Class: job.ClassUser, Message: "boom"}}

func (f *fakeJobs) fail(err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.err = err
}

func (f *fakeJobs) error() error {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.err
}

func (f *fakeJobs) Submit(_ context.Context, s coordinator.Submission) (coordinator.Submitted, error) {
	if err := f.error(); err != nil {
		return coordinator.Submitted{}, err
	}
	f.subs = append(f.subs, s)
	return coordinator.Submitted{Job: aJob, Notes: []string{"goes on from checkpoint 3"}}, nil
}
func (f *fakeJobs) List(context.Context) ([]coordinator.Job, error) {
	return []coordinator.Job{aJob}, f.error()
}
func (f *fakeJobs) detail() coordinator.JobDetail {
	return coordinator.JobDetail{Job: aJob, Spec: job.Spec{Settings: job.DefaultSettings()}}
}
func (f *fakeJobs) Get(_ context.Context, ref string) (coordinator.JobDetail, error) {
	if ref != "orders" {
		return coordinator.JobDetail{}, Errorf(NotFound, "no job %q", ref)
	}
	return f.detail(), f.error()
}
func (f *fakeJobs) Watch(ctx context.Context, _ string, fn func(coordinator.JobDetail) error) error {
	if err := f.error(); err != nil {
		return err
	}
	for i := range 3 {
		j := f.detail()
		j.Job.Attempt = job.Attempt(i)
		if err := fn(j); err != nil {
			return err
		}
	}
	return nil
}
func (f *fakeJobs) Cancel(context.Context, string) (coordinator.Job, error) { return aJob, f.error() }
func (f *fakeJobs) TakeSavepoint(_ context.Context, _ string, o coordinator.SavepointOptions) (coordinator.Savepoint, error) {
	return coordinator.Savepoint{ID: "sp-1", URL: o.To, Job: aJob.ID, Stopped: o.Stop}, f.error()
}
func (f *fakeJobs) ListSavepoints(_ context.Context, ref string) ([]coordinator.Savepoint, error) {
	return []coordinator.Savepoint{{ID: "sp-1", Name: ref, Checkpoint: 3, Bytes: 7}}, f.error()
}
func (f *fakeJobs) DeleteSavepoint(_ context.Context, id string) (coordinator.Savepoint, error) {
	return coordinator.Savepoint{ID: id}, f.error()
}
func (f *fakeJobs) TriggerCheckpoint(_ context.Context, _ string, o coordinator.TriggerOptions) (coordinator.Checkpoint, error) {
	if o.Full == o.Incremental {
		return coordinator.Checkpoint{}, Errorf(Invalid, "%+v", o)
	}
	return coordinator.Checkpoint{ID: 4, State: coordinator.CheckpointCompleted}, f.error()
}
func (f *fakeJobs) ListCheckpoints(context.Context, string) ([]coordinator.Checkpoint, error) {
	return []coordinator.Checkpoint{{ID: 4, State: coordinator.CheckpointCompleted}}, f.error()
}
func (f *fakeJobs) GetCheckpoint(_ context.Context, _ string, id job.CheckpointID) (coordinator.CheckpointDetail, error) {
	return coordinator.CheckpointDetail{Checkpoint: coordinator.Checkpoint{ID: id, State: coordinator.CheckpointFailed}}, f.error()
}
func (f *fakeJobs) Nodes(context.Context) ([]coordinator.Node, error) {
	return []coordinator.Node{{Worker: job.WorkerInfo{ID: "w"}, FreeSlots: 1}}, f.error()
}
func (f *fakeJobs) Version(context.Context) (Version, error) {
	return Version{Version: "v1", Leader: true}, f.error()
}

// api serves jobs.
func api(t *testing.T, jobs Jobs) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := NewServer(ServerConfig{Jobs: jobs})
	srv.SetServing(true)
	done := make(chan struct{})
	go func() { defer close(done); _ = srv.Serve(l) }()
	var once sync.Once
	stop = func() {
		once.Do(func() {
			ctx, cancel := context.WithCancel(context.Background())
			cancel()
			srv.Stop(ctx)
			<-done
		})
	}
	t.Cleanup(stop)
	return l.Addr().String(), stop
}

func client(t *testing.T, addrs ...string) *Client {
	t.Helper()
	c, err := NewClient(ClientConfig{JobManagers: addrs, ElectionPatience: 300 * time.Millisecond, WatchPatience: 300 * time.Millisecond})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := c.Close(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestClient(t *testing.T) {
	f := &fakeJobs{}
	addr, _ := api(t, f)
	c := client(t, addr)
	ctx := t.Context()
	check := func(what string, got, want any, err error) {
		t.Helper()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%s: got %+v, %v, want %+v", what, got, err, want)
		}
	}
	sub, err := c.Submit(ctx, coordinator.Submission{Spec: f.detail().Spec, Fresh: true})
	check("submit", sub, coordinator.Submitted{Job: aJob, Notes: []string{"goes on from checkpoint 3"}}, err)
	if len(f.subs) != 1 || f.subs[0].RequestID == "" || !f.subs[0].Fresh {
		t.Errorf("submitted %+v", f.subs)
	}
	list, err := c.List(ctx)
	check("list", list, []coordinator.Job{aJob}, err)
	j, err := c.Get(ctx, "orders")
	check("get", j, f.detail(), err)
	var attempts []job.Attempt
	err = c.Watch(ctx, "orders", func(j coordinator.JobDetail) error { attempts = append(attempts, j.Job.Attempt); return nil })
	check("watch", attempts, []job.Attempt{0, 1, 2}, err)
	own := errors.New("enough")
	if err := c.Watch(ctx, "orders", func(coordinator.JobDetail) error { return own }); !errors.Is(err, own) {
		t.Errorf("watch: %v", err)
	}
	cancelled, err := c.Cancel(ctx, "orders")
	check("cancel", cancelled, aJob, err)
	cp, err := c.TriggerCheckpoint(ctx, "orders", coordinator.TriggerOptions{Full: true})
	check("trigger", cp, coordinator.Checkpoint{ID: 4, State: coordinator.CheckpointCompleted}, err)
	cp, err = c.TriggerCheckpoint(ctx, "orders", coordinator.TriggerOptions{Incremental: true})
	check("trigger", cp, coordinator.Checkpoint{ID: 4, State: coordinator.CheckpointCompleted}, err)
	sp, err := c.TakeSavepoint(ctx, "orders", coordinator.SavepointOptions{To: "file:///x", Stop: true})
	check("savepoint", sp, coordinator.Savepoint{ID: "sp-1", URL: "file:///x", Job: aJob.ID, Stopped: true}, err)
	sps, err := c.ListSavepoints(ctx, "orders")
	check("savepoints", sps, []coordinator.Savepoint{{ID: "sp-1", Name: "orders", Checkpoint: 3, Bytes: 7}}, err)
	sp, err = c.DeleteSavepoint(ctx, "sp-2")
	check("delete", sp, coordinator.Savepoint{ID: "sp-2"}, err)
	cps, err := c.ListCheckpoints(ctx, "orders")
	check("checkpoints", cps, []coordinator.Checkpoint{{ID: 4, State: coordinator.CheckpointCompleted}}, err)
	cd, err := c.GetCheckpoint(ctx, "orders", 9)
	check("checkpoint", cd, coordinator.CheckpointDetail{Checkpoint: coordinator.Checkpoint{ID: 9, State: coordinator.CheckpointFailed}}, err)
	nodes, err := c.Nodes(ctx)
	check("nodes", nodes, []coordinator.Node{{Worker: job.WorkerInfo{ID: "w"}, FreeSlots: 1}}, err)
	v, err := c.Version(ctx)
	check("version", v, Version{Version: "v1", Leader: true}, err)
}

func TestErrorsKeepTheirKind(t *testing.T) {
	f := &fakeJobs{}
	addr, _ := api(t, f)
	c := client(t, addr)
	for _, k := range []Kind{Failed, Invalid, NotFound, Refused} {
		f.fail(Errorf(k, "because of %q", "that"))
		_, err := c.Cancel(t.Context(), "orders")
		if KindOf(err) != k || err.Error() != `because of "that"` {
			t.Errorf("%v: got %v: %v", k, KindOf(err), err)
		}
	}
	f.fail(nil)
	if _, err := c.Get(t.Context(), "other"); KindOf(err) != NotFound {
		t.Errorf("got %v: %v", KindOf(err), err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.List(ctx); KindOf(err) != Interrupted {
		t.Errorf("got %v: %v", KindOf(err), err)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	_, err = client(t, addr).List(t.Context())
	want := fmt.Sprintf("JobManager at %s: dial tcp %s: connect: connection refused", addr, addr)
	if KindOf(err) != Unreachable || err.Error() != want {
		t.Errorf("got %v: %v, want %s", KindOf(err), err, want)
	}
}

func TestClientFindsTheLeader(t *testing.T) {
	leads := &fakeJobs{}
	leader, stop := api(t, leads)
	standby := &fakeJobs{err: NotLeaderError(leader)}
	standbyAddr, _ := api(t, standby)
	c := client(t, "127.0.0.1:1", standbyAddr)
	if _, err := c.Nodes(t.Context()); err != nil {
		t.Errorf("with a hint: %v", err)
	}
	stop()
	standby.fail(NotLeaderError(""))
	if _, err := c.Nodes(t.Context()); KindOf(err) != Unreachable || !strings.Contains(err.Error(), "does not lead") {
		t.Errorf("without a leader: %v", err)
	}
	elected := time.AfterFunc(50*time.Millisecond, func() { standby.fail(nil) })
	defer elected.Stop()
	if _, err := c.Nodes(t.Context()); err != nil {
		t.Errorf("during an election: %v", err)
	}
}

func TestWatchOutlivesAJobManager(t *testing.T) {
	first, stop := api(t, &fakeJobs{})
	second, _ := api(t, &fakeJobs{})
	c := client(t, first, second)
	n := 0
	err := c.Watch(t.Context(), "orders", func(coordinator.JobDetail) error {
		if n++; n == 1 {
			stop()
		}
		return nil
	})
	if err != nil || n < 3 {
		t.Errorf("%d calls, %v", n, err)
	}
}

func TestHealthAndReflection(t *testing.T) {
	addr, _ := api(t, &fakeJobs{})
	conn, err := dial(addr, nil)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	h, err := healthpb.NewHealthClient(conn).Check(t.Context(), &healthpb.HealthCheckRequest{Service: "cairn.v1.JobService"}, grpc.WaitForReady(true))
	if err != nil || h.Status != healthpb.HealthCheckResponse_SERVING {
		t.Errorf("health: %v, %v", h, err)
	}
	stream, err := reflectionpb.NewServerReflectionClient(conn).ServerReflectionInfo(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if err := stream.Send(&reflectionpb.ServerReflectionRequest{MessageRequest: &reflectionpb.ServerReflectionRequest_ListServices{}}); err != nil {
		t.Fatal(err)
	}
	res, err := stream.Recv()
	if err != nil || !strings.Contains(res.String(), "cairn.v1.JobService") {
		t.Errorf("reflection: %v, %v", res, err)
	}
	_ = stream.CloseSend()
}
