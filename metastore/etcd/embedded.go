package etcd

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.etcd.io/etcd/server/v3/embed"
	"go.uber.org/zap"
)

// EmbeddedConfig of an etcd inside this process. Dir is required; zero means the default for the rest.
type EmbeddedConfig struct {
	// Dir holds the data. It is created if need be, and belongs to one process at a time.
	Dir string
	// Logger gets what etcd has to say at level warn and above. Default none.
	Logger *zap.Logger
	// UnsafeNoFsync loses acknowledged writes when the machine fails: for tests and benchmarks only.
	UnsafeNoFsync bool
	// QuotaBytes is the largest size of the data; etcd refuses writes beyond it. Default 1 GiB: metadata is pointers,
	// a thousandth of that is usual.
	QuotaBytes int64
	// StartTimeout bounds the start. Default 30 s: it takes less than a second, and replaying a log on a busy disk
	// longer.
	StartTimeout time.Duration
}

// WithDefaults fills in what is not set.
func (c EmbeddedConfig) WithDefaults() EmbeddedConfig {
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	if c.QuotaBytes == 0 {
		c.QuotaBytes = 1 << 30
	}
	if c.StartTimeout == 0 {
		c.StartTimeout = 30 * time.Second
	}
	return c
}

// Validate lists what is wrong with a configuration that has its defaults.
func (c EmbeddedConfig) Validate() error {
	var errs []error
	if c.Dir == "" {
		errs = append(errs, errors.New("Dir is empty"))
	}
	if c.QuotaBytes < 0 {
		errs = append(errs, fmt.Errorf("QuotaBytes is %d", c.QuotaBytes))
	}
	if c.StartTimeout < 0 {
		errs = append(errs, fmt.Errorf("StartTimeout is %v", c.StartTimeout))
	}
	return errors.Join(errs...)
}

// ErrDirInUse: another process runs an etcd on the directory.
var ErrDirInUse = errors.New("directory is in use by another process")

// Embedded is an etcd of one member inside this process. It listens on free ports of the loopback interface only.
type Embedded struct {
	etcd     *embed.Etcd
	lock     *os.File
	endpoint string
}

// StartEmbedded starts an etcd and waits until it serves. The lock of the directory proves that whoever held a lease
// before is gone, so all leases are revoked: a process that restarts leads at once.
func StartEmbedded(ctx context.Context, config EmbeddedConfig) (*Embedded, error) {
	config = config.WithDefaults()
	err := config.Validate()
	if err != nil {
		return nil, fmt.Errorf("start embedded etcd: %w", err)
	}
	e := &Embedded{}
	if err = e.start(ctx, config); err != nil {
		e.Close()
		return nil, fmt.Errorf("start embedded etcd in %s: %w", config.Dir, err)
	}
	return e, nil
}

func (e *Embedded) start(ctx context.Context, config EmbeddedConfig) (err error) {
	ctx, cancel := context.WithTimeout(ctx, config.StartTimeout)
	defer cancel()
	if e.lock, err = lockDir(config.Dir); err != nil {
		return err
	}
	if e.etcd, err = startEtcd(embedConfig(config)); err != nil {
		return err
	}
	select {
	case <-e.etcd.Server.ReadyNotify():
	case err := <-e.etcd.Err():
		return err
	case <-ctx.Done():
		return fmt.Errorf("not ready: %w", ctx.Err())
	}
	e.endpoint = "http://" + e.etcd.Clients[0].Addr().String()
	return revokeLeases(ctx, e.endpoint)
}

// startEtcd is embed.StartEtcd, which panics when it cannot write: it has logged why.
func startEtcd(c *embed.Config) (e *embed.Etcd, err error) {
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("%v: its log, above, says why", v)
		}
	}()
	return embed.StartEtcd(c)
}

func embedConfig(config EmbeddedConfig) *embed.Config {
	// Port 0 is a free one. Nobody is told the peer's address: there are no others.
	loopback := []url.URL{{Scheme: "http", Host: "127.0.0.1:0"}}
	c := embed.NewConfig()
	c.Name = "embedded"
	c.Dir = filepath.Join(config.Dir, "etcd")
	c.ListenClientUrls, c.AdvertiseClientUrls = loopback, loopback
	c.ListenPeerUrls, c.AdvertisePeerUrls = loopback, loopback
	c.InitialCluster = c.InitialClusterFromName(c.Name)
	// One member needs no time to find out whether others live: it leads as soon as it may stand.
	c.TickMs, c.ElectionMs = 50, 500
	c.QuotaBackendBytes = config.QuotaBytes
	// Nobody reads old revisions, but a watch of a standby may be behind by a moment.
	c.AutoCompactionMode, c.AutoCompactionRetention = embed.CompactorModePeriodic, "10m"
	c.UnsafeNoFsync = config.UnsafeNoFsync
	c.LogLevel = "warn"
	c.ZapLoggerBuilder = embed.NewZapLoggerBuilder(quiet(config.Logger))
	return c
}

// lockDir makes the directory and takes its lock, which ends with the process.
func lockDir(dir string) (*os.File, error) {
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, err
	}
	f, err := os.OpenFile(filepath.Join(dir, "lock"), os.O_CREATE|os.O_RDWR, 0o600)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		holder := make([]byte, 20)
		n, _ := f.Read(holder)
		f.Close()
		if errors.Is(err, syscall.EWOULDBLOCK) {
			return nil, fmt.Errorf("%w (pid %s)", ErrDirInUse, strings.TrimSpace(string(holder[:n])))
		}
		return nil, fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	// For the message above only; the lock counts, not what the file says.
	if err := f.Truncate(0); err == nil {
		fmt.Fprintln(f, os.Getpid())
	}
	return f, nil
}

// revokeLeases ends what former processes held.
func revokeLeases(ctx context.Context, endpoint string) error {
	client, err := clientv3.New(clientv3.Config{Endpoints: []string{endpoint}, Logger: zap.NewNop()})
	if err != nil {
		return err
	}
	defer client.Close()
	leases, err := client.Leases(ctx)
	if err != nil {
		return fmt.Errorf("list leases: %w", err)
	}
	for _, lease := range leases.Leases {
		if _, err := client.Revoke(ctx, lease.ID); err != nil {
			return fmt.Errorf("revoke lease %x: %w", lease.ID, err)
		}
	}
	return nil
}

// Endpoints is what Config takes.
func (e *Embedded) Endpoints() []string { return []string{e.endpoint} }

// Failed yields an error if the etcd ends by itself.
func (e *Embedded) Failed() <-chan error { return e.etcd.Err() }

// Close stops the etcd and frees the directory. Clients are closed before, as they would try to reconnect.
func (e *Embedded) Close() {
	if e.etcd != nil {
		e.etcd.Close()
	}
	if e.lock != nil {
		e.lock.Close()
	}
}
