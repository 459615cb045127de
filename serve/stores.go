package serve

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/local"
	"github.com/cairnstream/cairn/blob/s3"
	"github.com/cairnstream/cairn/blob/sealed"
	"github.com/cairnstream/cairn/metastore"
	"github.com/cairnstream/cairn/metastore/etcd"
	"github.com/cairnstream/cairn/metastore/mem"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/fs"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// probeTimeout bounds one try to reach a store at start, so that there is a line a second about it.
const probeTimeout = time.Second

// openBlob opens the blob store of a URL and makes sure that it answers.
func openBlob(ctx context.Context, raw string, reg prometheus.Registerer) (blob.Store, func(), error) {
	loc, err := blob.ParseLocation(raw)
	if err != nil {
		return nil, nil, err
	}
	s, done, err := openPlain(ctx, loc, reg)
	if err != nil {
		return nil, nil, err
	}
	return seal(loc, s, done)
}

// seal encrypts the objects of a store, if its URL names keys.
func seal(loc blob.Location, s blob.Store, done func()) (blob.Store, func(), error) {
	if loc.Keys == "" {
		return s, done, nil
	}
	text, err := os.ReadFile(loc.Keys)
	if err == nil {
		var keys sealed.Keys
		if keys, err = sealed.ParseKeys(string(text)); err == nil {
			s, err = sealed.New(s, keys)
		}
	}
	if err != nil {
		done()
		return nil, nil, fmt.Errorf("blob URL %s: keys of %s: %w", loc.Object(""), loc.Keys, err)
	}
	return s, done, nil
}

func openPlain(ctx context.Context, loc blob.Location, reg prometheus.Registerer) (blob.Store, func(), error) {
	switch loc.Scheme {
	case blob.SchemeFile:
		s, err := local.Open(loc)
		if err != nil {
			return nil, nil, err
		}
		return meterBlob(s, reg), func() {}, nil
	case blob.SchemeS3:
		// The probe does not repeat what fails: who waits for the store wants to know why, soon.
		probe, err := s3.Open(loc, s3.Options{Tries: 1})
		if err != nil {
			return nil, nil, err
		}
		defer probe.Close()
		ctx, cancel := context.WithTimeout(ctx, probeTimeout)
		defer cancel()
		if err := probe.Probe(ctx); err != nil {
			return nil, nil, err
		}
		s, err := s3.Open(loc, s3.Options{})
		if err != nil {
			return nil, nil, err
		}
		return meterBlob(s, reg), func() { _ = s.Close() }, nil
	}
	return nil, nil, fmt.Errorf("blob URL %s: scheme %q is for tests", loc, loc.Scheme)
}

// OpenBlob opens a blob store for a command that is not a process of a cluster, and makes sure that it answers. One that is
// only read from must be there already.
func OpenBlob(ctx context.Context, loc blob.Location, readOnly bool) (blob.Store, func(), error) {
	if readOnly && loc.Scheme == blob.SchemeFile {
		s, err := local.OpenRead(loc)
		if err != nil {
			return nil, nil, err
		}
		return seal(loc, s, func() {})
	}
	return openBlob(ctx, loc.String(), prometheus.NewRegistry())
}

// openOther opens another store than the cluster's: of a snapshot that a job begins with, or for a savepoint.
func openOther(ctx context.Context, url string, readOnly bool) (blob.Store, func(), error) {
	loc, err := blob.ParseLocation(url)
	if err != nil {
		return nil, nil, err
	}
	return OpenBlob(ctx, loc, readOnly)
}

// Stored says how states in snapshots are read without the program: what the backends on maps write is known anyway, and
// other backends bring the kinds of handles that they have.
func Stored() stored.Options {
	return stored.Options{Openers: map[string]stored.Opener{statebackend.KindTree: pebble.OpenStored}}
}

// Verify says how snapshots are verified.
func Verify() stored.VerifyOptions { return stored.VerifyOptions{Trees: pebble.VerifyStored} }

// backends finds a state backend by the name that the setting state.backend has. Those that share something share it as
// long as the function is in use.
func backends() func(name string) (statebackend.Factory, error) {
	trees := &pebble.Factory{}
	return func(name string) (statebackend.Factory, error) { return backend(name, trees) }
}

func backend(name string, trees *pebble.Factory) (statebackend.Factory, error) {
	switch name {
	case statebackend.Memory:
		return memory.Factory{Trees: pebble.OpenTrees}, nil
	case statebackend.FS:
		return fs.Factory{Trees: pebble.OpenTrees}, nil
	case statebackend.Pebble:
		return trees, nil
	}
	return nil, fmt.Errorf("there is no state backend %q", name)
}

// The values of --etcd that are not endpoints.
const (
	embeddedPrefix = "embedded:" // embedded:DIR
	inMemory       = "memory:"   // For a cluster that lives no longer than its process.
)

