package mem

import (
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/cairnstream/cairn/metastore"
)

// Cluster is the store that clients share. Its methods may be called from any goroutine.
type Cluster struct {
	mu struct {
		sync.Mutex
		revision int64
		entries  map[string]metastore.Entry
		leaders  map[string]*leadership
		changed  chan struct{} // closed and made anew when a candidate should look again
		down     bool
		faults   []Fault
	}
}

// Fault is what happens to one commit.
type Fault int

// The faults of a commit. After both the caller is told that the outcome is unknown.
const (
	// LostAnswer: it is carried out, only its answer is lost.
	LostAnswer Fault = iota + 1
	// LostRequest: it never arrives.
	LostRequest
)

// NewCluster makes an empty store.
func NewCluster() *Cluster {
	c := &Cluster{}
	c.mu.entries = make(map[string]metastore.Entry)
	c.mu.leaders = make(map[string]*leadership)
	c.mu.changed = make(chan struct{})
	return c
}

// Client makes another view of the store.
func (c *Cluster) Client() *Client {
	return &Client{cluster: c, closed: make(chan struct{})}
}

// Depose takes the leadership of an election away, as when a lease runs out, and tells whether there was one.
func (c *Cluster) Depose(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	l := c.mu.leaders[name]
	if l == nil {
		return false
	}
	c.end(l)
	return true
}

// DeposeQuietly is Depose, but the former leader does not learn of it: its Lost stays open until it tries something,
// as in a process that was paused.
func (c *Cluster) DeposeQuietly(name string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.leaders[name] == nil {
		return false
	}
	delete(c.mu.leaders, name)
	c.wake()
	return true
}

// SetDown makes the store unavailable, or available again. While it is down all calls fail at once with
// metastore.ErrUnavailable, and candidates wait.
func (c *Cluster) SetDown(down bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.down = down
	c.wake()
}

// FailCommits lets the next commits meet these faults, one each, in order.
func (c *Cluster) FailCommits(faults ...Fault) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.faults = append(c.mu.faults, faults...)
}

// wake lets candidates look again.
func (c *Cluster) wake() {
	close(c.mu.changed)
	c.mu.changed = make(chan struct{})
}

// end ends a leadership if it has not ended before.
func (c *Cluster) end(l *leadership) {
	if c.mu.leaders[l.name] == l {
		delete(c.mu.leaders, l.name)
		c.wake()
	}
	l.once.Do(func() { close(l.lost) })
}

// check says whether the store can be asked.
func (c *Cluster) check() error {
	if c.mu.down {
		return metastore.ErrUnavailable
	}
	return nil
}

// lead makes l the leader of its election if nobody is.
func (c *Cluster) lead(l *leadership) (won bool, changed <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.down || c.mu.leaders[l.name] != nil {
		return false, c.mu.changed
	}
	c.mu.revision++
	l.epoch = uint64(c.mu.revision)
	c.mu.leaders[l.name] = l
	return true, nil
}

// commit carries out a valid transaction.
func (c *Cluster) commit(l *leadership, txn metastore.Txn) (metastore.Outcome, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(); err != nil {
		return 0, err
	}
	var fault Fault
	if len(c.mu.faults) > 0 {
		fault, c.mu.faults = c.mu.faults[0], c.mu.faults[1:]
	}
	if fault == LostRequest {
		return 0, fmt.Errorf("%w: injected: the request is lost", metastore.ErrOutcomeUnknown)
	}
	outcome := c.apply(l, txn)
	if fault == LostAnswer {
		return 0, fmt.Errorf("%w: injected: the answer is lost", metastore.ErrOutcomeUnknown)
	}
	if outcome == metastore.NotLeader {
		c.end(l)
	}
	return outcome, nil
}

func (c *Cluster) apply(l *leadership, txn metastore.Txn) metastore.Outcome {
	if c.mu.leaders[l.name] != l {
		return metastore.NotLeader
	}
	for _, condition := range txn.Conditions {
		var found *metastore.Entry
		if e, ok := c.mu.entries[condition.Key]; ok {
			found = &e
		}
		if !condition.Holds(found) {
			return metastore.ConditionFailed
		}
	}
	c.mu.revision++
	for _, key := range txn.Deletes {
		delete(c.mu.entries, key)
	}
	for _, prefix := range txn.DeletePrefixes {
		for key := range c.mu.entries {
			if strings.HasPrefix(key, prefix) {
				delete(c.mu.entries, key)
			}
		}
	}
	for _, p := range txn.Puts {
		e := metastore.Entry{Key: p.Key, Value: slices.Clone(p.Value), CreateRevision: c.mu.revision, ModRevision: c.mu.revision}
		if old, ok := c.mu.entries[p.Key]; ok {
			e.CreateRevision = old.CreateRevision
		}
		c.mu.entries[p.Key] = e
	}
	return metastore.Committed
}

// get reads a key; l, if given, must still lead.
func (c *Cluster) get(l *leadership, key string) (metastore.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(); err != nil {
		return metastore.Entry{}, err
	}
	if l != nil && c.mu.leaders[l.name] != l {
		c.end(l)
		return metastore.Entry{}, metastore.ErrNotLeader
	}
	e, ok := c.mu.entries[key]
	if !ok {
		return metastore.Entry{}, metastore.ErrNotFound
	}
	e.Value = slices.Clone(e.Value)
	return e, nil
}

func (c *Cluster) list(prefix string) ([]metastore.Entry, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(); err != nil {
		return nil, err
	}
	var entries []metastore.Entry
	for key, e := range c.mu.entries {
		if strings.HasPrefix(key, prefix) {
			e.Value = slices.Clone(e.Value)
			entries = append(entries, e)
		}
	}
	slices.SortFunc(entries, func(a, b metastore.Entry) int { return strings.Compare(a.Key, b.Key) })
	return entries, nil
}

func (c *Cluster) leader(name string) (metastore.LeaderInfo, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.check(); err != nil {
		return metastore.LeaderInfo{}, err
	}
	l := c.mu.leaders[name]
	if l == nil {
		return metastore.LeaderInfo{}, metastore.ErrNoLeader
	}
	return metastore.LeaderInfo{ID: l.id, Epoch: l.epoch}, nil
}
