package sealed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"iter"
	"sync"

	"github.com/cairnstream/cairn/blob"
)

// Store is a blob.Store whose objects another one holds encrypted. It is safe for concurrent use.
type Store struct {
	inner blob.Store
	keys  Keys
	mu    struct {
		sync.Mutex
		known map[string]*object // Of objects that were read by ranges, so that each need not read the header.
	}
}

var _ blob.Store = (*Store)(nil)

// maxKnown bounds Store.mu.known: some 200 bytes each.
const maxKnown = 10_000

// New encrypts what goes into inner, by the first of the keys. All of inner's objects were put by such a store.
func New(inner blob.Store, keys Keys) (*Store, error) {
	if len(keys) == 0 {
		return nil, errors.New("keys of the blob store: there is no key")
	}
	s := &Store{inner: inner, keys: keys}
	s.mu.known = map[string]*object{}
	return s, nil
}

// Unwrap gives the store below, with what it has beside the contract.
func (s *Store) Unwrap() blob.Store { return s.inner }

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	if size < 0 {
		return &blob.Error{Op: "put", Object: key, Err: fmt.Errorf("size is %d: it must be known", size)}
	}
	o, err := s.keys[0].newObject(size)
	if err != nil {
		return blob.WrapError("put", key, err)
	}
	defer s.forget(key)
	sealed := sealedSize(size)
	if at, ok := body.(randomBody); ok {
		base, err := at.Seek(0, io.SeekCurrent)
		if err != nil {
			return blob.WrapError("put", key, err)
		}
		return s.inner.Put(ctx, key, io.NewSectionReader(sealingAt{o, at, base}, 0, sealed), sealed)
	}
	return s.inner.Put(ctx, key, newSealing(o, body), sealed)
}

// PutIfAbsent implements blob.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	o, err := s.keys[0].newObject(int64(len(data)))
	if err != nil {
		return blob.WrapError("put-if-absent", key, err)
	}
	var b bytes.Buffer
	b.Grow(int(sealedSize(o.size)))
	if _, err := io.Copy(&b, newSealing(o, bytes.NewReader(data))); err != nil {
		return blob.WrapError("put-if-absent", key, err)
	}
	defer s.forget(key)
	return s.inner.PutIfAbsent(ctx, key, b.Bytes())
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	body, info, err := s.inner.Get(ctx, key)
	if err != nil {
		return nil, info, err
	}
	header := make([]byte, min(int64(headerSize), info.Size))
	if _, err = io.ReadFull(body, header); err != nil {
		return nil, blob.Info{}, errors.Join(blob.WrapError("get", key, err), body.Close())
	}
	o, err := s.keys.objectOf(header, info.Size)
	if err != nil {
		return nil, blob.Info{}, errors.Join(blob.WrapError("get", key, err), body.Close())
	}
	info.Size = o.size
	return blob.NewReader(ctx, "get", key, &opening{o: o, body: body, last: o.pieces() - 1}, o.size), info, nil
}

// GetRange implements blob.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	s.mu.Lock()
	o := s.mu.known[key]
	s.mu.Unlock()
	if o != nil {
		// It may have been replaced since, which the first piece shows.
		r, err := s.rangeOf(ctx, key, o, off, n)
		if err == nil {
			return r, nil
		}
		if !errors.Is(err, ErrSealed) && !errors.Is(err, blob.ErrRange) && !errors.Is(err, blob.ErrNotExist) {
			return nil, err
		}
		s.forget(key)
	}
	info, err := s.inner.Stat(ctx, key)
	if err != nil {
		return nil, retitled(err, "get-range")
	}
	body, err := s.inner.GetRange(ctx, key, 0, min(int64(headerSize), info.Size))
	if err != nil {
		return nil, err
	}
	header, err := io.ReadAll(body)
	if err = errors.Join(err, body.Close()); err != nil {
		return nil, blob.WrapError("get-range", key, err)
	}
	if o, err = s.keys.objectOf(header, info.Size); err != nil {
		return nil, blob.WrapError("get-range", key, err)
	}
	s.mu.Lock()
	if len(s.mu.known) >= maxKnown {
		clear(s.mu.known)
	}
	s.mu.known[key] = o
	s.mu.Unlock()
	return s.rangeOf(ctx, key, o, off, n)
}

// retitled gives an error the name of the operation that it is for.
func retitled(err error, op string) error {
	var e *blob.Error
	if !errors.As(err, &e) {
		return err
	}
	c := *e
	c.Op = op
	return &c
}

// rangeOf opens a range, with its first piece read.
func (s *Store) rangeOf(ctx context.Context, key string, o *object, off, n int64) (io.ReadCloser, error) {
	if err := blob.CheckRange(off, n, o.size); err != nil {
		return nil, blob.WrapError("get-range", key, err)
	}
	first := min(off/pieceSize, o.pieces()-1)
	last := first
	if n > 0 {
		last = (off + n - 1) / pieceSize
	}
	from := int64(headerSize) + first*(pieceSize+tagSize)
	to := int64(headerSize) + last*(pieceSize+tagSize) + o.content(last) + tagSize
	body, err := s.inner.GetRange(ctx, key, from, to-from)
	if err != nil {
		return nil, err
	}
	r := &opening{o: o, body: body, next: first, last: last, skip: off - first*pieceSize}
	if err := r.fill(); err != nil && !errors.Is(err, io.EOF) {
		return nil, errors.Join(blob.WrapError("get-range", key, err), body.Close())
	}
	return blob.NewReader(ctx, "get-range", key, r, n), nil
}

func (s *Store) forget(key string) {
	s.mu.Lock()
	delete(s.mu.known, key)
	s.mu.Unlock()
}

// opening reads sealed pieces and gives their content.
type opening struct {
	o          *object
	body       io.ReadCloser
	next, last int64
	skip       int64  // Of the first piece.
	buf        []byte // Content that was not read yet.
	room       []byte
	err        error
}

// fill reads the next piece.
func (r *opening) fill() error {
	if r.err != nil {
		return r.err
	}
	if r.next > r.last {
		return io.EOF
	}
	if r.room == nil {
		r.room = make([]byte, pieceSize+tagSize)
	}
	piece := r.room[:r.o.content(r.next)+tagSize]
	if _, err := io.ReadFull(r.body, piece); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		r.err = err
		return err
	}
	content, err := r.o.open(piece, r.next)
	if err != nil {
		r.err = err
		return err
	}
	r.buf, r.skip = content[r.skip:], 0
	r.next++
	return nil
}

// Read implements io.Reader. It gives nothing that was not verified.
func (r *opening) Read(p []byte) (int, error) {
	for len(r.buf) == 0 {
		if err := r.fill(); err != nil {
			return 0, err
		}
	}
	n := copy(p, r.buf)
	r.buf = r.buf[n:]
	return n, nil
}

// Close implements io.Closer.
func (r *opening) Close() error { return r.body.Close() }

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	info, err := s.inner.Stat(ctx, key)
	if err != nil {
		return info, err
	}
	if info.Size, err = openSize(info.Size); err != nil {
		return blob.Info{}, blob.WrapError("stat", key, err)
	}
	return info, nil
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	defer func() {
		for _, k := range keys {
			s.forget(k)
		}
	}()
	return s.inner.Delete(ctx, keys...)
}

// List implements blob.Store. An object that was not sealed has its own size: it can be found, and deleted.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for info, err := range s.inner.List(ctx, prefix) {
			if n, serr := openSize(info.Size); err == nil && serr == nil {
				info.Size = n
			}
			if !yield(info, err) {
				return
			}
		}
	}
}
