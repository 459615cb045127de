package cli

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/stream"
)

func TestMain(m *testing.M) {
	time.Local = time.UTC
	now = func() time.Time { return at }
	goleak.VerifyTestMain(m)
}

// numbers is a binary with one program, which sends numbers to a sink.
type numbers struct {
	sink *collect.Sink[int64]
	fail func(n int64) // Called for each number.
}

func (p *numbers) List() []job.ProgramInfo {
	return []job.ProgramInfo{{Name: "numbers", Version: "v1"}}
}

func (p *numbers) Build(s job.Spec) (*operator.Blueprint, error) {
	return stream.Build(stream.Program{Name: "numbers", Build: func(j *stream.Job) {
		var n int64
		if _, err := fmt.Sscan(j.Arg("n"), &n); err != nil {
			j.Fail("argument n: %v", err)
		}
		j.Set("checkpoint.interval", "50ms")
		j.Set("restart.strategy", "none")
		j.Source("numbers", datagen.Source[int64]{Make: func(n int64, v *int64) {
			if p.fail != nil {
				p.fail(n)
			}
			*v = n
		}, Count: max(n, 1), Rate: 2000}).Sink("out", p.sink)
	}}, s.Args)
}

// result is what one run of a command line gave.
type result struct {
	code           int
	stdout, stderr string
}

// call runs a command line: that of cairn, jobmanager, taskmanager, or of the binary with the program numbers.
func call(p Programs, env []string, argv ...string) result {
	var out bytes.Buffer
	var errs lockedBuffer
	if p == nil {
		p = none{}
	}
	a := &App{
		Name: argv[0], Programs: p, Stdout: &out, Stderr: &errs, Environ: env,
		Signals: func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(context.Background(), time.Minute)
		},
	}
	var code int
	switch argv[0] {
	case "cairn":
		code = a.Cairn(argv[1:])
	case "jobmanager":
		code = a.JobManager(argv[1:])
	case "taskmanager":
		code = a.TaskManager(argv[1:])
	default:
		code = a.Program(argv[1:])
	}
	return result{code, out.String(), errs.String()}
}

// Each story is command lines with their exit codes and what they print. $DIR has two checkpoints of the job of
// state_test.go, $SNAP/1 and $SNAP/2.
func TestStories(t *testing.T) {
	jm, stop := fakeJobManager(t)
	defer stop()
	config, dir := filepath.Join(t.TempDir(), "config.yaml"), t.TempDir()
	visitSnapshots(t, dir)
	replace := strings.NewReplacer(
		jm, "$JM", config, "$FILE", dir, "$DIR", `"`+Version+`"`, `"VERSION"`, "  "+Version+" ", "  VERSION ", goVersion(), "GO",
	)
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "config":
				if err := os.WriteFile(config, []byte(d.Input), 0o600); err != nil {
					t.Fatal(err)
				}
				return ""
			case "file":
				var name string
				d.ScanArgs(t, "name", &name)
				if err := os.WriteFile(filepath.Join(dir, name), []byte(d.Input), 0o600); err != nil {
					t.Fatal(err)
				}
				return ""
			case "run":
				var env []string
				var argv []string
				expand := strings.NewReplacer("$JM", jm, "$FILE", config, "$SNAP", dir+"/prod/jobs/job/checkpoints", "$DIR", dir)
				for i, w := range words(expand.Replace(d.Input)) {
					if i == len(env) && strings.HasPrefix(w, "CAIRN_") {
						env = append(env, w)
						continue
					}
					argv = append(argv, w)
				}
				r := call(&numbers{sink: collect.New[int64]()}, env, argv...)
				out := fmt.Sprintf("exit %d\n", r.code)
				if r.stdout != "" {
					out += "-- stdout\n" + r.stdout
				}
				if r.stderr != "" {
					out += "-- stderr\n" + r.stderr
				}
				return trimRight(replace.Replace(out))
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

func goVersion() string {
	var v versionView
	r := call(nil, nil, "cairn", "version", "-o", "json")
	if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
		panic(err)
	}
	return v.GoVersion
}

