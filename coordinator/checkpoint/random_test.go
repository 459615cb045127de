package checkpoint

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/job"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the randomized test; 0 takes one from the clock")
	stepsFlag = flag.Int("steps", 100_000, "steps of the randomized test")
)

// TestRandom feeds random events, in any order and number, and checks after each what must always
// hold; now and then the world falls quiet and behaves, and then a checkpoint must complete.
func TestRandom(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: repeat with -run TestRandom -seed %d", seed, seed)
	w := newWorld(t, seed)
	for range *stepsFlag {
		w.random()
		if w.r.IntN(2000) == 0 {
			w.quiet()
		}
		if w.r.IntN(5000) == 0 {
			w.newLeader()
		}
	}
	w.quiet()
	t.Logf("%d triggered, %d committed, %d aborted, %d released objects, %d failed jobs", w.triggers, len(w.published), w.aborts, len(w.released), w.fails)
	if len(w.published) < *stepsFlag/500 || w.aborts == 0 || len(w.released) == 0 {
		t.Error("too little happened for the test to mean anything")
	}
}

// world is what the machine's actions and events refer to, as a model of the stores and the tasks.
type world struct {
	t   *testing.T
	r   *rand.Rand
	cfg Config
	m   *Machine
	now time.Time
	log []entry

	attempt   job.Attempt
	running   bool
	limit     job.CheckpointID                           // Reserved, durably.
	reserve   job.CheckpointID                           // Asked for, not answered.
	open      map[job.CheckpointID]map[job.Task]Snapshot // Publications that were not answered.
	landed    map[job.CheckpointID]bool                  // Of those: already in the store.
	triggered map[job.CheckpointID]job.Attempt
	finished  map[job.Task]bool
	atEnd     map[job.Task]bool
	base      map[job.CheckpointID]job.CheckpointID
	reusable  map[job.CheckpointID][]string // Of its base: what a task may refer to again.
	pending   map[job.CheckpointID]bool
	stored    map[job.CheckpointID][]string // Committed and not discarded.
	published []job.CheckpointID            // In order of commit.
	completes []job.CheckpointID
	released  map[string]bool
	inAck     map[job.CheckpointID]map[string]bool // Objects in accepted acks, until the checkpoint ends.
	objects   int
	tokens    map[Token]bool
	nextToken Token
	pins      []job.CheckpointID
	saving    map[string]bool             // Savepoints that were asked for and have neither been taken nor dropped.
	saves     map[job.CheckpointID]string // Those on their way.

	triggers, aborts, fails int
}

func newWorld(t *testing.T, seed uint64) *world {
	r := rand.New(rand.NewPCG(seed, 1))
	w := &world{
		t: t, r: r, now: time.Unix(0, 0), limit: 1,
		cfg: Config{
			Mode: job.ExactlyOnce, Interval: 10 * time.Second, Timeout: 25 * time.Second, MinPause: time.Duration(r.IntN(10)) * time.Second,
			MaxConcurrent: 1 + r.IntN(3), Tolerable: r.IntN(4), Retained: 1 + r.IntN(2),
		},
		triggered: map[job.CheckpointID]job.Attempt{}, base: map[job.CheckpointID]job.CheckpointID{}, reusable: map[job.CheckpointID][]string{},
		stored: map[job.CheckpointID][]string{}, released: map[string]bool{}, tokens: map[Token]bool{},
	}
	w.newLeader()
	return w
}

// newLeader forgets the machine and begins anew from what the store holds.
func (w *world) newLeader() {
	for _, id := range sortedKeys(w.open) {
		if !w.landed[id] && w.r.IntN(2) == 0 {
			w.land(id) // The old leader's request arrived before the guard fell.
		}
	}
	var h History
	h.Next = w.limit
	for _, id := range sortedKeys(w.stored) {
		h.Committed = append(h.Committed, Committed{id, w.stored[id]})
	}
	h.Pinned = slices.Clone(w.pins)
	w.open, w.landed = map[job.CheckpointID]map[job.Task]Snapshot{}, map[job.CheckpointID]bool{}
	w.pending, w.inAck = map[job.CheckpointID]bool{}, map[job.CheckpointID]map[string]bool{}
	w.reserve, w.running = 0, false
	w.tokens, w.saving, w.saves = map[Token]bool{}, map[string]bool{}, map[job.CheckpointID]string{}
	w.completes = slices.Clone(w.published)
	w.m = New(w.cfg, h)
	w.step(Due{})
}

