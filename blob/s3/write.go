package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync"

	"github.com/minio/minio-go/v7"

	"github.com/cairnstream/cairn/blob"
)

// nonceName is the user metadata by which a try that met an object finds out whether an earlier try wrote it.
const nonceName = "Cairn-Put"

const contentType = "application/octet-stream"

// emptySHA256 is the hash of nothing. Empty objects are sent with it instead of in signed chunks: servers may leave
// the chunk that says "end" unread, and then take it for the next request on that connection.
const emptySHA256 = "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855"

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	if err := s.check(ctx, "put", key); err != nil {
		return err
	}
	switch {
	case size < 0:
		return s.fail("put", key, fmt.Errorf("size is %d: it must be known", size))
	case size > maxObject:
		return s.fail("put", key, fmt.Errorf("%w: it has %d bytes, S3 allows %d", blob.ErrTooLarge, size, int64(maxObject)))
	}
	src, random, err := section(body, size)
	if err != nil {
		return s.fail("put", key, err)
	}
	switch {
	case random && size <= s.options.MultipartAbove:
		return s.putOne(ctx, "put", key, func() io.Reader { return io.NewSectionReader(src, 0, size) }, size, minio.PutObjectOptions{})
	case random:
		return s.putParts(ctx, key, size, sectionParts{src})
	case size <= s.options.PartSize:
		return s.putStream(ctx, key, body, size)
	}
	return s.putParts(ctx, key, size, &streamParts{store: s, body: body, total: size})
}

// putStream holds a body in memory while it is stored.
func (s *Store) putStream(ctx context.Context, key string, body io.Reader, size int64) error {
	b, err := s.buffer(ctx, size)
	if err == nil {
		defer b.release()
		err = b.fill(ctx, body)
	}
	if err != nil {
		return s.fail("put", key, err)
	}
	return s.putOne(ctx, "put", key, func() io.Reader { return bytes.NewReader(b.data) }, size, minio.PutObjectOptions{})
}

// PutIfAbsent implements blob.Store. If a try fails in a way that leaves its outcome open and a later one meets an
// object, the object's nonce says whether it is ours.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := s.check(ctx, "put-if-absent", key); err != nil {
		return err
	}
	if int64(len(data)) > s.options.MultipartAbove {
		return s.fail("put-if-absent", key, fmt.Errorf("%w: %d bytes, limit is %d", blob.ErrTooLarge, len(data), s.options.MultipartAbove))
	}
	nonce := rand.Text()
	opts := minio.PutObjectOptions{UserMetadata: map[string]string{nonceName: nonce}}
	opts.SetMatchETagExcept("*")
	err := s.putOne(ctx, "put-if-absent", key, func() io.Reader { return bytes.NewReader(data) }, int64(len(data)), opts)
	if errors.Is(err, blob.ErrExists) {
		if mine, statErr := s.wrote(ctx, "put-if-absent", key, nonce); statErr != nil && !errors.Is(statErr, blob.ErrNotExist) {
			return statErr
		} else if mine {
			return nil
		}
	}
	return err
}

// wrote tells whether the object under key was written with that nonce.
func (s *Store) wrote(ctx context.Context, op, key, nonce string) (bool, error) {
	info, err := s.stat(ctx, op, key)
	if err != nil {
		return false, err
	}
	for name, value := range info.UserMetadata {
		if strings.EqualFold(name, nonceName) && value == nonce {
			return true, nil
		}
	}
	return false, nil
}

// putOne stores an object by one request. Every try reads the body anew.
func (s *Store) putOne(ctx context.Context, op, key string, body func() io.Reader, size int64, opts minio.PutObjectOptions) error {
	opts.ContentType = contentType
	sha := ""
	if size == 0 {
		sha, opts.DisableContentSha256 = emptySHA256, true
	}
	return s.retry(ctx, op, key, func() error {
		g := &gate{r: body()}
		defer g.shut()
		_, err := s.core.PutObject(ctx, s.location.Bucket, s.location.Key(key), g, size, "", sha, opts)
		return g.cause(err)
	})
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := s.check(ctx, "delete", key); err != nil {
			return err
		}
	}
	if len(keys) == 1 {
		return s.deleteOne(ctx, keys[0])
	}
	var failed []error
	for len(keys) > 0 {
		batch := keys[:min(len(keys), 1000)]
		keys = keys[len(batch):]
		failed = append(failed, s.deleteBatch(ctx, batch)...)
		if err := ctx.Err(); err != nil && len(keys) > 0 {
			failed = append(failed, s.fail("delete", keys[0], err))
			break
		}
	}
	return errors.Join(failed...)
}

