package servers_test

import (
	"io"
	"net/http"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func fetch(url string) (string, error) {
	resp, err := (&http.Transport{DisableKeepAlives: true}).RoundTrip(must(http.NewRequest(http.MethodGet, url, nil)))
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	return string(body), err
}

func must[T any](v T, err error) T {
	if err != nil {
		panic(err)
	}
	return v
}

// The life of a server: it answers, is gone after a kill, and answers on the same port after a restart.
func TestS3Lifecycle(t *testing.T) {
	s := servers.S3(t)
	if _, err := fetch(s.Endpoint); err != nil {
		t.Fatal(err)
	}
	pid := s.PID()
	s.Kill()
	if _, err := fetch(s.Endpoint); err == nil {
		t.Fatal("a killed server answers")
	}
	if err := s.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if _, err := fetch(s.Endpoint); err != nil || s.PID() == pid {
		t.Fatalf("after the restart: pid %d, error %v", s.PID(), err)
	}
	if err := s.Start(t.Context()); err == nil {
		t.Error("a second start of a running server is fine")
	}
	s.Stop()
}

func TestEtcdCluster(t *testing.T) {
	c := servers.Etcd(t, 3)
	c.Members[0].Kill()
	body, err := fetch(c.Endpoints[1] + "/version")
	if err != nil || !strings.Contains(body, "etcdserver") {
		t.Errorf("got %q, %v", body, err)
	}
	if err := c.Members[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	c.Stop()
}

func TestMissingBinary(t *testing.T) {
	t.Setenv("CAIRN_TOOLS_BIN", t.TempDir())
	if _, err := servers.StartS3(t.Context(), t.TempDir()); err == nil || !strings.Contains(err.Error(), "make tools") {
		t.Errorf("got %v", err)
	}
}
