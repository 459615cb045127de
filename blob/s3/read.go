package s3

import (
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"math"
	"strings"

	"github.com/minio/minio-go/v7"

	"github.com/cairnstream/cairn/blob"
)

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	if err := s.check(ctx, "get", key); err != nil {
		return nil, blob.Info{}, err
	}
	r := &resuming{store: s, ctx: ctx, op: "get", key: key}
	var info minio.ObjectInfo
	err := s.retry(ctx, "get", key, func() (err error) {
		r.body, info, _, err = s.core.GetObject(ctx, s.location.Bucket, s.location.Key(key), minio.GetObjectOptions{})
		return err
	})
	if err != nil {
		return nil, blob.Info{}, err
	}
	r.end, r.etag = info.Size, info.ETag
	return blob.NewReader(ctx, "get", s.location.Object(key), r, info.Size), s.info(key, info), nil
}

// GetRange implements blob.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	if err := s.check(ctx, "get-range", key); err != nil {
		return nil, err
	}
	if off < 0 || n <= 0 || n > math.MaxInt64-off {
		// Not something that a request could ask for.
		if err := s.checkRange(ctx, key, off, n); err != nil {
			return nil, err
		}
		return io.NopCloser(strings.NewReader("")), nil
	}
	r := &resuming{store: s, ctx: ctx, op: "get-range", key: key, pos: off, end: off + n}
	var info minio.ObjectInfo
	err := s.retry(ctx, "get-range", key, func() (err error) {
		r.body, info, err = r.open()
		return err
	})
	switch {
	case errors.Is(err, blob.ErrRange):
		if better := s.checkRange(ctx, key, off, n); better != nil {
			err = better // it knows the size
		}
		return nil, err
	case err != nil:
		return nil, err
	case info.Size != n:
		r.body.Close()
		if err := s.checkRange(ctx, key, off, n); err != nil {
			return nil, err
		}
		return nil, s.fail("get-range", key, fmt.Errorf("server sent %d bytes of the %d asked for", info.Size, n))
	}
	r.etag = info.ETag
	return blob.NewReader(ctx, "get-range", s.location.Object(key), r, n), nil
}

func (s *Store) checkRange(ctx context.Context, key string, off, n int64) error {
	info, err := s.stat(ctx, "get-range", key)
	if err != nil {
		return err
	}
	return s.fail("get-range", key, blob.CheckRange(off, n, info.Size))
}

// resuming reads an object and goes on where it stopped if the connection breaks.
type resuming struct {
	store    *Store
	ctx      context.Context
	op, key  string
	etag     string // the version that is being read
	body     io.ReadCloser
	pos, end int64
	breaks   int // in a row, without a byte in between
}

func (r *resuming) open() (io.ReadCloser, minio.ObjectInfo, error) {
	var opts minio.GetObjectOptions
	if err := opts.SetRange(r.pos, r.end-1); err != nil {
		return nil, minio.ObjectInfo{}, err
	}
	if r.etag != "" {
		if err := opts.SetMatchETag(r.etag); err != nil {
			return nil, minio.ObjectInfo{}, err
		}
	}
	body, info, _, err := r.store.core.GetObject(r.ctx, r.store.location.Bucket, r.store.location.Key(r.key), opts)
	return body, info, err
}

func (r *resuming) Read(p []byte) (int, error) {
	for {
		n, err := r.body.Read(p)
		r.pos += int64(n)
		if n > 0 {
			r.breaks = 0
			return n, nil // an error comes again with the next call, or is mended by it
		}
		if err == nil || r.pos >= r.end {
			return 0, err
		}
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		if r.ctx.Err() != nil {
			return 0, r.ctx.Err()
		}
		if r.breaks++; r.breaks >= r.store.options.Tries || !blob.IsTransient(err) {
			return 0, fmt.Errorf("at byte %d of %d: %w", r.pos, r.end, err)
		}
		if err := r.reopen(); err != nil {
			return 0, err
		}
	}
}

func (r *resuming) reopen() error {
	if err := r.store.pause(r.ctx, r.breaks); err != nil {
		return err
	}
	var body io.ReadCloser
	err := r.store.retry(r.ctx, r.op, r.key, func() (err error) {
		body, _, err = r.open()
		return err
	})
	if isCode(err, "PreconditionFailed") {
		return errors.New("object was replaced while it was read")
	}
	if err != nil {
		return err
	}
	r.body.Close()
	r.body = body
	return nil
}

func (r *resuming) Close() error { return r.body.Close() }

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	if err := s.check(ctx, "stat", key); err != nil {
		return blob.Info{}, err
	}
	info, err := s.stat(ctx, "stat", key)
	if err != nil {
		return blob.Info{}, err
	}
	return s.info(key, info), nil
}

func (s *Store) stat(ctx context.Context, op, key string) (info minio.ObjectInfo, err error) {
	err = s.retry(ctx, op, key, func() (err error) {
		info, err = s.core.StatObject(ctx, s.location.Bucket, s.location.Key(key), minio.StatObjectOptions{})
		return err
	})
	return info, err
}

func (s *Store) info(key string, info minio.ObjectInfo) blob.Info {
	return blob.Info{Key: key, Size: info.Size, Modified: info.LastModified}
}

// List implements blob.Store. After a transient error it goes on behind the last key.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if !begins(prefix) {
			return
		}
		stopped, last := false, ""
		err := s.retryProgress(ctx, "list", prefix, func() (progress bool, err error) {
			opts := minio.ListObjectsOptions{Prefix: s.location.Key(prefix), Recursive: true, StartAfter: last}
			for o := range s.core.ListObjectsIter(ctx, s.location.Bucket, opts) {
				if o.Err != nil {
					return progress, o.Err
				}
				progress = true
				last = o.Key
				key := s.location.Relative(o.Key)
				if blob.CheckKey(key) != nil {
					continue // not an object of ours: a marker of a directory, say
				}
				if !yield(s.info(key, o), nil) {
					stopped = true
					return progress, nil
				}
			}
			return progress, ctx.Err()
		})
		if err != nil && !stopped {
			yield(blob.Info{}, err)
		}
	}
}

// retryProgress is retry for something long that starts counting anew whenever it got on.
func (s *Store) retryProgress(ctx context.Context, op, key string, request func() (bool, error)) error {
	for {
		moved := false
		err := s.retry(ctx, op, key, func() error {
			progress, err := request()
			if progress && blob.IsTransient(classify(err)) {
				moved = true
				return nil
			}
			return err
		})
		if err != nil || !moved {
			return err
		}
	}
}

// begins tells whether any key can begin with that prefix.
func begins(prefix string) bool {
	return prefix == "" || blob.CheckKey(strings.TrimSuffix(prefix, "/")) == nil
}
