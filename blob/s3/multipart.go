package s3

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"io"
	"time"

	"github.com/minio/minio-go/v7"
	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/blob"
)

// abortTimeout bounds what is spent on taking back an upload that failed: it runs after the caller's context.
const abortTimeout = 15 * time.Second

// part is a piece of a body, ready to be read as often as need be.
type part struct {
	open    func() io.Reader
	size    int64
	release func() // nobody reads it any more
}

// parts cuts a body; next is called in order, from one goroutine.
type parts interface {
	next(ctx context.Context, off, size int64) (part, error)
}

// sectionParts reads parts from where they are.
type sectionParts struct{ src io.ReaderAt }

func (p sectionParts) next(_ context.Context, off, size int64) (part, error) {
	return part{open: func() io.Reader { return io.NewSectionReader(p.src, off, size) }, size: size, release: func() {}}, nil
}

// streamParts holds parts in the store's buffers.
type streamParts struct {
	store *Store
	body  io.Reader
	total int64
}

func (p *streamParts) next(ctx context.Context, off, size int64) (part, error) {
	b, err := p.store.buffer(ctx, size)
	if err != nil {
		return part{}, err
	}
	if err := b.fill(ctx, p.body); err != nil {
		b.release()
		var short *blob.ShortBodyError
		if errors.As(err, &short) {
			short.Got += off
			short.Want = p.total
		}
		return part{}, err
	}
	return part{open: func() io.Reader { return bytes.NewReader(b.data) }, size: size, release: b.release}, nil
}

// putParts stores a large object by a multipart upload. If anything fails the upload is aborted, so that its parts
// are not stored, and paid for, for ever.
func (s *Store) putParts(ctx context.Context, key string, size int64, src parts) (err error) {
	nonce := rand.Text()
	bucket, object := s.location.Bucket, s.location.Key(key)
	var upload string
	err = s.retry(ctx, "put", key, func() (err error) {
		upload, err = s.core.NewMultipartUpload(ctx, bucket, object, minio.PutObjectOptions{
			ContentType: contentType, UserMetadata: map[string]string{nonceName: nonce},
		})
		return err
	})
	if err != nil {
		return err
	}
	defer func() {
		if err == nil {
			return
		}
		if abortErr := s.abort(ctx, key, upload); abortErr != nil {
			err = errors.Join(err, abortErr)
		}
	}()
	done, err := s.uploadParts(ctx, key, upload, size, src)
	if err != nil {
		return err
	}
	err = s.retry(ctx, "put", key, func() error {
		_, err := s.core.CompleteMultipartUpload(ctx, bucket, object, upload, done, minio.PutObjectOptions{})
		return err
	})
	if isCode(err, "NoSuchUpload") {
		// An earlier try may have completed it without our learning of it.
		if mine, statErr := s.wrote(ctx, "put", key, nonce); statErr == nil && mine {
			return nil
		}
	}
	return err
}

func (s *Store) uploadParts(ctx context.Context, key, upload string, size int64, src parts) ([]minio.CompletePart, error) {
	partSize := s.partSize(size)
	done := make([]minio.CompletePart, (size+partSize-1)/partSize)
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(s.options.Parallel)
	for i := range done {
		off := int64(i) * partSize
		p, err := src.next(gctx, off, min(partSize, size-off))
		if err != nil {
			if gctx.Err() != nil && ctx.Err() == nil {
				break // a part failed; its error is the one to tell
			}
			g.Go(func() error { return s.fail("put", key, err) })
			break
		}
		g.Go(func() error {
			defer p.release()
			etag, err := s.uploadPart(gctx, key, upload, i+1, p)
			done[i] = minio.CompletePart{PartNumber: i + 1, ETag: etag}
			return err
		})
		if gctx.Err() != nil {
			break
		}
	}
	if err := g.Wait(); err != nil {
		if ctx.Err() != nil {
			err = s.fail("put", key, ctx.Err())
		}
		return nil, err
	}
	return done, s.fail("put", key, ctx.Err())
}

func (s *Store) uploadPart(ctx context.Context, key, upload string, number int, p part) (etag string, err error) {
	err = s.retry(ctx, "put", key, func() error {
		g := &gate{r: p.open()}
		defer g.shut()
		stored, err := s.core.PutObjectPart(ctx, s.location.Bucket, s.location.Key(key), upload, number, g, p.size, minio.PutObjectPartOptions{})
		etag = stored.ETag
		return g.cause(err)
	})
	return etag, err
}

// partSize is the configured one, or what a huge object needs to fit into the number of parts that S3 allows.
func (s *Store) partSize(size int64) int64 {
	const mib = 1 << 20
	least := (size + maxParts - 1) / maxParts
	return max(s.options.PartSize, (least+mib-1)/mib*mib)
}

// abort takes an upload back, also when the caller's context is over.
func (s *Store) abort(ctx context.Context, key, upload string) error {
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), abortTimeout)
	defer cancel()
	err := s.retry(ctx, "abort upload "+upload+" of", key, func() error {
		return s.core.AbortMultipartUpload(ctx, s.location.Bucket, s.location.Key(key), upload)
	})
	if isCode(err, "NoSuchUpload") {
		return nil
	}
	return err
}

// buffer is memory for one part, out of the store's bounded set.
type buffer struct {
	store *Store
	whole []byte
	data  []byte
}

// buffer waits for memory for size bytes.
func (s *Store) buffer(ctx context.Context, size int64) (*buffer, error) {
	select {
	case <-ctx.Done():
		return nil, ctx.Err()
	case whole := <-s.buffers:
		// Small objects do not make large buffers; large parts of huge objects are not kept.
		if int64(len(whole)) < size {
			whole = make([]byte, size)
		}
		return &buffer{store: s, whole: whole, data: whole[:size]}, nil
	}
}

// fill reads the buffer full.
func (b *buffer) fill(ctx context.Context, body io.Reader) error {
	return blob.CopyBody(ctx, bytes.NewBuffer(b.data[:0]), body, int64(len(b.data)))
}

func (b *buffer) release() {
	if int64(len(b.whole)) > b.store.options.PartSize {
		b.whole = nil
	}
	b.store.buffers <- b.whole
}
