package etcd_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"

	"github.com/cairnstream/cairn/metastore"
	"github.com/cairnstream/cairn/metastore/etcd"
	"github.com/cairnstream/cairn/metastore/metatest"
	"github.com/cairnstream/cairn/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t *testing.T, config etcd.Config) *etcd.Store {
	t.Helper()
	s, err := etcd.Open(config)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func embedded(t *testing.T, dir string) *etcd.Embedded {
	t.Helper()
	e, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedConfig{Dir: dir, UnsafeNoFsync: true})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.Close)
	return e
}

// prefixes keep the tests of one server apart.
var prefixes atomic.Int64

type harness struct {
	endpoints []string
	prefix    string
}

func (h harness) Client(t *testing.T) metastore.Store {
	return open(t, etcd.Config{Endpoints: h.endpoints, Prefix: h.prefix, LeaseTTL: 2 * time.Second})
}

func conformance(t *testing.T, endpoints []string) {
	metatest.Run(t, func(*testing.T) metatest.Harness {
		return harness{endpoints, fmt.Sprintf("test-%d", prefixes.Add(1))}
	})
}

func TestEmbeddedConformance(t *testing.T) { conformance(t, embedded(t, t.TempDir()).Endpoints()) }

func TestClusterConformance(t *testing.T) { conformance(t, servers.Etcd(t, 3).Endpoints) }

func elect(t *testing.T, s metastore.Store, id string) metastore.Leadership {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	l, err := s.Elect(ctx, "leader", id)
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func put(key, value string) metastore.Txn {
	return metastore.Txn{Puts: []metastore.Put{{Key: key, Value: []byte(value)}}}
}

// eventually repeats what needs a server's time.
func eventually(t *testing.T, what string, try func() error) {
	t.Helper()
	deadline := time.Now().Add(30 * time.Second)
	for {
		err := try()
		if err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s: %v", what, err)
		}
		time.Sleep(20 * time.Millisecond)
	}
}

func commits(ctx context.Context, l metastore.Leadership, txn metastore.Txn) error {
	o, err := l.Commit(ctx, txn)
	if err == nil && o != metastore.Committed {
		err = errors.New(o.String())
	}
	return err
}

// With a long lease a restarted process would have to wait for its own former self; the lock of the directory says
// that it need not.
func TestEmbeddedRestart(t *testing.T) {
	dir := t.TempDir()
	first, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedConfig{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	s, err := etcd.Open(etcd.Config{Endpoints: first.Endpoints(), LeaseTTL: time.Hour, RequestTimeout: time.Second})
	if err != nil {
		t.Fatal(err)
	}
	l := elect(t, s, "a")
	if err := commits(t.Context(), l, put("k", "v")); err != nil {
		t.Fatal(err)
	}
	first.Close() // the client is not closed: nothing is given back
	s.Close()

	begin := time.Now()
	again := open(t, etcd.Config{Endpoints: embedded(t, dir).Endpoints()})
	next := elect(t, again, "a")
	t.Logf("leads %v after the restart", time.Since(begin))
	if next.Epoch() <= l.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), l.Epoch())
	}
	if e, err := again.Get(t.Context(), "k"); err != nil || string(e.Value) != "v" {
		t.Errorf("after the restart: %v, %v", e, err)
	}
}

func TestEmbeddedDirInUse(t *testing.T) {
	dir := t.TempDir()
	embedded(t, dir)
	_, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedConfig{Dir: dir})
	if !errors.Is(err, etcd.ErrDirInUse) || !strings.Contains(err.Error(), dir) || !strings.Contains(err.Error(), "pid") {
		t.Errorf("got %v", err)
	}
	if _, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedConfig{Dir: filepath.Join("/proc", "none")}); err == nil {
		t.Error("started in a directory that cannot be made")
	}
	if _, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedConfig{}); err == nil {
		t.Error("started without a directory")
	}
}

// A healthy embedded etcd says nothing.
func TestEmbeddedIsQuiet(t *testing.T) {
	core, logs := observer.New(zapcore.DebugLevel)
	e, err := etcd.StartEmbedded(t.Context(), etcd.EmbeddedConfig{Dir: t.TempDir(), UnsafeNoFsync: true, Logger: zap.New(core)})
	if err != nil {
		t.Fatal(err)
	}
	defer e.Close()
	if !strings.HasPrefix(e.Endpoints()[0], "http://127.0.0.1:") {
		t.Errorf("endpoint %q", e.Endpoints())
	}
	for _, entry := range logs.All() {
		t.Errorf("%v: %s %v", entry.Level, entry.Message, entry.ContextMap())
	}
}

// With etcd away every call ends in time and says so, the leadership is known to be lost after its lease and the patience
// with it, and when etcd is back the same client goes on and leads anew.
func TestServerAway(t *testing.T) {
	server := servers.Etcd(t, 1)
	s := open(t, etcd.Config{
		Endpoints: server.Endpoints, LeaseTTL: 2 * time.Second, RequestTimeout: 300 * time.Millisecond, Patience: 100 * time.Millisecond,
	})
	l := elect(t, s, "a")
	if err := commits(t.Context(), l, put("k", "v")); err != nil {
		t.Fatal(err)
	}
	server.Kill()
	if _, err := s.Get(t.Context(), "k"); !errors.Is(err, metastore.ErrUnavailable) {
		t.Errorf("get: %v", err)
	}
	if o, err := l.Commit(t.Context(), put("k", "w")); !errors.Is(err, metastore.ErrOutcomeUnknown) {
		t.Errorf("commit: %v, %v", o, err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer cancel()
	if _, err := s.Leader(ctx, "leader"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("leader: %v", err)
	}
	if _, err := s.Elect(ctx, "other", "a"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("elect: %v", err)
	}
	select {
	case <-l.Lost():
	case <-time.After(30 * time.Second):
		t.Fatal("Lost stays open")
	}
	if o, err := l.Commit(t.Context(), put("k", "w")); err != nil || o != metastore.NotLeader {
		t.Errorf("commit after the loss: %v, %v", o, err)
	}
	won := make(chan metastore.Leadership, 1)
	go func() { won <- elect(t, s, "a") }()
	if err := server.Members[0].Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	next := <-won
	if next.Epoch() <= l.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), l.Epoch())
	}
	eventually(t, "commit after the restart", func() error { return commits(t.Context(), next, put("k", "x")) })
	server.Kill()
	begin := time.Now()
	s.Close()
	if took := time.Since(begin); took > 10*time.Second {
		t.Errorf("close with etcd away took %v", took)
	}
}