func (s *Store) deleteOne(ctx context.Context, key string) error {
	err := s.retry(ctx, "delete", key, func() error {
		return s.core.RemoveObject(ctx, s.location.Bucket, s.location.Key(key), minio.RemoveObjectOptions{})
	})
	if errors.Is(err, blob.ErrNotExist) || isCode(err, "ObjectParentIsFile") {
		return nil
	}
	return err
}

// deleteBatch removes up to a thousand objects by one request, and those of them that it failed for one by one:
// then each has its own tries and its own error.
func (s *Store) deleteBatch(ctx context.Context, keys []string) (failed []error) {
	objects := func(yield func(minio.ObjectInfo) bool) {
		for _, key := range keys {
			if !yield(minio.ObjectInfo{Key: s.location.Key(key)}) {
				return
			}
		}
	}
	done := make(map[string]bool, len(keys))
	err := s.retry(ctx, "delete", keys[0], func() error {
		results, err := s.core.RemoveObjectsWithIter(ctx, s.location.Bucket, objects, minio.RemoveObjectsOptions{})
		if err != nil {
			return err
		}
		for r := range results {
			if r.Err == nil {
				done[r.ObjectName] = true
			} else if err == nil && blob.IsTransient(classify(r.Err)) {
				err = r.Err
			}
		}
		return err
	})
	if err != nil && (blob.IsTransient(err) || ctx.Err() != nil) {
		return []error{fmt.Errorf("%d of %d objects are not deleted: %w", len(keys)-len(done), len(keys), err)}
	}
	for _, key := range keys {
		if !done[s.location.Key(key)] {
			if err := s.deleteOne(ctx, key); err != nil {
				failed = append(failed, err)
			}
		}
	}
	return failed
}

// section gives a view of the next size bytes of a body that can be read at random.
func section(body io.Reader, size int64) (*io.SectionReader, bool, error) {
	at, ok := body.(interface {
		io.ReaderAt
		io.Seeker
	})
	if !ok {
		return nil, false, nil
	}
	pos, err := at.Seek(0, io.SeekCurrent)
	if err != nil {
		return nil, false, nil // a pipe, say
	}
	end, err := at.Seek(0, io.SeekEnd)
	if err != nil {
		return nil, false, nil
	}
	if _, err := at.Seek(pos, io.SeekStart); err != nil {
		return nil, false, fmt.Errorf("seek in body: %w", err)
	}
	if end-pos < size {
		return nil, false, &blob.ShortBodyError{Got: max(0, end-pos), Want: size}
	}
	return io.NewSectionReader(at, pos, size), true, nil
}

// gate stands between a body and the HTTP transport, which may go on reading for a while after it reported a
// failure: once shut, nothing of the body is touched any more. It also remembers the body's own failure, which the
// transport would pass off as its own.
type gate struct {
	mu     sync.Mutex
	r      io.Reader
	err    error
	closed bool
}

func (g *gate) Read(p []byte) (int, error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.closed {
		return 0, io.ErrClosedPipe
	}
	n, err := g.r.Read(p)
	if err != nil && err != io.EOF {
		g.err = err
	}
	return n, err
}

func (g *gate) shut() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.closed = true
}

// cause is why a request failed.
func (g *gate) cause(err error) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if err != nil && g.err != nil {
		return &bodyError{g.err}
	}
	return err
}

// bodyError is a failure to read the body: to try again would fail again.
type bodyError struct{ err error }

func (e *bodyError) Error() string { return "read body: " + e.err.Error() }
func (e *bodyError) Unwrap() error { return e.err }