// trimRight cuts the blanks at the ends of lines, which editors do not keep, and marks empty lines.
func trimRight(s string) string {
	lines := strings.Split(strings.TrimRight(s, "\n"), "\n")
	for i, l := range lines {
		if lines[i] = strings.TrimRight(l, " "); lines[i] == "" {
			lines[i] = "."
		}
	}
	return strings.Join(lines, "\n") + "\n"
}

// fakeJobManager answers about one job.
func fakeJobManager(t *testing.T) (addr string, stop func()) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	srv := rpc.NewServer(rpc.ServerConfig{Jobs: &fakeJobs{}})
	var wg sync.WaitGroup
	wg.Go(func() { _ = srv.Serve(l) })
	return l.Addr().String(), func() {
		srv.Stop(context.Background())
		wg.Wait()
	}
}

type fakeJobs struct{}

var at = time.Date(2026, 7, 1, 12, 0, 0, 0, time.UTC)

func theJob() coordinator.Job {
	return coordinator.Job{
		ID: "00112233aabbccdd", Name: "orders", Program: "order-totals", Version: "v1", State: coordinator.JobFailed,
		Reason: "user-code: boom", Attempt: 2, Restarts: 1, Parallelism: 2, Slots: 2, Submitted: at, Started: at.Add(time.Second),
		Ended: at.Add(90 * time.Second), Checkpoint: 7,
		Failure:  &job.Failure{Class: job.ClassUser, Task: "map/1", Message: "boom"},
		Counters: map[string]int64{"records_read": 1234567, "late_records": 3},
	}
}

func (f *fakeJobs) detail() coordinator.JobDetail {
	return coordinator.JobDetail{
		Job: theJob(), Spec: job.Spec{Args: map[string]string{"topic": "orders"}, Settings: job.DefaultSettings()}, Fingerprint: "0123456789abcdef",
		Vertices: []coordinator.Vertex{{
			Name: "map", Operators: []string{"map", "out"}, Parallelism: 1,
			Tasks: []coordinator.TaskStatus{{Task: job.Task{Vertex: "map"}, State: job.TaskFailed, Worker: "tm-1", Counters: map[string]int64{"records_in": 5}}},
		}},
		Events: []coordinator.JobEvent{{Time: at, Kind: "state", Message: "running"}}, Restored: 6,
		HotKeys: []job.HotKeys{
			{Operator: "map", Total: 1000, Keys: []job.HotKey{{Key: "AAPL", Records: 412.4}, {Key: "a\tb\x1b[0m", Records: 30}, {Key: "rare", Records: 4}}},
			{Operator: "even", Total: 1000, Keys: []job.HotKey{{Key: "1", Records: 2}}},
		},
	}
}

func (f *fakeJobs) find(ref string) error {
	switch ref {
	case "orders", "0011":
		return nil
	case "broken":
		return rpc.Errorf(rpc.Failed, "the store is full")
	case "refused":
		return rpc.Errorf(rpc.Refused, "job %q runs without checkpoints", ref)
	case "away":
		return rpc.NotLeaderError("")
	}
	return rpc.Errorf(rpc.NotFound, "there is no job with id or name %q", ref)
}

func (f *fakeJobs) Submit(_ context.Context, s coordinator.Submission) (coordinator.Submitted, error) {
	if s.Spec.Name == "busy" {
		return coordinator.Submitted{}, rpc.Errorf(rpc.Refused, "a job named %q is running", s.Spec.Name)
	}
	return coordinator.Submitted{Job: theJob(), Notes: []string{fmt.Sprintf("fresh %t, overwrite %t", s.Fresh, s.Overwrite)}}, nil
}
func (f *fakeJobs) List(context.Context) ([]coordinator.Job, error) {
	return []coordinator.Job{theJob()}, nil
}
func (f *fakeJobs) Get(_ context.Context, ref string) (coordinator.JobDetail, error) {
	return f.detail(), f.find(ref)
}
func (f *fakeJobs) Watch(_ context.Context, ref string, fn func(coordinator.JobDetail) error) error {
	if ref == string(theJob().ID) {
		ref = "orders"
	}
	if err := f.find(ref); err != nil {
		return err
	}
	return fn(f.detail())
}
func (f *fakeJobs) Cancel(_ context.Context, ref string) (coordinator.Job, error) {
	return theJob(), f.find(ref)
}
func (f *fakeJobs) TakeSavepoint(_ context.Context, ref string, o coordinator.SavepointOptions) (coordinator.Savepoint, error) {
	if ref == "busy" {
		return coordinator.Savepoint{}, rpc.Errorf(rpc.Refused, "4 savepoints of job %q wait already, which is the limit: try again when one is done", ref)
	}
	s := savepoint
	s.Stopped = o.Stop
	if o.To != "" {
		s.URL = o.To
	}
	return s, nil
}

