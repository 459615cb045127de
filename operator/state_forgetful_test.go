package operator

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// forgetful makes backends on disk whose caches lose all that they have at changes of its choice. A pointer into a state that is
// used after the next call of any state then leads to what is no longer the state's.
type forgetful struct{ trees }

// forgets is how many changes it goes on average from one loss to the next.
const forgets = 30

func (f *forgetful) New(ctx context.Context, p statebackend.Params) (statebackend.Backend, error) {
	b, err := f.trees.New(ctx, p)
	if err != nil {
		return nil, err
	}
	return &forgetfulBackend{Backend: b, rand: rand.New(rand.NewPCG(1, uint64(p.Task.Subtask)))}, nil
}

type forgetfulBackend struct {
	statebackend.Backend
	rand   *rand.Rand
	caches []*statebackend.Cache
	walks  int
}

func (b *forgetfulBackend) Open(t statebackend.Type) (statebackend.Table, error) {
	table, err := b.Backend.Open(forgetfulType{t, b})
	for _, c := range b.caches {
		c.Limit = 0 // To be asked at every change.
	}
	return table, err
}

// forget empties the caches, if the backend may take down now what changed in them.
func (b *forgetfulBackend) forget() {
	if b.walks > 0 || len(b.Unopened()) > 0 || b.rand.IntN(forgets) > 0 {
		return
	}
	s, err := b.Freeze(job.CheckpointID(1 << 40))
	if err != nil {
		return // Too many are alive, or a value is too large, which others find.
	}
	s.Release()
	for b.Merge(time.Second) {
	}
	for range 2 { // What was read of late stays the first time.
		for _, c := range b.caches {
			c.Main.Evict(1<<30, 1<<20)
			c.Gone.Evict(1<<30, 1<<20)
		}
	}
}

type forgetfulType struct {
	statebackend.Type
	b *forgetfulBackend
}

func (t forgetfulType) NewCache(p statebackend.TableParams, s statebackend.Store) (*statebackend.Cache, error) {
	st := &forgetfulStore{Store: s, b: t.b}
	c, err := t.Type.NewCache(p, st)
	st.c = c
	t.b.caches = append(t.b.caches, c)
	return c, err
}

type forgetfulStore struct {
	statebackend.Store
	b *forgetfulBackend
	c *statebackend.Cache
}

func (s *forgetfulStore) Room() {
	s.Store.Room()
	s.b.forget()
	s.c.Limit = 0
}

func (s *forgetfulStore) Walk(begin bool) {
	if s.Store.Walk(begin); begin {
		s.b.walks++
	} else {
		s.b.walks--
	}
}

// No kind of state uses what it was given by one state after it has asked another one.
func TestStateKindsKeepNoPointers(t *testing.T) {
	factories["forgetful"] = &forgetful{}
	defer delete(factories, "forgetful")
	for name, ttl := range map[string][]TTL{"none": nil, "on-write": {{After: 20 * time.Second}}} {
		t.Run(name, func(t *testing.T) {
			testStateKinds(t, codec.Int64(), func(k int64) int64 { return k }, ttl, "forgetful")
		})
	}
}

// A list of many parts is read, and what has expired of it counted, though its head leaves the cache on the way.
func TestLongListsKeepNoPointers(t *testing.T) {
	factories["forgetful"] = &forgetful{}
	defer delete(factories, "forgetful")
	const keys, old, young = 20, 60, 10
	for name, ttl := range map[string][]TTL{"none": nil, "on-write": {{After: 20 * time.Second}}} {
		t.Run(name, func(t *testing.T) {
			of := func(o *order) int64 { return o.Key }
			s := StartScaled[int64, order, order, answer](t, "forgetful", 1, codec.Int64(), of, of, func() Operator { return obey(codec.Int64(), func(k int64) int64 { return k }, ttl) })
			n := int64(0)
			run := func(times, op int) {
				var events []Feed[order, order]
				for i := range times {
					for k := range int64(keys) {
						events = append(events, Feed[order, order]{A: order{Key: k, Op: op, A: int64(i), N: n}})
						n++
					}
				}
				s.Run(events, 100)
			}
			run(old, 5)
			s.now = s.now.Add(10 * time.Second)
			run(young, 5)
			s.now = s.now.Add(11 * time.Second)
			run(1, 7)
			var text []string
			for i := range old {
				text = append(text, fmt.Sprint("e", i))
			}
			if ttl != nil {
				text = nil
			}
			for i := range young {
				text = append(text, fmt.Sprint("e", i))
			}
			var want []answer
			for k := range int64(keys) {
				want = append(want, answer{n - keys + k, fmt.Sprintf("list %v %d", text, len(text))})
			}
			SameRows(t, "answers", s.Rows(), want)
			s.Close()
		})
	}
}
