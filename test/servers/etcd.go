package servers

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// EtcdCluster is one or more etcd processes that form a cluster.
type EtcdCluster struct {
	Endpoints []string   // http://127.0.0.1:PORT, one per member
	Members   []*Process // in the same order
}

// Etcd starts a cluster of n members for a test, which ends with the test.
func Etcd(t testing.TB, n int) *EtcdCluster {
	t.Helper()
	c, err := StartEtcd(t.Context(), t.TempDir(), n)
	require(t, err)
	t.Cleanup(c.Kill)
	return c
}

// StartEtcd starts a cluster of n members with their data below dir. ctx bounds the start only; the caller ends the
// cluster with Stop or Kill.
func StartEtcd(ctx context.Context, dir string, n int) (*EtcdCluster, error) {
	binary, err := Binary("etcd")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(2 * n)
	if err != nil {
		return nil, err
	}
	peers := make([]string, n)
	for i := range n {
		peers[i] = fmt.Sprintf("m%d=http://127.0.0.1:%d", i, ports[2*i+1])
	}
	c := &EtcdCluster{}
	for i := range n {
		c.add(binary, dir, i, ports[2*i], strings.Join(peers, ","), strings.TrimPrefix(peers[i], fmt.Sprintf("m%d=", i)))
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	// A member answers only when most of them are up, so all start before any is waited for.
	errs := make(chan error, n)
	for _, m := range c.Members {
		go func() { errs <- m.Start(ctx) }()
	}
	for range n {
		if e := <-errs; e != nil {
			err = e
		}
	}
	if err != nil {
		c.Kill()
		return nil, err
	}
	return c, nil
}

func (c *EtcdCluster) add(binary, dir string, i, port int, cluster, peer string) {
	name, client := fmt.Sprintf("m%d", i), fmt.Sprintf("http://127.0.0.1:%d", port)
	c.Endpoints = append(c.Endpoints, client)
	c.Members = append(c.Members, &Process{
		name: "etcd " + name, binary: binary, logPath: filepath.Join(dir, name+".log"),
		args: []string{
			"--name=" + name, "--data-dir=" + filepath.Join(dir, name), "--log-level=warn",
			"--listen-client-urls=" + client, "--advertise-client-urls=" + client,
			"--listen-peer-urls=" + peer, "--initial-advertise-peer-urls=" + peer,
			"--initial-cluster=" + cluster, "--initial-cluster-state=new",
		},
		ready: func(ctx context.Context) error { return answers(ctx, client+"/health", `"health":"true"`) },
	})
}

// Kill ends all members as a crash does.
func (c *EtcdCluster) Kill() {
	for _, m := range c.Members {
		m.Kill()
	}
}

// Stop ends all members in order.
func (c *EtcdCluster) Stop() {
	for _, m := range c.Members {
		m.Stop()
	}
}

// answers asks a URL over a connection of its own; any answer that contains want is fine.
func answers(ctx context.Context, url, want string) error {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return err
	}
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := transport.RoundTrip(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, 1<<16))
	if err != nil {
		return err
	}
	if !strings.Contains(string(body), want) {
		return fmt.Errorf("%s: %s: %.200s", url, resp.Status, body)
	}
	return nil
}