func (w *world) random() {
	task := storyTasks[w.r.IntN(len(storyTasks))]
	attempt := w.attempt
	if w.r.IntN(20) == 0 {
		attempt -= job.Attempt(w.r.IntN(2))
	}
	id := job.CheckpointID(0)
	if ids := w.m.Pending(); len(ids) > 0 {
		id = ids[w.r.IntN(len(ids))]
	}
	if w.r.IntN(15) == 0 {
		id = job.CheckpointID(max(0, int(w.m.next)+w.r.IntN(6)-4))
	}
	w.now = w.now.Add(time.Duration(w.r.IntN(1500)) * time.Millisecond)
	switch n := w.r.IntN(1000); {
	case n < 300:
		w.step(Due{})
	case n < 740:
		w.step(Acked{attempt, id, task, w.snapshot(id)})
	case n < 755:
		class := job.ClassUser
		if w.r.IntN(2) == 0 {
			class = job.ClassExternal
		}
		w.step(Declined{attempt, id, task, job.Failure{Class: class, Message: "declined"}})
	case n < 765 && w.running:
		w.atEnd[task] = true
		w.step(EndOfData{w.attempt, task})
	case n < 770 && w.running && w.atEnd[task] && w.canFinish(task):
		w.finished[task] = true
		w.step(Finished{w.attempt, task})
	case n < 900:
		w.answer(w.r.IntN(10))
	case n < 930:
		w.answerReserve(w.r.IntN(3) > 0)
	case n < 950:
		w.nextToken++
		w.tokens[w.nextToken] = true
		r := Requested{Token: w.nextToken, Full: w.r.IntN(5) == 0}
		if w.r.IntN(3) == 0 {
			r.Savepoint = &Savepoint{ID: fmt.Sprint(w.nextToken), Stop: w.r.IntN(10) == 0}
			w.saving[r.Savepoint.ID] = true
		}
		w.step(r)
	case n < 953 && len(w.m.Retained()) > 0:
		ids := w.m.Retained()
		w.pins = append(w.pins, ids[w.r.IntN(len(ids))])
		w.step(Pin{w.pins[len(w.pins)-1]})
	case n < 956 && len(w.pins) > 0:
		i := w.r.IntN(len(w.pins))
		id := w.pins[i]
		w.pins = slices.Delete(w.pins, i, i+1)
		w.step(Unpin{id})
	case n < 962 && w.running:
		w.running = false
		w.step(Stopped{w.attempt})
	case n < 990 && !w.running && w.m.Settled():
		w.start()
	}
}

func (w *world) start() {
	w.attempt++
	w.running, w.finished, w.atEnd = true, map[job.Task]bool{}, map[job.Task]bool{}
	w.step(Started{w.attempt, storyTasks, storyEnums})
}

// canFinish: a task closes only after a commit of its attempt.
func (w *world) canFinish(task job.Task) bool {
	return !w.finished[task] && len(w.completes) > 0 && w.triggered[w.completes[len(w.completes)-1]] == w.attempt && w.m.run.state[task].last != nil
}

// snapshot refers to objects of its own, some shared among tasks, and some of the base.
func (w *world) snapshot(id job.CheckpointID) Snapshot {
	w.objects++
	objects := []string{fmt.Sprintf("own-%d", w.objects)}
	if w.triggered[id] != 0 {
		objects = append(objects, fmt.Sprintf("pack-%v", id))
	}
	if have := w.reusable[id]; w.pending[id] && len(have) > 0 {
		objects = append(objects, have[w.r.IntN(len(have))])
	}
	return snapshotOf(objects)
}

// answer answers a random publication.
func (w *world) answer(n int) {
	ids := sortedKeys(w.open)
	if len(ids) == 0 {
		return
	}
	id := ids[0]
	switch {
	case n < 6:
		w.settle(id)
	case n < 8 && !w.landed[id]:
		delete(w.open, id)
		w.step(Published{ID: id, Outcome: PublishFailed})
	default:
		if w.r.IntN(2) == 0 {
			w.land(id)
		}
		w.step(Published{ID: id, Outcome: PublishUnknown})
	}
}

