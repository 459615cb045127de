package metatest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/cairnstream/cairn/metastore"
)

// patience bounds everything that must happen in time; a healthy store needs a small part of it.
const patience = 30 * time.Second

// Harness gives the suite several clients of one store, which is empty at the start of each test.
type Harness interface {
	// Client opens another client; the suite closes it.
	Client(t *testing.T) metastore.Store
}

// Run proves that an implementation follows the contract. open is called once per test.
func Run(t *testing.T, open func(t *testing.T) Harness) {
	tests := []struct {
		name string
		test func(*testing.T, *env)
	}{
		{"get and list", testGetList},
		{"list as of one moment", testListSnapshot},
		{"conditions", testConditions},
		{"deletes", testDeletes},
		{"transactions are atomic", testAtomic},
		{"bad transactions", testBadTxns},
		{"large values", testLarge},
		{"election", testElection},
		{"one leader at a time", testOneLeader},
		{"elections are independent", testIndependent},
		{"guard", testGuard},
		{"close resigns", testClose},
		{"cancellation", testCancellation},
		{"concurrent commits", testConcurrentCommits},
		{"settle", testSettle},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), patience)
			defer cancel()
			tt.test(t, &env{ctx: ctx, harness: open(t)})
		})
	}
}

type env struct {
	ctx     context.Context
	harness Harness
}

func (e *env) client(t *testing.T) metastore.Store {
	t.Helper()
	s := e.harness.Client(t)
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return s
}

func (e *env) elect(t *testing.T, s metastore.Store, id string) metastore.Leadership {
	t.Helper()
	l, err := s.Elect(e.ctx, "leader", id)
	if err != nil {
		t.Fatalf("elect %s: %v", id, err)
	}
	return l
}

func (e *env) commit(t *testing.T, l metastore.Leadership, txn metastore.Txn, want metastore.Outcome) {
	t.Helper()
	got, err := l.Commit(e.ctx, txn)
	if err != nil || got != want {
		t.Fatalf("%v: got %v, %v, want %v", txn, got, err, want)
	}
}

func (e *env) get(t *testing.T, s metastore.Store, key, want string) metastore.Entry {
	t.Helper()
	got, err := s.Get(e.ctx, key)
	if err != nil || string(got.Value) != want || got.Key != key {
		t.Fatalf("get %s: got %v %q, %v, want %q", key, got, got.Value, err, want)
	}
	return got
}

func (e *env) missing(t *testing.T, s metastore.Store, key string) {
	t.Helper()
	if got, err := s.Get(e.ctx, key); !errors.Is(err, metastore.ErrNotFound) || !strings.Contains(err.Error(), key) {
		t.Fatalf("get %s: got %v, %v, want not found", key, got, err)
	}
}

func (e *env) keys(t *testing.T, s metastore.Store, prefix string) []string {
	t.Helper()
	entries, err := s.List(e.ctx, prefix)
	if err != nil {
		t.Fatal(err)
	}
	keys := []string{}
	for _, entry := range entries {
		keys = append(keys, entry.Key)
	}
	return keys
}

func put(pairs ...string) metastore.Txn {
	var txn metastore.Txn
	for i := 0; i < len(pairs); i += 2 {
		txn.Puts = append(txn.Puts, metastore.Put{Key: pairs[i], Value: []byte(pairs[i+1])})
	}
	return txn
}

func when(txn metastore.Txn, conditions ...metastore.Condition) metastore.Txn {
	txn.Conditions = conditions
	return txn
}

func closed(ctx context.Context, t *testing.T, c <-chan struct{}) {
	t.Helper()
	select {
	case <-c:
	case <-ctx.Done():
		t.Fatal("Lost was not closed")
	}
}

func open(c <-chan struct{}) bool {
	select {
	case <-c:
		return false
	default:
		return true
	}
}

func testGetList(t *testing.T, e *env) {
	s, other := e.client(t), e.client(t)
	l := e.elect(t, s, "a")
	e.missing(t, s, "none")
	e.commit(t, l, put("jobs/b", "2", "jobs/a", "1", "jobs/a/x", "3", "jobsx", "4", "empty", ""), metastore.Committed)
	first := e.get(t, other, "jobs/a", "1")
	e.get(t, other, "empty", "")
	if first.CreateRevision <= 0 || first.CreateRevision != first.ModRevision {
		t.Errorf("revisions of a new key: %+v", first)
	}
	e.commit(t, l, put("jobs/a", "changed"), metastore.Committed)
	second := e.get(t, other, "jobs/a", "changed")
	if second.CreateRevision != first.CreateRevision || second.ModRevision <= first.ModRevision {
		t.Errorf("revisions: %+v, then %+v", first, second)
	}
	for prefix, want := range map[string][]string{
		"":        {"empty", "jobs/a", "jobs/a/x", "jobs/b", "jobsx"},
		"jobs":    {"jobs/a", "jobs/a/x", "jobs/b", "jobsx"},
		"jobs/":   {"jobs/a", "jobs/a/x", "jobs/b"},
		"jobs/a/": {"jobs/a/x"},
		"none":    {},
	} {
		if got := e.keys(t, other, prefix); !slices.Equal(got, want) {
			t.Errorf("list %q: got %q, want %q", prefix, got, want)
		}
	}
	entries, err := other.List(e.ctx, "jobs/a")
	if err != nil || len(entries) != 2 || string(entries[0].Value) != "changed" || entries[0].ModRevision != second.ModRevision {
		t.Errorf("list: %v, %v", entries, err)
	}
	second.Value[0] = 'X'
	e.get(t, other, "jobs/a", "changed")
	guarded, err := l.Get(e.ctx, "jobs/a")
	if err != nil || string(guarded.Value) != "changed" || guarded.ModRevision != second.ModRevision || guarded.Key != "jobs/a" {
		t.Errorf("guarded get: %+v, %v", guarded, err)
	}
	if _, err := l.Get(e.ctx, "none"); !errors.Is(err, metastore.ErrNotFound) {
		t.Errorf("guarded get of nothing: %v", err)
	}
}

