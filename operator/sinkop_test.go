package operator

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// ledger is a two-phase sink that writes down what happens to it.
type ledger struct {
	mu       sync.Mutex
	calls    []string
	onePhase bool
	commit   func(items [][]byte) error
}

func (l *ledger) note(format string, args ...any) {
	l.mu.Lock()
	l.calls = append(l.calls, fmt.Sprintf(format, args...))
	l.mu.Unlock()
}

func (l *ledger) take() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	s := strings.Join(l.calls, ", ")
	l.calls = nil
	return s
}

func (l *ledger) Writer(_ context.Context, c SinkContext) (Writer[int], error) {
	l.note("writer restored=%v states=%s committables=%s", c.Restored, c.States, c.Committables)
	return &ledgerWriter{l: l}, nil
}

func (l *ledger) Committer(context.Context, SinkContext) (Committer, error) {
	if l.onePhase {
		return nil, nil
	}
	return l, nil
}
func (l *ledger) TwoPhase() bool  { return !l.onePhase }
func (l *ledger) Validate() error { return nil }
func (l *ledger) Close() error    { l.note("committer closed"); return nil }

func (l *ledger) Commit(_ context.Context, items [][]byte) error {
	if l.commit != nil {
		if err := l.commit(items); err != nil {
			return err
		}
	}
	l.note("commit %s", items)
	return nil
}

type ledgerWriter struct {
	l    *ledger
	rows []int
	all  int
}

func (w *ledgerWriter) Write(b *record.Batch[int]) error {
	for _, e := range unroll(b) {
		if !e.mark {
			w.rows = append(w.rows, e.row)
			w.all++
		}
	}
	return nil
}

func (w *ledgerWriter) Prepare(id job.CheckpointID) ([][]byte, error) {
	if len(w.rows) == 0 {
		return nil, nil
	}
	item := fmt.Appendf(nil, "%v:%v", id, w.rows)
	w.rows = nil
	return [][]byte{item}, nil
}

func (w *ledgerWriter) State() ([]byte, error) { return fmt.Appendf(nil, "%d", w.all), nil }
func (w *ledgerWriter) Close() error           { w.l.note("writer closed"); return nil }

func startSink(t *testing.T, l *ledger, s *surroundings) *sinkOp {
	t.Helper()
	o := NewSink[int](l).(*sinkOp)
	if err := o.Open(s.c); err != nil {
		t.Fatal(err)
	}
	return o
}

func write(t *testing.T, o Operator, rows ...int) {
	t.Helper()
	b := record.PoolOf[int]().Get()
	b.Rows = append(b.Rows, rows...)
	if err := o.Push(0, b); err != nil {
		t.Fatal(err)
	}
}

// snapshot is what a barrier does to a sink; it returns the committables in the snapshot.
func snapshot(t *testing.T, o *sinkOp, id job.CheckpointID) [][]byte {
	t.Helper()
	if err := o.Prepare(id); err != nil {
		t.Fatal(err)
	}
	m, err := o.Snapshot(id)
	if err != nil {
		t.Fatal(err)
	}
	return m[committablesState]
}

func show(list [][]byte) string {
	var out []string
	for _, b := range list {
		id, item, err := decodeCommittable(b)
		out = append(out, fmt.Sprintf("%v=%s%v", id, item, err))
	}
	return strings.ReplaceAll(strings.Join(out, " "), "<nil>", "")
}

// Committables stay in every snapshot until they are committed, those of aborted checkpoints too,
// and are committed in order, with the next checkpoint that is.
func TestSinkCommits(t *testing.T) {
	l, s := &ledger{}, surround(nil)
	o := startSink(t, l, s)
	if got := l.take(); got != "writer restored=false states=[] committables=[]" {
		t.Error(got)
	}
	write(t, o, 1, 2)
	if got := show(snapshot(t, o, 1)); got != "c1=c1:[1 2]" {
		t.Error(got)
	}
	write(t, o, 3)
	if got := show(snapshot(t, o, 2)); got != "c1=c1:[1 2] c2=c2:[3]" { // 1 was aborted, or is not known to be durable.
		t.Error(got)
	}
	if got := show(snapshot(t, o, 3)); got != "c1=c1:[1 2] c2=c2:[3]" { // Nothing was written.
		t.Error(got)
	}
	write(t, o, 4)
	snapshot(t, o, 4)
	if l.take() != "" || o.Uncommitted() != 3 {
		t.Errorf("%d uncommitted", o.Uncommitted())
	}
	if err := o.Committed(3); err != nil {
		t.Fatal(err)
	}
	if err := s.await(t, "commit", func() bool { return o.Uncommitted() == 1 }); err != nil {
		t.Fatal(err)
	}
	if err := o.Committed(3); err != nil { // Told twice.
		t.Fatal(err)
	}
	if got := l.take(); got != "commit [c1:[1 2]], commit [c2:[3]]" {
		t.Error(got)
	}
	if got := show(snapshot(t, o, 5)); got != "c4=c4:[4]" {
		t.Error(got)
	}
	if err := o.Close(); err != nil {
		t.Fatal(err)
	}
	if got := l.take(); got != "writer closed, committer closed" {
		t.Error(got)
	}
}

