package blob

import (
	"context"
	"io"
	"sync"
	"time"
)

// Limited is s with its uploads, all of them together, held to so many bytes a second. Retries count, reads do not. Uploads
// that run at the same time get about the same share. A rate of 0 or less is none.
func Limited(s Store, bytesPerSecond int64) Store {
	if bytesPerSecond <= 0 {
		return s
	}
	return &limited{Store: s, bucket: &bucket{rate: float64(bytesPerSecond)}}
}

const (
	// limitedChunk is the most that is read at a time, so that no upload waits long for another's turn.
	limitedChunk = 64 << 10
	// limitedBurst is for how long the rate may be saved up, so that small objects do not wait at all.
	limitedBurst = 100 * time.Millisecond
)

// bucket hands out bytes at a rate.
type bucket struct {
	rate float64 // Bytes per second.
	mu   struct {
		sync.Mutex
		free time.Time // When all that was handed out is paid for.
	}
}

// take waits until n bytes more may go. Bytes are paid for after they went, so that what is larger than the burst goes too.
func (b *bucket) take(ctx context.Context, n int) error {
	now := time.Now()
	b.mu.Lock()
	if oldest := now.Add(-limitedBurst); b.mu.free.Before(oldest) {
		b.mu.free = oldest
	}
	wait := b.mu.free.Sub(now)
	b.mu.free = b.mu.free.Add(time.Duration(float64(n) / b.rate * float64(time.Second)))
	b.mu.Unlock()
	if wait <= 0 {
		return ctx.Err()
	}
	t := time.NewTimer(wait)
	defer t.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-t.C:
		return nil
	}
}

type limited struct {
	Store
	bucket *bucket
}

func (l *limited) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	r := limitedReader{ctx, body, l.bucket}
	if at, ok := body.(randomReader); ok { // Which stores read without a copy.
		return l.Store.Put(ctx, key, limitedRandomReader{r, at}, size)
	}
	return l.Store.Put(ctx, key, r, size)
}

func (l *limited) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := l.bucket.take(ctx, len(data)); err != nil {
		return WrapError("put-if-absent", key, err)
	}
	return l.Store.PutIfAbsent(ctx, key, data)
}

type randomReader interface {
	io.Reader
	io.ReaderAt
	io.Seeker
}

// limitedReader waits before each read. Stores read from several goroutines only what is a limitedRandomReader, and that
// by ReadAt.
type limitedReader struct {
	ctx    context.Context
	r      io.Reader
	bucket *bucket
}

func (l limitedReader) Read(p []byte) (int, error) {
	p = p[:min(len(p), limitedChunk)]
	if err := l.bucket.take(l.ctx, len(p)); err != nil {
		return 0, err
	}
	return l.r.Read(p)
}

type limitedRandomReader struct {
	limitedReader
	at randomReader
}

func (l limitedRandomReader) Seek(offset int64, whence int) (int64, error) {
	return l.at.Seek(offset, whence)
}

func (l limitedRandomReader) ReadAt(p []byte, off int64) (n int, err error) {
	for n < len(p) {
		part := p[n:min(len(p), n+limitedChunk)]
		if err := l.bucket.take(l.ctx, len(part)); err != nil {
			return n, err
		}
		m, err := l.at.ReadAt(part, off+int64(n))
		if n += m; err != nil {
			return n, err
		}
	}
	return n, nil
}