// checkEtcd lists what is wrong with the value of --etcd.
func checkEtcd(value string, problems *[]string) {
	bad := func(format string, args ...any) {
		*problems = append(*problems, "etcd: "+fmt.Sprintf(format, args...))
	}
	if dir, ok := strings.CutPrefix(value, embeddedPrefix); ok {
		if dir == "" {
			bad("%q names no directory: want embedded:DIR", value)
		}
		return
	}
	if value == inMemory {
		return
	}
	for _, e := range strings.Split(value, ",") {
		e = strings.TrimSpace(e)
		addr := e
		if strings.Contains(e, "://") {
			u, err := url.Parse(e)
			if err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
				bad("%q is not an endpoint: want host:port or http://host:port", e)
				continue
			}
			addr = u.Host
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			bad("%q is not an endpoint: want host:port or http://host:port", e)
		}
	}
}

// metadata is an opened metadata store.
type metadata struct {
	store  metastore.Store
	failed <-chan error // Yields an error when an embedded etcd ends by itself; nil for others.
	close  func()
}

// openMetadata opens the store that --etcd names. An external one need not answer yet.
func openMetadata(ctx context.Context, value string, log *zap.Logger) (*metadata, error) {
	if value == inMemory {
		c := mem.NewCluster().Client()
		return &metadata{store: c, close: func() { _ = c.Close() }}, nil
	}
	if dir, ok := strings.CutPrefix(value, embeddedPrefix); ok {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return nil, fmt.Errorf("directory of the embedded etcd: %w", err)
		}
		gate := &gate{inner: log.Core(), closed: new(atomic.Bool)}
		e, err := etcd.StartEmbedded(ctx, etcd.EmbeddedConfig{Dir: abs, Logger: zap.New(gate)})
		if err != nil {
			return nil, err
		}
		s, err := etcd.Open(etcd.Config{Endpoints: e.Endpoints(), Logger: zap.New(gate)})
		if err != nil {
			e.Close()
			return nil, err
		}
		return &metadata{store: s, failed: e.Failed(), close: func() {
			if err := s.Close(); err != nil {
				log.Warn("close the client of the embedded etcd", zap.Error(err))
			}
			gate.closed.Store(true)
			e.Close()
		}}, nil
	}
	var endpoints []string
	for _, e := range strings.Split(value, ",") {
		if e = strings.TrimSpace(e); e != "" && !strings.Contains(e, "://") {
			e = "http://" + e
		}
		endpoints = append(endpoints, e)
	}
	s, err := etcd.Open(etcd.Config{Endpoints: endpoints, Logger: zap.New(&gate{inner: log.Core(), closed: new(atomic.Bool)})})
	if err != nil {
		return nil, err
	}
	return &metadata{store: s, close: func() {
		if err := s.Close(); err != nil {
			log.Warn("close the etcd client", zap.Error(err))
		}
	}}, nil
}

// gate is the way of an embedded etcd to the log. It is shut before etcd is closed, since etcd takes the end of its own
// listeners for failures. It enables every level, so that etcd may choose a lower one than the log has.
type gate struct {
	inner  zapcore.Core
	closed *atomic.Bool
}

func (g *gate) Enabled(zapcore.Level) bool { return true }
func (g *gate) With(f []zapcore.Field) zapcore.Core {
	return &gate{inner: g.inner.With(f), closed: g.closed}
}

func (g *gate) Check(e zapcore.Entry, ce *zapcore.CheckedEntry) *zapcore.CheckedEntry {
	if g.closed.Load() {
		return ce
	}
	return g.inner.Check(e, ce)
}
func (g *gate) Write(e zapcore.Entry, f []zapcore.Field) error { return g.inner.Write(e, f) }
func (g *gate) Sync() error                                    { return g.inner.Sync() }

// everySecond repeats f until it succeeds, with one line a second about why it does not.
func everySecond(ctx context.Context, log *zap.Logger, what string, ready *readiness, f func(context.Context) error) error {
	for {
		began := time.Now()
		err := f(ctx)
		if err == nil {
			ready.set(what, "")
			return nil
		}
		if ctx.Err() != nil {
			return ctx.Err()
		}
		ready.set(what, err.Error())
		log.Warn(what+" is away; trying again every second", zap.Error(err))
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second - min(time.Second, time.Since(began))):
		}
	}
}

// reach asks the metadata store for anything at all.
func reach(ctx context.Context, s metastore.Store, election string) (metastore.LeaderInfo, error) {
	ctx, cancel := context.WithTimeout(ctx, probeTimeout)
	defer cancel()
	info, err := s.Leader(ctx, election)
	if errors.Is(err, metastore.ErrNoLeader) {
		return metastore.LeaderInfo{}, nil
	}
	return info, err
}