// What a restored checkpoint lists is committed before the writer is made, this subtask's share of
// it; the writer learns of all.
func TestSinkRestored(t *testing.T) {
	l, s := &ledger{}, surround(nil)
	a, b := encodeCommittable(300, []byte("a")), encodeCommittable(301, []byte("b"))
	s.c.Restored = true
	s.c.List = map[string][][]byte{committablesState: {a}}
	s.c.Union = map[string][][]byte{committablesState: {a, b}, writerState: {[]byte("7"), []byte("8")}}
	o := startSink(t, l, s)
	if got := l.take(); got != "commit [a], writer restored=true states=[7 8] committables=[a b]" {
		t.Error(got)
	}
	if got := show(snapshot(t, o, 302)); got != "" || o.Uncommitted() != 0 {
		t.Errorf("still uncommitted: %s", got)
	}
	o.Close()

	s.c.Union = map[string][][]byte{committablesState: {{0x80}}}
	if err := NewSink[int](l).Open(s.c); err == nil {
		t.Error("a truncated committable is taken")
	}
}

// Faults outside are tried again with backoff; after a while, and with any other fault at once, the
// task fails, and nothing that was prepared later overtakes.
func TestSinkCommitFails(t *testing.T) {
	for _, x := range []struct {
		name  string
		err   error
		times int // How often it fails.
		tries int
		fails bool
	}{
		{"passing", job.Errorf(job.ClassExternal, "503"), 4, 5, false},
		{"lasting", job.Errorf(job.ClassExternal, "503"), 1 << 30, commitTries, true},
		{"refused", job.Errorf(job.ClassRefused, "gone"), 1 << 30, 1, true},
		{"without a class", errors.New("x"), 1 << 30, 1, true},
	} {
		t.Run(x.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				tries := 0
				l, s := &ledger{}, surround(nil)
				l.commit = func([][]byte) error {
					if tries++; tries <= x.times {
						return x.err
					}
					return nil
				}
				o := startSink(t, l, s)
				for id := range job.CheckpointID(3) {
					write(t, o, int(id))
					snapshot(t, o, id+1)
				}
				l.take()
				if err := o.Committed(2); err != nil {
					t.Fatal(err)
				}
				var err error
				for err == nil && o.Uncommitted() > 1 {
					<-s.wake
					err = s.run()
				}
				if x.fails != (err != nil) || x.fails && !errors.Is(err, x.err) {
					t.Errorf("%v", err)
				}
				if want := x.tries; x.fails && tries != want || !x.fails && tries != want+1 {
					t.Errorf("%d tries", tries)
				}
				if x.fails {
					if got := l.take(); got != "" || o.Uncommitted() != 3 {
						t.Errorf("%s; %d uncommitted", got, o.Uncommitted())
					}
				}
				o.Close()
			})
		})
	}
}

func TestCommitterPanics(t *testing.T) {
	l, s := &ledger{}, surround(nil)
	l.commit = func([][]byte) error { panic("boom") }
	o := startSink(t, l, s)
	write(t, o, 1)
	snapshot(t, o, 1)
	o.Committed(1)
	err := s.await(t, "an error", func() bool { return false })
	if f := job.FailureOf("", "", err); f.Class != job.ClassUser || f.Stack == "" {
		t.Errorf("%+v", f)
	}
	o.Close()
}

// A sink that cannot commit does not collect checkpoints without bound, never blocks the task, and
// loses nothing: with checkpoints that fail, the committables come together.
func TestSinkBounds(t *testing.T) {
	release := make(chan struct{})
	var committed [][]byte
	l, s := &ledger{}, surround(nil)
	l.commit = func(items [][]byte) error {
		<-release
		committed = append(committed, items...)
		return nil
	}
	o := startSink(t, l, s)
	id := job.CheckpointID(0)
	step := func() error {
		id++
		write(t, o, int(id))
		return o.Prepare(id)
	}
	for range maxUncommitted - 1 {
		if err := step(); err != nil {
			t.Fatal(err)
		}
		o.Committed(id)
	}
	for range 3 * maxUncommitted { // Checkpoints fail.
		if err := step(); err != nil {
			t.Fatal(err)
		}
	}
	o.Committed(id) // Must not block.
	if len(o.pending) > 2*maxUncommitted {
		t.Errorf("%d pending", len(o.pending))
	}
	err := step()
	if err == nil || job.FailureOf("", "", err).Class != job.ClassExternal || !strings.Contains(err.Error(), "the limit is 64") {
		t.Errorf("%v", err)
	}
	close(release)
	if err := s.await(t, "commits", func() bool { return o.Uncommitted() == 0 }); err != nil {
		t.Fatal(err)
	}
	if len(committed) != int(id)-1 || !slices.IsSortedFunc(committed, func(a, b []byte) int { return checkpointOf(a) - checkpointOf(b) }) {
		t.Errorf("%d committed of %d: %s", len(committed), id-1, committed)
	}
	o.Close()
}

func checkpointOf(item []byte) (n int) {
	fmt.Sscanf(string(item), "c%d:", &n)
	return n
}

// The end of a job without checkpoints commits everything.
func TestSinkCommitAll(t *testing.T) {
	l, s := &ledger{}, surround(nil)
	o := startSink(t, l, s)
	l.take()
	write(t, o, 1)
	if err := o.CommitAll(); err != nil {
		t.Fatal(err)
	}
	if err := s.await(t, "commit", func() bool { return o.Uncommitted() == 0 }); err != nil {
		t.Fatal(err)
	}
	if got := l.take(); got != "commit [c1:[1]]" {
		t.Error(got)
	}
	o.Close()
}

// A sink that does not commit must not give anything to commit: nobody would.
func TestOnePhaseSink(t *testing.T) {
	l, s := &ledger{onePhase: true}, surround(nil)
	o := startSink(t, l, s)
	if err := o.Prepare(1); err != nil || o.Uncommitted() != 0 {
		t.Error(err)
	}
	if err := o.Committed(1); err != nil {
		t.Error(err)
	}
	write(t, o, 1)
	if err := o.Prepare(2); err == nil {
		t.Error("committables of a sink without a committer are taken")
	}
	o.Close()
}
