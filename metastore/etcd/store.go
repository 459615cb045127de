package etcd

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync"
	"time"

	clientv3 "go.etcd.io/etcd/client/v3"
	"go.uber.org/zap"

	"github.com/cairnstream/cairn/metastore"
)

// Config of a client. Endpoints are required; zero means the default for the rest.
type Config struct {
	// Endpoints of the cluster's members, for example http://10.0.0.1:2379.
	Endpoints []string
	// Prefix of all keys, so that clusters can share an etcd. Default "cairn".
	Prefix string
	// LeaseTTL is how long a leader that went silent stays leader, in whole seconds. Default 5 s: a failover should
	// take seconds, while a restart of an etcd leader (1 to 2 s of no writes) or a pause of the process must not cost
	// the leadership. etcd extends a TTL that is below 1.5 times its election time-out.
	LeaseTTL time.Duration
	// Patience is how much longer a leader that cannot renew its lease, since etcd does not answer, takes itself for
	// the leader. It is one again when etcd answers and nobody else was in between; what it writes is guarded all the
	// time. Default 1 min: jobs run on while etcd is away for a while. A leader that alone is cut off from etcd keeps
	// its TaskManagers for so long from the next one.
	Patience time.Duration
	// DialTimeout bounds the wait for a connection, and how long a silent one is kept. Default 5 s.
	DialTimeout time.Duration
	// RequestTimeout bounds each call, whatever its context allows, so that none hangs on a cluster that is away.
	// Default 5 s: longer than the election of a new etcd leader.
	RequestTimeout time.Duration
	// Logger gets what happens to leaderships. Default none.
	Logger *zap.Logger
}

// WithDefaults fills in what is not set.
func (c Config) WithDefaults() Config {
	if c.Prefix == "" {
		c.Prefix = "cairn"
	}
	for _, d := range []*time.Duration{&c.LeaseTTL, &c.DialTimeout, &c.RequestTimeout} {
		if *d == 0 {
			*d = 5 * time.Second
		}
	}
	if c.Patience == 0 {
		c.Patience = time.Minute
	}
	if c.Logger == nil {
		c.Logger = zap.NewNop()
	}
	return c
}

// Validate lists what is wrong with a configuration that has its defaults.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	if len(c.Endpoints) == 0 {
		bad("Endpoints is empty")
	}
	for _, e := range c.Endpoints {
		if e == "" {
			bad("Endpoints has an empty one")
		}
	}
	if err := metastore.CheckKey(c.Prefix); err != nil || strings.HasSuffix(c.Prefix, "/") {
		bad("Prefix %q must be a key that does not end with a slash", c.Prefix)
	}
	if c.LeaseTTL < time.Second || c.LeaseTTL%time.Second != 0 {
		bad("LeaseTTL is %v, must be whole seconds", c.LeaseTTL)
	}
	if c.DialTimeout < 0 || c.RequestTimeout < 0 || c.Patience < 0 {
		bad("time-outs must be positive")
	}
	return errors.Join(errs...)
}

// Store is a metastore.Store on etcd. Make one with Open.
type Store struct {
	config Config
	client *clientv3.Client
	closed chan struct{}
	mu     struct {
		sync.Mutex
		closed      bool
		leaderships map[*leadership]struct{}
	}
}

var _ metastore.Store = (*Store)(nil)

// Open makes a client. It does not wait for the cluster: connections are made, and made again, as they are needed.
func Open(config Config) (*Store, error) {
	config = config.WithDefaults()
	if err := config.Validate(); err != nil {
		return nil, fmt.Errorf("open etcd client: %w", err)
	}
	client, err := clientv3.New(clientv3.Config{
		Endpoints:   config.Endpoints,
		DialTimeout: config.DialTimeout,
		// A connection whose other end has silently gone is found out. etcd refuses pings more often than 5 s.
		DialKeepAliveTime:    10 * time.Second,
		DialKeepAliveTimeout: config.DialTimeout,
		Logger:               config.Logger.Named("client").WithOptions(zap.IncreaseLevel(zap.ErrorLevel)),
	})
	if err != nil {
		return nil, fmt.Errorf("open etcd client: %w", err)
	}
	s := &Store{config: config, client: client, closed: make(chan struct{})}
	s.mu.leaderships = make(map[*leadership]struct{})
	return s, nil
}

func (s *Store) dataKey(key string) string      { return s.config.Prefix + "/kv/" + key }
func (s *Store) electionKey(name string) string { return s.config.Prefix + "/election/" + name }

// holderKey has no lease: it says who led last, also when nobody leads.
func (s *Store) holderKey(name string) string { return s.config.Prefix + "/holder/" + name }

// Get implements metastore.Store.
func (s *Store) Get(ctx context.Context, key string) (metastore.Entry, error) {
	e, err := s.get(ctx, key)
	return e, failed("get", key, err)
}

func (s *Store) get(ctx context.Context, key string) (metastore.Entry, error) {
	if err := metastore.CheckKey(key); err != nil {
		return metastore.Entry{}, err
	}
	var resp *clientv3.GetResponse
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.dataKey(key))
		return err
	})
	switch {
	case err != nil:
		return metastore.Entry{}, err
	case len(resp.Kvs) == 0:
		return metastore.Entry{}, metastore.ErrNotFound
	}
	kv := resp.Kvs[0]
	return metastore.Entry{Key: key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision}, nil
}

// List implements metastore.Store.
func (s *Store) List(ctx context.Context, prefix string) ([]metastore.Entry, error) {
	var resp *clientv3.GetResponse
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.dataKey(prefix), clientv3.WithPrefix(), clientv3.WithSort(clientv3.SortByKey, clientv3.SortAscend))
		return err
	})
	if err != nil {
		return nil, failed("list", prefix, err)
	}
	entries := make([]metastore.Entry, len(resp.Kvs))
	for i, kv := range resp.Kvs {
		key := strings.TrimPrefix(string(kv.Key), s.dataKey(""))
		entries[i] = metastore.Entry{Key: key, Value: kv.Value, CreateRevision: kv.CreateRevision, ModRevision: kv.ModRevision}
	}
	return entries, nil
}

// Leader implements metastore.Store.
func (s *Store) Leader(ctx context.Context, name string) (metastore.LeaderInfo, error) {
	if err := metastore.CheckKey(name); err != nil {
		return metastore.LeaderInfo{}, failed("leader of", name, err)
	}
	var resp *clientv3.GetResponse
	err := s.ask(ctx, func(ctx context.Context) (err error) {
		resp, err = s.client.Get(ctx, s.electionKey(name))
		return err
	})
	if err == nil && len(resp.Kvs) == 0 {
		err = metastore.ErrNoLeader
	}
	if err != nil {
		return metastore.LeaderInfo{}, failed("leader of", name, err)
	}
	return leaderInfo(resp.Kvs[0]), nil
}

// Close implements metastore.Store.
func (s *Store) Close() error {
	s.mu.Lock()
	again := s.mu.closed
	if !again {
		s.mu.closed = true
		close(s.closed)
	}
	var leaderships []*leadership
	for l := range s.mu.leaderships {
		leaderships = append(leaderships, l)
	}
	s.mu.Unlock()
	if again {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), min(2*time.Second, s.config.RequestTimeout))
	defer cancel()
	for _, l := range leaderships {
		if err := l.Resign(ctx); err != nil {
			s.config.Logger.Warn("leadership ends with its lease only", zap.String("election", l.name), zap.Error(err))
		}
	}
	if err := s.client.Close(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("close etcd client: %w", err)
	}
	return nil
}

func failed(op, what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("etcd: %s %q: %w", op, what, err)
}