// A leader goes on, in the same epoch, when etcd was away for longer than its lease and nobody led in between: after a
// restart, which keeps the lease, and after a pause, in which it runs out.
func TestAwayForAWhile(t *testing.T) {
	for name, away := range map[string]func(*servers.Process) error{
		"restart": func(m *servers.Process) error {
			m.Kill()
			time.Sleep(4 * time.Second)
			return m.Restart(t.Context())
		},
		"pause": func(m *servers.Process) error {
			if err := m.Pause(); err != nil {
				return err
			}
			time.Sleep(4 * time.Second)
			return m.Resume()
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := servers.Etcd(t, 1)
			s := open(t, etcd.Config{Endpoints: server.Endpoints, LeaseTTL: 2 * time.Second, RequestTimeout: time.Second})
			l := elect(t, s, "a:1")
			for i := range 2 { // A second term is a leadership like the first.
				if err := away(server.Members[0]); err != nil {
					t.Fatal(err)
				}
				eventually(t, "commit after etcd was away", func() error { return commits(t.Context(), l, put("k", fmt.Sprint(i))) })
				select {
				case <-l.Lost():
					t.Fatal("lost")
				default:
				}
				if e, err := l.Get(t.Context(), "k"); err != nil || string(e.Value) != fmt.Sprint(i) {
					t.Errorf("get: %v, %v", e, err)
				}
				if info, err := s.Leader(t.Context(), "leader"); err != nil || info.ID != "a:1" || info.Epoch != l.Epoch() {
					t.Errorf("leader: %v, %v; the epoch is %d", info, err, l.Epoch())
				}
			}
			if err := l.Resign(t.Context()); err != nil {
				t.Fatal(err)
			}
			if next := elect(t, s, "b:1"); next.Epoch() <= l.Epoch() {
				t.Errorf("epoch %d after %d", next.Epoch(), l.Epoch())
			}
			if o, err := l.Commit(t.Context(), put("k", "late")); err != nil || o != metastore.NotLeader {
				t.Errorf("commit of the former leader: %v, %v", o, err)
			}
		})
	}
}

// A leader that was paused for longer than its lease is replaced, and what it wrote when it woke up has no effect. The
// pause is that of the only etcd it knows: to the leader it is the same silence.
func TestTakeover(t *testing.T) {
	cluster := servers.Etcd(t, 3)
	config := etcd.Config{Endpoints: cluster.Endpoints[:1], LeaseTTL: 2 * time.Second, RequestTimeout: time.Second}
	old := elect(t, open(t, config), "old")
	config.Endpoints = cluster.Endpoints[1:]
	other := open(t, config)
	if err := cluster.Members[0].Pause(); err != nil {
		t.Fatal(err)
	}
	begin := time.Now()
	next := elect(t, other, "new")
	t.Logf("taken over after %v", time.Since(begin))
	if next.Epoch() <= old.Epoch() {
		t.Errorf("epoch %d after %d", next.Epoch(), old.Epoch())
	}
	if err := commits(t.Context(), next, put("k", "new")); err != nil {
		t.Fatal(err)
	}
	if err := cluster.Members[0].Resume(); err != nil {
		t.Fatal(err)
	}
	eventually(t, "refusal of the old leader", func() error {
		o, err := old.Commit(t.Context(), put("k", "old"))
		if err == nil && o != metastore.NotLeader {
			t.Fatalf("the old leader's commit: %v", o)
		}
		return err
	})
	<-old.Lost()
	if e, err := other.Get(t.Context(), "k"); err != nil || string(e.Value) != "new" {
		t.Errorf("got %v, %v", e, err)
	}
}

// The loss of one etcd of three costs no leadership, whichever it is.
func TestMemberLoss(t *testing.T) {
	cluster := servers.Etcd(t, 3)
	l := elect(t, open(t, etcd.Config{Endpoints: cluster.Endpoints}), "a")
	for i, m := range cluster.Members {
		m.Kill()
		txn := metastore.Txn{
			Conditions: []metastore.Condition{metastore.Absent(fmt.Sprint("k", i))},
			Puts:       []metastore.Put{{Key: fmt.Sprint("k", i), Value: []byte("v")}},
		}
		ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
		if o, err := metastore.Settle(ctx, l, txn); err != nil || o != metastore.Committed {
			t.Errorf("member %d is gone: %v, %v", i, o, err)
		}
		cancel()
		if err := m.Restart(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	select {
	case <-l.Lost():
		t.Error("lost")
	default:
	}
}

func TestBadConfig(t *testing.T) {
	_, err := etcd.Open(etcd.Config{Prefix: "/x", LeaseTTL: time.Millisecond})
	for _, want := range []string{"Endpoints", "Prefix", "LeaseTTL"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v does not name %s", err, want)
		}
	}
}
