//go:build e2e

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
}

// startCluster starts one on an external etcd and S3.
func startCluster(t *testing.T, taskManagers, slots int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), slots: slots, etcd: servers.Etcd(t, 1), s3: servers.S3(t)}
	c.start(taskManagers)
	return c
}

// startSmallCluster starts one on an embedded etcd and a directory.
func startSmallCluster(t *testing.T, taskManagers, slots int) *cluster {
	t.Helper()
	c := &cluster{t: t, dir: t.TempDir(), slots: slots}
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
	p, err := proc.Start(proc.Config{
		Name: fmt.Sprintf("taskmanager-%d", i), Binary: filepath.Join(bin, "taskmanager"), Dir: c.dir, Env: c.env(),
		Args: []string{"--jobmanager", c.addr, "--slots", fmt.Sprint(c.slots), "--listen", "127.0.0.1:0", "--http", "127.0.0.1:0", "--dir", filepath.Join(c.dir, fmt.Sprintf("local-%d", i))},
	})
	if err != nil {
		c.t.Fatal(err)
	}
	c.tms[i] = p
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
