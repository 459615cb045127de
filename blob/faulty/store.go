package faulty

import (
	"context"
	"fmt"
	"io"
	"iter"
	"math/rand/v2"
	"strings"
	"sync"
	"time"

	"github.com/cairnstream/cairn/blob"
)

// Rule says which calls are hit and how. The zero Rule fails every call as a busy server does.
type Rule struct {
	// Op is the operation as in blob.Error (put, put-if-absent, get, get-range, stat, delete, list); empty is any.
	Op string
	// Contains must be part of the key (of list: the prefix).
	Contains string
	// Skip lets this many matching calls pass first.
	Skip int
	// Times limits how many calls are hit; 0 is all.
	Times int
	// Chance is the probability that a matching call is hit, by the store's seed; 0 is always.
	Chance float64

	// Latency delays the call, until ctx is done at most.
	Latency time.Duration
	// Err is the error of the call. Nil is a transient one, unless the rule has a Latency or Damage: then none.
	Err error
	// AfterEffect carries the call out before it fails: the caller cannot know that it was.
	AfterEffect bool
	// Damage is done to what Get and GetRange read.
	Damage Damage
}

// Damage is what happens to the content of an object on its way to the reader.
type Damage int

// The kinds of damage.
const (
	None     Damage = iota
	Flip            // one bit, at a place that the seed chooses, is another
	Truncate        // the object ends early without an error, as one whose tail was lost
	Break           // the connection breaks after half of the bytes
)

// Store is a blob.Store that obeys rules. The first rule that hits a call decides.
type Store struct {
	inner blob.Store
	mu    struct {
		sync.Mutex
		rand  *rand.Rand
		rules []*armed
		calls map[string]int
	}
}

var _ blob.Store = (*Store)(nil)

type armed struct {
	Rule
	seen, hits int
}

// Wrap makes a store that behaves as inner does until it is given rules.
func Wrap(inner blob.Store, seed uint64) *Store {
	s := &Store{inner: inner}
	s.mu.rand = rand.New(rand.NewPCG(seed, 0))
	s.mu.calls = make(map[string]int)
	return s
}

// Set replaces all rules; without any the store is well again.
func (s *Store) Set(rules ...Rule) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.rules = nil
	for _, r := range rules {
		s.mu.rules = append(s.mu.rules, &armed{Rule: r})
	}
}

// Calls counts the calls of an operation so far, hit or not.
func (s *Store) Calls(op string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.calls[op]
}

// Hits counts the calls that the rules in force have hit.
func (s *Store) Hits() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	total := 0
	for _, r := range s.mu.rules {
		total += r.hits
	}
	return total
}

// choose finds the rule that hits this call, and a random number for it.
func (s *Store) choose(op string, keys []string) (Rule, uint64, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.calls[op]++
	for _, r := range s.mu.rules {
		if !r.matches(op, keys) {
			continue
		}
		if r.seen++; r.seen <= r.Skip || r.Times > 0 && r.hits >= r.Times {
			continue
		}
		if r.Chance > 0 && s.mu.rand.Float64() >= r.Chance {
			continue
		}
		r.hits++
		return r.Rule, s.mu.rand.Uint64(), true
	}
	return Rule{}, 0, false
}

func (r *armed) matches(op string, keys []string) bool {
	if r.Op != "" && r.Op != op {
		return false
	}
	for _, key := range keys {
		if strings.Contains(key, r.Contains) {
			return true
		}
	}
	return false
}

// call runs do under the rules.
func (s *Store) call(ctx context.Context, op string, keys []string, do func(r Rule, random uint64) error) error {
	r, random, hit := s.choose(op, keys)
	if !hit {
		return do(Rule{}, 0)
	}
	object := strings.Join(keys, ", ")
	if r.Latency > 0 {
		timer := time.NewTimer(r.Latency)
		defer timer.Stop()
		select {
		case <-ctx.Done():
			return blob.WrapError(op, object, ctx.Err())
		case <-timer.C:
		}
	}
	err := r.Err
	if err == nil && r.Latency == 0 && r.Damage == None {
		err = &blob.Error{Op: op, Object: object, Err: fmt.Errorf("injected: 503 slow down"), Transient: true}
	}
	if err == nil || r.AfterEffect {
		if err := do(r, random); err != nil {
			return err
		}
	}
	return blob.WrapError(op, object, err)
}

// Put implements blob.Store.
func (s *Store) Put(ctx context.Context, key string, body io.Reader, size int64) error {
	return s.call(ctx, "put", []string{key}, func(Rule, uint64) error { return s.inner.Put(ctx, key, body, size) })
}

// PutIfAbsent implements blob.Store.
func (s *Store) PutIfAbsent(ctx context.Context, key string, data []byte) error {
	return s.call(ctx, "put-if-absent", []string{key}, func(Rule, uint64) error { return s.inner.PutIfAbsent(ctx, key, data) })
}

// Get implements blob.Store.
func (s *Store) Get(ctx context.Context, key string) (body io.ReadCloser, info blob.Info, err error) {
	err = s.call(ctx, "get", []string{key}, func(r Rule, random uint64) error {
		var err error
		if body, info, err = s.inner.Get(ctx, key); err == nil {
			body, info.Size = damage(key, body, info.Size, r.Damage, random)
		}
		return err
	})
	return body, info, closeOnError(body, err)
}

// GetRange implements blob.Store.
func (s *Store) GetRange(ctx context.Context, key string, off, n int64) (body io.ReadCloser, err error) {
	err = s.call(ctx, "get-range", []string{key}, func(r Rule, random uint64) error {
		var err error
		if body, err = s.inner.GetRange(ctx, key, off, n); err == nil {
			body, _ = damage(key, body, n, r.Damage, random)
		}
		return err
	})
	return body, closeOnError(body, err)
}

func closeOnError(body io.ReadCloser, err error) error {
	if err != nil && body != nil {
		body.Close()
	}
	return err
}

// Stat implements blob.Store.
func (s *Store) Stat(ctx context.Context, key string) (info blob.Info, err error) {
	err = s.call(ctx, "stat", []string{key}, func(Rule, uint64) error {
		var err error
		info, err = s.inner.Stat(ctx, key)
		return err
	})
	return info, err
}

// Delete implements blob.Store.
func (s *Store) Delete(ctx context.Context, keys ...string) error {
	return s.call(ctx, "delete", keys, func(Rule, uint64) error { return s.inner.Delete(ctx, keys...) })
}

// List implements blob.Store. A rule hits it before the first object.
func (s *Store) List(ctx context.Context, prefix string) iter.Seq2[blob.Info, error] {
	return func(yield func(blob.Info, error) bool) {
		if err := s.call(ctx, "list", []string{prefix}, func(Rule, uint64) error { return nil }); err != nil {
			yield(blob.Info{}, err)
			return
		}
		s.inner.List(ctx, prefix)(yield)
	}
}