func (f *fakeJobs) ListSavepoints(_ context.Context, ref string) ([]coordinator.Savepoint, error) {
	return []coordinator.Savepoint{savepoint}, nil
}

func (f *fakeJobs) DeleteSavepoint(_ context.Context, id string) (coordinator.Savepoint, error) {
	if id != savepoint.ID {
		return coordinator.Savepoint{}, rpc.Errorf(rpc.NotFound, "there is no savepoint %q on record", id)
	}
	return savepoint, nil
}

var savepoint = coordinator.Savepoint{
	ID: "sp-0123456789ab", URL: "file:///blob/default/savepoints/0a1b2c3d4e5f6071/sp-0123456789ab", Job: "0a1b2c3d4e5f6071", Name: "flights",
	Checkpoint: 7, Taken: at.Add(-time.Minute), Bytes: 12345,
}

func (f *fakeJobs) TriggerCheckpoint(_ context.Context, ref string, _ coordinator.TriggerOptions) (coordinator.Checkpoint, error) {
	return f.checkpoint(), f.find(ref)
}
func (f *fakeJobs) checkpoint() coordinator.Checkpoint {
	return coordinator.Checkpoint{
		ID: 7, State: coordinator.CheckpointCompleted, Mode: job.ExactlyOnce, Attempt: 1, Triggered: at, Duration: 1234 * time.Millisecond,
		Bytes: 12345678, Acknowledged: 2, Tasks: 2, Final: true, Manifest: "default/jobs/x/checkpoints/7/_metadata",
	}
}
func (f *fakeJobs) ListCheckpoints(_ context.Context, ref string) ([]coordinator.Checkpoint, error) {
	return []coordinator.Checkpoint{f.checkpoint()}, f.find(ref)
}
func (f *fakeJobs) GetCheckpoint(_ context.Context, ref string, id job.CheckpointID) (coordinator.CheckpointDetail, error) {
	if id != 0 && id != 7 {
		return coordinator.CheckpointDetail{}, rpc.Errorf(rpc.NotFound, "job %q has no checkpoint %d", ref, id)
	}
	return coordinator.CheckpointDetail{
		Checkpoint: f.checkpoint(),
		Tasks:      []coordinator.TaskCheckpoint{{Task: job.Task{Vertex: "map"}, Worker: "tm-1", Stats: job.CheckpointStats{Align: time.Millisecond, Bytes: 100}}},
		Operators:  []coordinator.OperatorCheckpoint{{Name: "map", Parallelism: 1, Entries: 10, Bytes: 100}},
	}, f.find(ref)
}
func (f *fakeJobs) Nodes(context.Context) ([]coordinator.Node, error) {
	return []coordinator.Node{{
		Worker: job.WorkerInfo{ID: "tm-1", Slots: 2, Data: "10.0.0.1:6124", Host: "a", PID: 7, Programs: []job.ProgramInfo{{Name: "order-totals", Version: "v1"}}},
		Tasks:  3, FreeSlots: 1, Connected: at, Heartbeat: at,
	}}, nil
}
func (f *fakeJobs) Version(context.Context) (rpc.Version, error) {
	return rpc.Version{Version: "v9", GoVersion: "go9", Cluster: "default", Leader: true, LeaderAddress: "10.0.0.1:6123", Epoch: 4}, nil
}