func (w *world) settle(id job.CheckpointID) {
	w.land(id)
	delete(w.open, id)
	w.step(Published{ID: id, Outcome: PublishCommitted})
}

// land is the commit point.
func (w *world) land(id job.CheckpointID) {
	if w.landed[id] {
		return
	}
	w.landed[id] = true
	var objects []string
	for _, s := range w.open[id] {
		objects = append(objects, s.Objects()...)
	}
	if slices.Contains(w.published, id) {
		w.failf("%v committed twice", id)
	}
	if n := len(w.published); n > 0 && w.published[n-1] >= id {
		w.failf("%v committed after %v", id, w.published[n-1])
	}
	w.published = append(w.published, id)
	w.stored[id] = objects
}

func (w *world) answerReserve(ok bool) {
	if w.reserve == 0 {
		return
	}
	limit := w.reserve
	w.reserve = 0
	if !ok {
		w.step(ReserveFailed{})
		return
	}
	w.limit = max(w.limit, limit)
	w.step(Reserved{limit})
}

// quiet lets everything behave until a checkpoint completes.
func (w *world) quiet() {
	if !w.running {
		for _, id := range sortedKeys(w.open) {
			w.settle(id)
		}
		w.start()
	}
	if w.m.run.failing || len(w.finished) > 0 || w.m.run.ended {
		return
	}
	before := len(w.published)
	for range 60 {
		w.now = w.now.Add(time.Second)
		w.step(Due{})
		w.answerReserve(true)
		for _, id := range w.m.Pending() {
			for _, task := range storyTasks {
				w.step(Acked{w.attempt, id, task, w.snapshot(id)})
			}
		}
		for _, id := range sortedKeys(w.open) {
			w.settle(id)
		}
		// The last checkpoint of the job may have landed before, and its outcome not been known.
		if len(w.published) > before || w.m.run.ended {
			return
		}
	}
	w.failf("no checkpoint completed within a quiet minute: %v", w.m)
}

func (w *world) step(ev Event) {
	w.note("", ev)
	for _, a := range w.m.Step(w.now, ev) {
		w.note("  > ", a)
		w.check(ev, a)
	}
	if n := len(w.m.Pending()); n > w.cfg.MaxConcurrent {
		w.failf("%d pending, at most %d", n, w.cfg.MaxConcurrent)
	}
	pins := map[job.CheckpointID]bool{}
	for id := range w.pending {
		pins[w.base[id]] = true
	}
	for _, id := range w.pins {
		pins[id] = true
	}
	if n := len(w.m.Retained()); n > w.cfg.Retained+len(pins) {
		w.failf("%d retained, at most %d and %d pinned", n, w.cfg.Retained, len(pins))
	}
	for _, id := range w.m.Retained() {
		if _, ok := w.stored[id]; !ok {
			w.failf("%v is retained and not in the store", id)
		}
	}
}

