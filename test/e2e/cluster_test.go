//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/internal/proc"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/test/servers"
)

// bin is where the binaries are.
var bin string

func TestMain(m *testing.M) { os.Exit(runAll(m)) }

func runAll(m *testing.M) int {
	bin = os.Getenv("CAIRN_BIN")
	if bin == "" {
		dir, err := os.MkdirTemp("", "cairn-e2e-")
		if err != nil {
			panic(err)
		}
		defer func() { _ = os.RemoveAll(dir) }()
		bin = dir
		out, err := exec.Command("go", "build", "-o", dir, "../../cmd/...").CombinedOutput()
		if err != nil {
			fmt.Fprintf(os.Stderr, "build: %v\n%s", err, out)
			return 1
		}
	}
	return m.Run()
}

// build builds programs below this folder and returns the folder of their binaries, which are named like the last element of
// each. Each binary is a version of its program of its own.
func build(t *testing.T, tags string, programs ...string) string {
	t.Helper()
	dir := t.TempDir()
	// Without the revision the version is a hash of the binary.
	args := []string{"build", "-buildvcs=false", "-ldflags", "-s -w", "-tags", tags, "-o", dir + "/"}
	for _, p := range programs {
		args = append(args, "./"+p)
	}
	if out, err := exec.Command("go", args...).CombinedOutput(); err != nil {
		t.Fatalf("build %v: %v\n%s", programs, err, out)
	}
	return dir
}

// submit submits a program by the command line of its binary and returns the job's id.
func (c *cluster) submit(binary, program string, flags ...string) string {
	c.t.Helper()
	var stderr strings.Builder
	cmd := exec.Command(binary, append([]string{"submit", program, "--jobmanager", c.addr}, flags...)...)
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		c.t.Fatalf("submit %s: %v\n%s", program, err, stderr.String())
	}
	c.t.Logf("%s: %s%s", filepath.Base(binary), stderr.String(), out)
	return strings.TrimSpace(string(out))
}

// cluster is one JobManager and a few TaskManagers.
type cluster struct {
	t      *testing.T
	dir    string
	etcd   *servers.EtcdCluster // nil: the JobManager's own.
	s3     *servers.S3Server    // nil: a directory.
	jm     *proc.Process
	tms    []*proc.Process
	addr   string // Of the JobManager: the same after every start.
	client *rpc.Client
	slots  int
	// program is the binary of a program that the TaskManagers are, and memory their --state-memory; both may be empty.
	program, memory string
	dirs            map[int]string // --dir of TaskManagers that have another one than usual.
	started         func(pid int)  // Hears of each TaskManager, if set.
}

// newCluster makes one on an external etcd and S3, which start takes.
func newCluster(t *testing.T, slots int) *cluster {
	t.Helper()
	return &cluster{t: t, dir: t.TempDir(), slots: slots, etcd: servers.Etcd(t, 1), s3: servers.S3(t)}
}

// startCluster starts one on an external etcd and S3.
func startCluster(t *testing.T, taskManagers, slots int) *cluster {
	t.Helper()
	c := newCluster(t, slots)
	c.start(taskManagers)
	return c
}

// newSmallCluster makes one on an embedded etcd and a directory, which start takes.
func newSmallCluster(t *testing.T, slots int) *cluster {
	t.Helper()
	return &cluster{t: t, dir: t.TempDir(), slots: slots}
}

// startSmallCluster starts one on an embedded etcd and a directory.
func startSmallCluster(t *testing.T, taskManagers, slots int) *cluster {
	t.Helper()
	c := newSmallCluster(t, slots)
	c.start(taskManagers)
	return c
}

func (c *cluster) start(taskManagers int) {
	t := c.t
	t.Helper()
	if dir := os.Getenv("CAIRN_E2E_LOGS"); dir != "" {
		c.dir = filepath.Join(dir, filepath.Base(t.Name()))
		if err := os.MkdirAll(c.dir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	t.Cleanup(c.stop)
	c.addr = "127.0.0.1:0"
	c.startJobManager()
	c.addr = c.jm.Ports["listen"]
	c.tms = make([]*proc.Process, taskManagers)
	for i := range c.tms {
		c.startTaskManager(i)
	}
	var err error
	if c.client, err = rpc.NewClient(rpc.ClientConfig{JobManagers: []string{c.addr}}); err != nil {
		t.Fatal(err)
	}
}

// env is what the processes need to use the blob store.
func (c *cluster) env() []string {
	if c.s3 == nil {
		return nil
	}
	return c.s3.Env()
}

func (c *cluster) startJobManager() {
	c.t.Helper()
	etcd, blobs := "embedded:"+filepath.Join(c.dir, "etcd"), "file://"+filepath.Join(c.dir, "blobs")
	if c.etcd != nil {
		etcd = c.etcd.Endpoints[0]
	}
	if c.s3 != nil {
		blobs = c.s3.URL("e2e")
	}
	p, err := proc.Start(proc.Config{
		Name: "jobmanager", Binary: filepath.Join(bin, "jobmanager"), Dir: c.dir, Env: c.env(),
		Args: []string{"--listen", c.addr, "--http", "127.0.0.1:0", "--etcd", etcd, "--blob", blobs},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.jm = p
}

func (c *cluster) startTaskManager(i int) {
	c.t.Helper()
	binary, args := filepath.Join(bin, "taskmanager"), []string{}
	if c.program != "" {
		binary, args = c.program, []string{"taskmanager"}
	}
	args = append(args, "--jobmanager", c.addr, "--slots", fmt.Sprint(c.slots), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--dir", c.localDir(i))
	if c.memory != "" {
		args = append(args, "--state-memory", c.memory)
	}
	p, err := proc.Start(proc.Config{
		Name: fmt.Sprintf("taskmanager-%d", i), Binary: binary, Dir: c.dir, Env: c.env(), Args: args,
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.tms[i] = p
	if c.started != nil {
		c.started(p.PID())
	}
}

// localDir is the --dir of a TaskManager.
func (c *cluster) localDir(i int) string {
	if dir := c.dirs[i]; dir != "" {
		return dir
	}
	return filepath.Join(c.dir, fmt.Sprintf("local-%d", i))
}

func (c *cluster) stop() {
	if c.client != nil {
		_ = c.client.Close()
	}
	for _, p := range append(c.tms, c.jm) {
		if p == nil {
			continue
		}
		select {
		case <-p.Done():
		default:
			if err := p.Stop(40 * time.Second); err != nil {
				c.t.Errorf("%s did not end well: %v", p.Name, err)
			}
		}
	}
	if c.etcd != nil {
		c.etcd.Kill()
	}
}

// get asks for the job until a JobManager answers.
func (c *cluster) get(ctx context.Context, ref string) coordinator.JobDetail {
	c.t.Helper()
	for {
		d, err := c.client.Get(ctx, ref)
		if err == nil {
			return d
		}
		if ctx.Err() != nil {
			c.t.Fatalf("the job cannot be asked for: %v", err)
		}
		time.Sleep(100 * time.Millisecond)
	}
}