func TestRun(t *testing.T) {
	p := &numbers{sink: collect.New[int64]()}
	r := call(p, nil, "prog", "run", "numbers", "--arg", "n=300", "--parallelism", "2", "-o", "json")
	var v detailView
	if err := json.Unmarshal([]byte(r.stdout), &v); r.code != Done || err != nil || v.Job.State != "finished" || v.Job.Counters["records_read"] != 300 {
		t.Errorf("exit %d, %v\n%s\n%s", r.code, err, r.stdout, r.stderr)
	}
	rows := p.sink.Rows()
	slices.Sort(rows)
	for i, n := range rows {
		if n != int64(i) {
			t.Fatalf("row %d is %d", i, n)
		}
	}
	if len(rows) != 300 {
		t.Errorf("%d rows", len(rows))
	}
}

func TestRunThatFails(t *testing.T) {
	p := &numbers{sink: collect.New[int64](), fail: func(n int64) {
		if n == 50 {
			panic("number 50")
		}
	}}
	r := call(p, nil, "prog", "run", "numbers", "--arg", "n=300")
	if r.code != Failed || !strings.Contains(r.stderr, "number 50") {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}

// A run that was interrupted goes on from its newest checkpoint when it is called again, in the same way or another.
func TestRunGoesOn(t *testing.T) {
	for name, more := range map[string][]string{"same": nil, "rescaled": {"--parallelism", "2"}, "fresh": {"--fresh"}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			sink := collect.New[int64]()
			interruptedRun(t, sink, dir)
			args := []string{"run", "numbers", "--arg", "n=2000", "--dir", dir}
			before := sink.Len()
			if before == 0 {
				t.Fatal("nothing was committed before the interruption")
			}
			r := call(&numbers{sink: sink}, nil, slices.Concat([]string{"prog"}, args, more)...)
			if r.code != Done {
				t.Fatalf("second run: exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
			}
			if name == "fresh" {
				if sink.Len() != before+2000 {
					t.Errorf("%d rows before, %d in all", before, sink.Len())
				}
				return
			}
			if !strings.Contains(r.stderr, "goes on from checkpoint") {
				t.Errorf("no word about the checkpoint:\n%s", r.stderr)
			}
			rows := sink.Rows()
			slices.Sort(rows)
			if len(rows) != 2000 || rows[0] != 0 || rows[1999] != 1999 || len(slices.Compact(rows)) != 2000 {
				t.Errorf("%d rows, not each number once", len(rows))
			}
		})
	}
}

func TestCompletion(t *testing.T) {
	if r := call(nil, nil, "cairn", "completion", "bash"); r.code != Done || !strings.Contains(r.stdout, "bash completion") {
		t.Errorf("exit %d", r.code)
	}
	if r := call(nil, nil, "cairn", "__complete", "job", ""); r.code != Done || !strings.Contains(r.stdout, "cancel") {
		t.Errorf("exit %d\n%s", r.code, r.stdout)
	}
}

func TestUnreachable(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	_ = l.Close()
	r := call(nil, []string{"CAIRN_JOBMANAGER=" + addr}, "cairn", "job", "list")
	if r.code != Unreachable || !strings.Contains(r.stderr, addr) || r.stdout != "" {
		t.Errorf("exit %d\n%s\n%s", r.code, r.stdout, r.stderr)
	}
}

// A variable that belongs to another command is not taken for a misspelt one of this command.
func TestVariablesAreKnown(t *testing.T) {
	a := New(nil)
	for _, c := range []*cobra.Command{a.jobManagerCommand("jobmanager"), a.taskManagerCommand("taskmanager"), a.localCommand(), a.jobListCommand()} {
		c.Flags().VisitAll(func(f *pflag.Flag) {
			o := option{key: f.Name}
			if f.Name != "print-config" && !slices.Contains(allVariables, o.env()) {
				t.Errorf("%s of %s is not in allVariables", o.env(), c.Name())
			}
		})
	}
}