// testListSnapshot: keys that are always written together are always read together.
func testListSnapshot(t *testing.T, e *env) {
	s, other := e.client(t), e.client(t)
	l := e.elect(t, s, "a")
	var writer sync.WaitGroup
	writer.Go(func() {
		for i := range 30 {
			v := fmt.Sprint(i)
			if o, err := l.Commit(e.ctx, put("pair/a", v, "pair/b", v)); err != nil || o != metastore.Committed {
				t.Errorf("commit: %v, %v", o, err)
			}
		}
	})
	for range 30 {
		entries, err := other.List(e.ctx, "pair/")
		if err != nil || len(entries) != 0 && (len(entries) != 2 || !bytes.Equal(entries[0].Value, entries[1].Value)) {
			t.Errorf("list: %v, %v", entries, err)
		}
	}
	writer.Wait()
}

func testConditions(t *testing.T, e *env) {
	s := e.client(t)
	l := e.elect(t, s, "a")
	e.commit(t, l, when(put("k", "1"), metastore.Exists("k")), metastore.ConditionFailed)
	e.missing(t, s, "k")
	e.commit(t, l, when(put("k", "1"), metastore.Absent("k")), metastore.Committed)
	e.commit(t, l, when(put("k", "2"), metastore.Absent("k")), metastore.ConditionFailed)
	old := e.get(t, s, "k", "1")
	e.commit(t, l, when(put("k", "2"), metastore.Exists("k"), metastore.Unchanged(old)), metastore.Committed)
	e.commit(t, l, when(put("k", "3"), metastore.Unchanged(old)), metastore.ConditionFailed)
	e.get(t, s, "k", "2")
	// All conditions must hold.
	e.commit(t, l, when(put("k", "3"), metastore.Exists("k"), metastore.Exists("none")), metastore.ConditionFailed)
	// Without changes it is a question.
	e.commit(t, l, when(metastore.Txn{}, metastore.Exists("k"), metastore.Absent("none")), metastore.Committed)
	e.commit(t, l, metastore.Txn{}, metastore.Committed)
	// A key that was deleted and made again is not unchanged.
	current := e.get(t, s, "k", "2")
	e.commit(t, l, metastore.Txn{Deletes: []string{"k"}}, metastore.Committed)
	e.commit(t, l, when(put("x", ""), metastore.Unchanged(current)), metastore.ConditionFailed)
	e.commit(t, l, put("k", "2"), metastore.Committed)
	e.commit(t, l, when(put("x", ""), metastore.Unchanged(current)), metastore.ConditionFailed)
}

func testDeletes(t *testing.T, e *env) {
	s := e.client(t)
	l := e.elect(t, s, "a")
	e.commit(t, l, put("d/1", "", "d/2", "", "d/2/x", "", "d0", "", "e", "", "d/3", ""), metastore.Committed)
	e.commit(t, l, metastore.Txn{Deletes: []string{"d/1", "none"}}, metastore.Committed)
	if got := e.keys(t, s, ""); !slices.Equal(got, []string{"d/2", "d/2/x", "d/3", "d0", "e"}) {
		t.Errorf("after delete: %q", got)
	}
	e.commit(t, l, metastore.Txn{DeletePrefixes: []string{"d/", "none/"}, Puts: put("d1", "").Puts}, metastore.Committed)
	if got := e.keys(t, s, ""); !slices.Equal(got, []string{"d0", "d1", "e"}) {
		t.Errorf("after delete of a prefix: %q", got)
	}
	// Whatever is deleted, who leads does not change.
	e.commit(t, l, metastore.Txn{DeletePrefixes: []string{"d", "e", "l", "/", "k"}}, metastore.Committed)
	e.commit(t, l, put("k", ""), metastore.Committed)
}