func (w *world) check(ev Event, a Action) {
	switch a := a.(type) {
	case Reserve:
		if w.reserve != 0 {
			w.failf("two reservations at once")
		}
		w.reserve = a.Limit
	case Trigger:
		if _, ok := w.triggered[a.ID]; ok {
			w.failf("%v triggered twice", a.ID)
		}
		if a.ID >= w.limit {
			w.failf("%v used and not reserved: below %v are", a.ID, w.limit)
		}
		if n := len(w.published); n > 0 && a.Committed > w.published[n-1] || a.Committed != w.m.Newest() {
			w.failf("%v says that %v has committed", a.ID, a.Committed)
		}
		for id, s := range w.saves {
			w.failf("%v begins while %v has savepoint %s", a.ID, id, s)
		}
		if a.Savepoint != nil {
			w.saves[a.ID] = a.Savepoint.ID
		}
		w.triggers++
		w.triggered[a.ID], w.base[a.ID], w.pending[a.ID] = a.Attempt, a.Committed, true
		w.inAck[a.ID] = map[string]bool{}
		w.reusable[a.ID] = slices.Clone(w.stored[a.Committed])
	case Answer:
		if acked, ok := ev.(Acked); a.Result == Accepted && ok {
			for _, o := range acked.Snapshot.Objects() {
				if w.released[o] {
					w.failf("%v accepted with released object %s", a.ID, o)
				}
				w.inAck[a.ID][o] = true
			}
		}
	case Publish:
		if len(a.Snapshots) != len(storyTasks) {
			w.failf("%v published with %d of %d tasks", a.ID, len(a.Snapshots), len(storyTasks))
		}
		for _, s := range a.Snapshots {
			for _, o := range s.Objects() {
				if w.released[o] {
					w.failf("%v published with released object %s", a.ID, o)
				}
			}
		}
		w.open[a.ID] = a.Snapshots
	case Resolve:
		if w.open[a.ID] == nil {
			w.failf("%v resolved and not open", a.ID)
		}
	case Complete:
		if !w.landed[a.ID] || w.stored[a.ID] == nil {
			w.failf("%v complete before it committed", a.ID)
		}
		if n := len(w.completes); n > 0 && w.completes[n-1] >= a.ID {
			w.failf("%v complete after %v", a.ID, w.completes[n-1])
		}
		w.completes = append(w.completes, a.ID)
		if s := w.saves[a.ID]; s != "" {
			if !w.saving[s] {
				w.failf("savepoint %s is taken, and was dropped", s)
			}
			delete(w.saving, s)
			delete(w.saves, a.ID)
		}
		delete(w.pending, a.ID)
		delete(w.inAck, a.ID)
	case DropSavepoint:
		if !w.saving[a.Savepoint.ID] {
			w.failf("savepoint %s is dropped, and is not on its way", a.Savepoint.ID)
		}
		delete(w.saving, a.Savepoint.ID)
		for id, s := range w.saves {
			if s == a.Savepoint.ID {
				if w.pending[id] || w.landed[id] {
					w.failf("savepoint %s is dropped, and its %v is not aborted", s, id)
				}
				delete(w.saves, id)
			}
		}
	case AbortCheckpoint:
		if a.Reason == ReasonSubsumed && w.saves[a.ID] != "" {
			w.failf("%v with savepoint %s is subsumed", a.ID, w.saves[a.ID])
		}
		if w.landed[a.ID] {
			w.failf("%v aborted after its commit", a.ID)
		}
		if w.open[a.ID] != nil {
			w.failf("%v aborted while its publication is open", a.ID)
		}
		w.aborts++
		delete(w.pending, a.ID)
		delete(w.inAck, a.ID)
	case Release:
		w.free(a.ID, a.Objects)
	case Discard:
		if slices.Contains(w.pins, a.ID) {
			w.failf("%v is discarded and pinned", a.ID)
		}
		delete(w.stored, a.ID)
		w.free(a.ID, a.Objects)
	case Reply:
		if !w.tokens[a.Token] {
			w.failf("token %d answered twice", a.Token)
		}
		delete(w.tokens, a.Token)
		if w.saving[fmt.Sprint(a.Token)] {
			w.failf("token %d is answered and its savepoint is open", a.Token)
		}
	case FailJob:
		w.fails++
	}
}

// free deletes objects. None may be in the store's checkpoints, in an open publication or in an
// accepted ack of a checkpoint on its way.
func (w *world) free(id job.CheckpointID, objects []string) {
	for _, o := range objects {
		for other, have := range w.stored {
			if slices.Contains(have, o) {
				w.failf("object %s of %v is deleted with %v", o, other, id)
			}
		}
		for other, snaps := range w.open {
			for _, s := range snaps {
				if slices.Contains(s.Objects(), o) {
					w.failf("object %s of %v, whose publication is open, is deleted with %v", o, other, id)
				}
			}
		}
		for other, have := range w.inAck {
			if have[o] && other != id {
				w.failf("object %s of an ack of %v is deleted with %v", o, other, id)
			}
		}
		w.released[o] = true
	}
}

// entry is formatted only when the test fails.
type entry struct {
	indent string
	what   fmt.Stringer
}

func (w *world) note(indent string, what fmt.Stringer) {
	if len(w.log) == 120 {
		w.log = append(w.log[:0], w.log[60:]...)
	}
	w.log = append(w.log, entry{indent, what})
}

func (w *world) failf(format string, args ...any) {
	w.t.Helper()
	for _, e := range w.log {
		w.t.Logf("%s%v", e.indent, e.what)
	}
	w.t.Fatalf(format, args...)
}

func sortedKeys[V any](m map[job.CheckpointID]V) []job.CheckpointID {
	out := make([]job.CheckpointID, 0, len(m))
	for k := range m {
		out = append(out, k)
	}
	slices.Sort(out)
	return out
}
