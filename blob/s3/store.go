package s3

import (
	"context"
	"errors"
	"fmt"
	"net/url"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cairnstream/cairn/blob"
)

// Options of a store; the zero value is right for most.
type Options struct {
	// Tries is how often a request is made at most when errors are transient. Default 6: with the pauses below that
	// is about ten seconds of a busy server, after which the caller should know.
	Tries int
	// FirstPause is the longest pause before the second try; it doubles with each try up to MaxPause, and a random
	// part of it is taken, so that many clients do not come back at once. Defaults 200 ms and 5 s.
	FirstPause, MaxPause time.Duration
	// PartSize is the size of the parts of a large object. Default 16 MiB: large enough that a request's latency
	// does not count, small enough that a failed one costs little. S3 demands 5 MiB at least, and it grows by itself
	// where an object would need more than 10,000 parts.
	PartSize int64
	// MultipartAbove is the size above which an object goes up in parts if its body can be read at random. Default
	// 4 parts: below that three requests more do not pay. A body that can only be read once goes up in parts above
	// one PartSize, as each part is in memory until it is stored.
	MultipartAbove int64
	// Parallel is how many parts of one object are under way at a time. Default 4.
	Parallel int
	// Buffers is how many parts of bodies that can only be read once are in memory at a time, for all uploads of the
	// store together; further ones wait. Default 8: 128 MiB.
	Buffers int
	// Stall is how long a connection may make no progress before it is given up. Default 30 s.
	Stall time.Duration
	// Credentials to use instead of those in the usual places.
	Credentials Credentials
}

// Credentials of an account.
type Credentials struct{ AccessKey, SecretKey, SessionToken string }

// String keeps secrets out of logs.
func (c Credentials) String() string { return "s3.Credentials(" + c.AccessKey + ", masked)" }

// GoString keeps secrets out of logs.
func (c Credentials) GoString() string { return c.String() }

// S3's own limits.
const (
	minPart   = 5 << 20
	maxParts  = 10_000
	maxObject = 5 << 40
	maxKey    = 1024
)

// WithDefaults fills in what is not set.
func (o Options) WithDefaults() Options {
	def := func(v *int, d int) {
		if *v == 0 {
			*v = d
		}
	}
	def(&o.Tries, 6)
	def(&o.Parallel, 4)
	def(&o.Buffers, 8)
	if o.FirstPause == 0 {
		o.FirstPause = 200 * time.Millisecond
	}
	if o.MaxPause == 0 {
		o.MaxPause = 5 * time.Second
	}
	if o.Stall == 0 {
		o.Stall = 30 * time.Second
	}
	if o.PartSize == 0 {
		o.PartSize = 16 << 20
	}
	if o.MultipartAbove == 0 {
		o.MultipartAbove = 4 * o.PartSize
	}
	return o
}

// Validate lists what is wrong with options that have their defaults.
func (o Options) Validate() error {
	var errs []error
	positive := func(name string, ok bool) {
		if !ok {
			errs = append(errs, fmt.Errorf("%s must be positive", name))
		}
	}
	positive("Tries", o.Tries > 0)
	positive("Parallel", o.Parallel > 0)
	positive("Buffers", o.Buffers > 0)
	positive("FirstPause", o.FirstPause > 0)
	positive("MaxPause", o.MaxPause > 0)
	positive("Stall", o.Stall > 0)
	positive("MultipartAbove", o.MultipartAbove > 0)
	if o.PartSize < minPart {
		errs = append(errs, fmt.Errorf("PartSize is %d, S3 demands at least %d", o.PartSize, minPart))
	}
	return errors.Join(errs...)
}

// Store is a blob.Store in a bucket. Make one with Open; Close frees its idle connections.
type Store struct {
	location blob.Location
	options  Options
	core     minio.Core
	dialer   *transport
	buffers  chan []byte // see Options.Buffers; nil stands for one that is not made yet
}

var _ blob.Store = (*Store)(nil)

// Open makes a store of an s3 location. It makes no request, so that a process can start while the storage is away;
// Probe does.
func Open(loc blob.Location, options Options) (*Store, error) {
	options = options.WithDefaults()
	if loc.Scheme != blob.SchemeS3 {
		return nil, fmt.Errorf("open %s as S3: scheme is not %s", loc, blob.SchemeS3)
	}
	if err := options.Validate(); err != nil {
		return nil, fmt.Errorf("open %s: options: %w", loc, err)
	}
	region := loc.Region
	if region == "" {
		region = blob.DefaultRegion
	}
	endpoint := loc.Endpoint
	if endpoint == "" {
		endpoint = "https://s3." + region + ".amazonaws.com"
	}
	u, err := url.Parse(endpoint)
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", loc, err)
	}
	lookup := minio.BucketLookupAuto
	if loc.PathStyle {
		lookup = minio.BucketLookupPath
	}
	t := newTransport(options.Stall)
	client, err := minio.New(u.Host, &minio.Options{
		Creds: chain(options.Credentials), Secure: u.Scheme == "https", Transport: t.http, Region: region,
		BucketLookup: lookup, MaxRetries: 1, TrailingHeaders: false, // many servers refuse trailing checksums
	})
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", loc, err)
	}
	s := &Store{location: loc, options: options, core: minio.Core{Client: client}, dialer: t}
	s.buffers = make(chan []byte, options.Buffers)
	for range options.Buffers {
		s.buffers <- nil
	}
	return s, nil
}

// chain is where credentials come from: those given, else the usual places in the usual order.
func chain(c Credentials) *credentials.Credentials {
	if c.AccessKey != "" {
		return credentials.NewStaticV4(c.AccessKey, c.SecretKey, c.SessionToken)
	}
	return credentials.NewChainCredentials([]credentials.Provider{
		&credentials.EnvAWS{}, &credentials.FileAWSCredentials{}, &credentials.IAM{},
	})
}

// Location is where the store is.
func (s *Store) Location() blob.Location { return s.location }

// Probe tells whether the bucket can be reached with these credentials.
func (s *Store) Probe(ctx context.Context) error {
	return s.retry(ctx, "open", "", func() error {
		ok, err := s.core.BucketExists(ctx, s.location.Bucket)
		if err == nil && !ok {
			err = fmt.Errorf("%w: there is no bucket %s", blob.ErrNotExist, s.location.Bucket)
		}
		return err
	})
}

// Close frees idle connections. Calls under way go on.
func (s *Store) Close() error {
	s.dialer.http.CloseIdleConnections()
	return nil
}

// check says whether an object can have that key here, before anything is asked of the server.
func (s *Store) check(ctx context.Context, op, key string) error {
	err := blob.CheckKey(key)
	if full := s.location.Key(key); err == nil && len(full) > maxKey {
		err = fmt.Errorf("%w %q: it has %d bytes, limit is %d", blob.ErrBadKey, full, len(full), maxKey)
	}
	if err == nil {
		err = ctx.Err()
	}
	return s.fail(op, key, err)
}
