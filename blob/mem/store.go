package mem

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"iter"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/cairnstream/cairn/blob"
)

// Store is a blob.Store in memory. Make one with New; those who share the pointer share the objects.
type Store struct {
	location blob.Location
	mu       struct {
		sync.Mutex
		objects map[string]object
		dirs    map[string]int // how many objects are below that path
	}
}

var _ blob.Store = (*Store)(nil)

// object is immutable: data is replaced, never changed.
type object struct {
	data     []byte
	modified time.Time
}

// New makes an empty store. The name is what errors and URLs call it.
func New(name string) *Store {
	s := &Store{location: blob.Location{Scheme: blob.SchemeMem, Bucket: name}}
	s.mu.objects = make(map[string]object)
	s.mu.dirs = make(map[string]int)
	return s
}

// Location is where the store says it is.
func (s *Store) Location() blob.Location { return s.location }

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	if err := s.check(ctx, "put", key); err != nil {
		return err
	}
	if size < 0 {
		return s.fail("put", key, fmt.Errorf("size is %d: it must be known", size))
	}
	var buf bytes.Buffer
	if err := blob.CopyBody(ctx, &buf, body, size); err != nil {
		return s.fail("put", key, err)
	}
	return s.fail("put", key, s.store(key, buf.Bytes(), true))
}

// PutIfAbsent implements blob.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	if err := s.check(ctx, "put-if-absent", key); err != nil {
		return err
	}
	return s.fail("put-if-absent", key, s.store(key, slices.Clone(data), false))
}

func (s *Store) store(key string, data []byte, replace bool) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	_, exists := s.mu.objects[key]
	switch {
	case exists && !replace:
		return blob.ErrExists
	case s.mu.dirs[key] > 0:
		return fmt.Errorf("%w: there are objects below it", blob.ErrConflict)
	}
	if !exists {
		for dir := range parents(key) {
			if _, taken := s.mu.objects[dir]; taken {
				return fmt.Errorf("%w: %s is an object", blob.ErrConflict, dir)
			}
		}
		for dir := range parents(key) {
			s.mu.dirs[dir]++
		}
	}
	s.mu.objects[key] = object{data: data, modified: time.Now()}
	return nil
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) (io.ReadCloser, blob.Info, error) {
	o, err := s.find(ctx, "get", key)
	if err != nil {
		return nil, blob.Info{}, err
	}
	info := blob.Info{Key: key, Size: int64(len(o.data)), Modified: o.modified}
	return s.reader(ctx, "get", key, o.data), info, nil
}

// GetRange implements blob.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (io.ReadCloser, error) {
	o, err := s.find(ctx, "get-range", key)
	if err != nil {
		return nil, err
	}
	if err := blob.CheckRange(off, n, int64(len(o.data))); err != nil {
		return nil, s.fail("get-range", key, err)
	}
	return s.reader(ctx, "get-range", key, o.data[off:off+n]), nil
}

func (s *Store) reader(ctx context.Context, op, key string, data []byte) io.ReadCloser {
	return blob.NewReader(ctx, op, s.location.Object(key), io.NopCloser(bytes.NewReader(data)), int64(len(data)))
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (blob.Info, error) {
	o, err := s.find(ctx, "stat", key)
	if err != nil {
		return blob.Info{}, err
	}
	return blob.Info{Key: key, Size: int64(len(o.data)), Modified: o.modified}, nil
}

func (s *Store) find(ctx context.Context, op, key string) (object, error) {
	if err := s.check(ctx, op, key); err != nil {
		return object{}, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	o, ok := s.mu.objects[key]
	if !ok {
		return object{}, s.fail(op, key, blob.ErrNotExist)
	}
	return o, nil
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	for _, key := range keys {
		if err := s.check(ctx, "delete", key); err != nil {
			return err
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, key := range keys {
		if _, ok := s.mu.objects[key]; !ok {
			continue
		}
		delete(s.mu.objects, key)
		for dir := range parents(key) {
			if s.mu.dirs[dir]--; s.mu.dirs[dir] == 0 {
				delete(s.mu.dirs, dir)
			}
		}
	}
	return nil
}

// List implements blob.Store. It yields what was there when it began.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		for _, info := range s.snapshot(prefix) {
			if err := ctx.Err(); err != nil {
				yield(blob.Info{}, s.fail("list", prefix, err))
				return
			}
			if !yield(info, nil) {
				return
			}
		}
		if err := ctx.Err(); err != nil {
			yield(blob.Info{}, s.fail("list", prefix, err))
		}
	}
}

func (s *Store) snapshot(prefix string) []blob.Info {
	s.mu.Lock()
	defer s.mu.Unlock()
	var infos []blob.Info
	for key, o := range s.mu.objects {
		if strings.HasPrefix(key, prefix) {
			infos = append(infos, blob.Info{Key: key, Size: int64(len(o.data)), Modified: o.modified})
		}
	}
	slices.SortFunc(infos, func(a, b blob.Info) int { return strings.Compare(a.Key, b.Key) })
	return infos
}

func (s *Store) check(ctx context.Context, op, key string) error {
	if err := blob.CheckKey(key); err != nil {
		return s.fail(op, key, err)
	}
	return s.fail(op, key, ctx.Err())
}

func (s *Store) fail(op, key string, err error) error {
	return blob.WrapError(op, s.location.Object(key), err)
}

// parents yields the directories that a key is in, from the outside in.
func parents(key string) iter.Seq[string] {
	return func(yield func(string) bool) {
		for i := range len(key) {
			if key[i] == '/' && !yield(key[:i]) {
				return
			}
		}
	}
}