func testAtomic(t *testing.T, e *env) {
	s := e.client(t)
	l := e.elect(t, s, "a")
	e.commit(t, l, put("old", "1"), metastore.Committed)
	txn := metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent("a"), metastore.Exists("none")},
		Puts:       put("a", "1", "b", "2").Puts, Deletes: []string{"old"},
	}
	e.commit(t, l, txn, metastore.ConditionFailed)
	if got := e.keys(t, s, ""); !slices.Equal(got, []string{"old"}) {
		t.Errorf("a failed transaction left %q", got)
	}
	txn.Conditions = txn.Conditions[:1]
	e.commit(t, l, txn, metastore.Committed)
	if a, b := e.get(t, s, "a", "1"), e.get(t, s, "b", "2"); a.ModRevision != b.ModRevision {
		t.Errorf("one transaction, two revisions: %+v, %+v", a, b)
	}
	e.missing(t, s, "old")
	value := []byte("mine")
	e.commit(t, l, metastore.Txn{Puts: []metastore.Put{{Key: "copied", Value: value}}}, metastore.Committed)
	copy(value, "your")
	e.get(t, s, "copied", "mine")
}

func testBadTxns(t *testing.T, e *env) {
	s := e.client(t)
	l := e.elect(t, s, "a")
	many := metastore.Txn{}
	for i := range metastore.MaxTxnOps + 1 {
		many.Puts = append(many.Puts, metastore.Put{Key: fmt.Sprintf("k%03d", i)})
	}
	for name, tt := range map[string]struct {
		txn  metastore.Txn
		kind error
		say  string
	}{
		"put twice":         {put("k", "1", "k", "2"), metastore.ErrInvalid, "put twice"},
		"put and deleted":   {metastore.Txn{Puts: put("k", "").Puts, Deletes: []string{"k"}}, metastore.ErrInvalid, `"k"`},
		"put under prefix":  {metastore.Txn{Puts: put("dir/k", "").Puts, DeletePrefixes: []string{"dir/"}}, metastore.ErrInvalid, `"dir/k"`},
		"everything":        {metastore.Txn{DeletePrefixes: []string{""}}, metastore.ErrInvalid, "prefix"},
		"empty key":         {put("", ""), metastore.ErrInvalid, "empty"},
		"leading slash":     {put("/k", ""), metastore.ErrInvalid, "slash"},
		"control character": {put("a\nb", ""), metastore.ErrInvalid, `\n`},
		"long key":          {put(strings.Repeat("k", metastore.MaxKeyLen+1), ""), metastore.ErrTooLarge, "1025"},
		"many":              {many, metastore.ErrTooLarge, "100"},
	} {
		if o, err := l.Commit(e.ctx, tt.txn); !errors.Is(err, tt.kind) || errors.Is(err, metastore.ErrOutcomeUnknown) || !strings.Contains(err.Error(), tt.say) {
			t.Errorf("%s: got %v, %v", name, o, err)
		}
	}
	for _, key := range []string{"", "/k"} {
		if _, err := s.Get(e.ctx, key); !errors.Is(err, metastore.ErrInvalid) {
			t.Errorf("get %q: %v", key, err)
		}
	}
	if got := e.keys(t, s, ""); len(got) > 0 {
		t.Errorf("bad transactions left %q", got)
	}
	many.Puts = many.Puts[1:]
	for _, p := range many.Puts {
		many.Conditions = append(many.Conditions, metastore.Absent(p.Key))
	}
	e.commit(t, l, many, metastore.Committed)
}

func testLarge(t *testing.T, e *env) {
	s := e.client(t)
	l := e.elect(t, s, "a")
	value := strings.Repeat("x", metastore.MaxValueLen)
	_, err := l.Commit(e.ctx, put("small", "", "jobs/large", value+"x"))
	if !errors.Is(err, metastore.ErrTooLarge) || !strings.Contains(err.Error(), "jobs/large") ||
		!strings.Contains(err.Error(), "100001") || !strings.Contains(err.Error(), "100000") {
		t.Errorf("got %v, want an error with key, size and limit", err)
	}
	e.missing(t, s, "small")
	txn := metastore.Txn{}
	for i := range 10 {
		txn.Puts = append(txn.Puts, metastore.Put{Key: fmt.Sprint("k", i), Value: []byte(value)})
	}
	e.commit(t, l, txn, metastore.Committed)
	if entries, err := s.List(e.ctx, "k"); err != nil || len(entries) != 10 || string(entries[9].Value) != value {
		t.Errorf("list of large values: %d, %v", len(entries), err)
	}
	txn.Puts = append(txn.Puts, metastore.Put{Key: "one-more", Value: []byte(value)})
	if _, err := l.Commit(e.ctx, txn); !errors.Is(err, metastore.ErrTooLarge) {
		t.Errorf("a transaction over the limit: %v", err)
	}
}

func testConcurrentCommits(t *testing.T, e *env) {
	s := e.client(t)
	l := e.elect(t, s, "a")
	var wg sync.WaitGroup
	wins := make([]int, 8)
	for i := range wins {
		wg.Go(func() {
			for round := range 10 {
				key := fmt.Sprintf("round/%d", round)
				o, err := l.Commit(e.ctx, when(put(key, fmt.Sprint(i)), metastore.Absent(key)))
				if err != nil {
					t.Error(err)
				}
				if o == metastore.Committed {
					wins[i]++
				}
			}
		})
	}
	wg.Wait()
	total := 0
	for _, n := range wins {
		total += n
	}
	if total != 10 {
		t.Errorf("%d commits of 10 keys succeeded: %v", total, wins)
	}
}
