package barrier

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

var seedFlag = flag.Uint64("seed", 0, "seed of the random test; 0 picks one")

// TestRandom feeds machines with whatever senders and a coordinator may do, in any order, and
// checks after every step what must always hold.
func TestRandom(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = rand.Uint64()
	}
	t.Logf("seed %d: repeat with -args -seed=%d", seed, seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	total, ends := 0, map[string]int{}
	for total < 100_000 {
		w := newWorld(t, seed, rng)
		total += w.run()
		for k, n := range w.ends {
			ends[k] += n
		}
	}
	t.Logf("%d steps, %v", total, ends)
	for _, k := range []string{"capture", "aborted", "cancelled", "overtaken"} {
		if ends[k] == 0 {
			t.Errorf("no checkpoint ended as %s", k)
		}
	}
}

// event is one thing that a channel delivers.
type event struct {
	kind record.ControlKind // 0: a record.
	id   job.CheckpointID
}

// world is one subtask with its senders.
type world struct {
	t    *testing.T
	seed uint64
	rng  *rand.Rand
	m    *Machine
	mode job.Mode
	in   []*sender
	log  []string

	top       job.CheckpointID // Ids are 1 to top.
	aborted   map[job.CheckpointID]bool
	ended     map[job.CheckpointID]bool // Captured or given up.
	last      job.CheckpointID          // Last action's.
	ends      map[string]int
	deepAbort bool // Aborts may come long before the barrier.
}

// sender is a channel as seen from its sending end.
type sender struct {
	events  []event
	next    int
	records int // Delivered.
	blocked bool
	closed  bool
	newest  job.CheckpointID         // Barrier or cancel-barrier.
	cut     map[job.CheckpointID]int // Records before the barrier, of barriers delivered.
}

func newWorld(t *testing.T, seed uint64, rng *rand.Rand) *world {
	n := 1 + rng.IntN(5)
	w := &world{
		t: t, seed: seed, rng: rng, m: New(n), mode: job.ExactlyOnce, top: job.CheckpointID(1 + rng.IntN(30)),
		aborted: map[job.CheckpointID]bool{}, ended: map[job.CheckpointID]bool{}, ends: map[string]int{},
		deepAbort: rng.IntN(4) == 0,
	}
	if rng.IntN(2) == 0 {
		w.mode = job.AtLeastOnce
	}
	unruly := rng.IntN(3) // 0: every barrier comes; 1: some are cancelled; 2: some are missing.
	for range n {
		s := &sender{cut: map[job.CheckpointID]int{}}
		closeAfter := job.CheckpointID(1 + rng.IntN(2*int(w.top)))
		for id := job.CheckpointID(1); id <= w.top; id++ {
			for range rng.IntN(4) {
				s.events = append(s.events, event{})
			}
			switch r := rng.IntN(10); {
			case unruly >= 1 && r == 0:
				s.events = append(s.events, event{record.CancelBarrier, id})
			case unruly >= 2 && r == 1:
			default:
				s.events = append(s.events, event{record.Barrier, id})
				if rng.IntN(20) == 0 {
					s.events = append(s.events, event{record.Barrier, id}) // Repeated.
				}
				if rng.IntN(20) == 0 {
					s.events = append(s.events, event{record.CancelBarrier, id})
				}
			}
			if id >= closeAfter {
				s.events = append(s.events, event{kind: record.Close})
				break
			}
		}
		w.in = append(w.in, s)
	}
	return w
}

func (w *world) fail(format string, args ...any) {
	w.t.Helper()
	tail := w.log[max(0, len(w.log)-40):]
	w.t.Fatalf("seed %d: %s\n%d channels, %s; the last steps:\n%s\nstate %v", w.seed, fmt.Sprintf(format, args...),
		len(w.in), w.mode, strings.Join(tail, "\n"), w.m)
}

// run delivers everything and returns the number of steps.
func (w *world) run() int {
	for {
		var ready []int
		left := false
		for i, s := range w.in {
			if s.next == len(s.events) {
				continue
			}
			left = true
			if !s.blocked {
				ready = append(ready, i)
			}
		}
		switch {
		case w.rng.IntN(12) == 0:
			w.abort()
		case len(ready) > 0:
			w.deliver(ready[w.rng.IntN(len(ready))])
		case left:
			w.stuck()
		default:
			w.finish()
			return len(w.log)
		}
	}
}

// stuck is when every channel that has something is blocked: legal only while a channel that ended
// without Close owes a barrier, and the coordinator's timeout ends it.
func (w *world) stuck() {
	id := w.last + 1
	for !slices.ContainsFunc(w.in, func(s *sender) bool { _, ok := s.cut[id]; return ok && s.blocked }) {
		if id++; id > w.top {
			w.fail("channels are blocked and no checkpoint holds them")
		}
	}
	if !slices.ContainsFunc(w.in, func(s *sender) bool {
		_, ok := s.cut[id]
		return !ok && !s.closed && s.next == len(s.events)
	}) {
		w.fail("deadlock: %v can complete and does not", id)
	}
	w.aborted[id] = true
	w.act(fmt.Sprintf("abort %v", id), w.m.Abort(id))
}

func (w *world) abort() {
	id := w.last + 1 + job.CheckpointID(w.rng.IntN(3))
	if w.deepAbort {
		id = 1 + job.CheckpointID(w.rng.IntN(int(w.top)))
	}
	if !w.ended[id] {
		w.aborted[id] = true
	}
	w.act(fmt.Sprintf("abort %v", id), w.m.Abort(id))
}

func (w *world) deliver(ch int) {
	s := w.in[ch]
	e := s.events[s.next]
	s.next++
	switch e.kind {
	case 0:
		s.records++
		w.log = append(w.log, fmt.Sprintf("%d: record", ch))
	case record.Barrier:
		if e.id > s.newest {
			s.newest, s.cut[e.id] = e.id, s.records
		}
		w.act(fmt.Sprintf("%d: barrier %v", ch, e.id), w.m.Barrier(ch, record.Control{Kind: record.Barrier, Checkpoint: e.id, Mode: w.mode}))
	case record.CancelBarrier:
		s.newest = max(s.newest, e.id)
		w.act(fmt.Sprintf("%d: cancel %v", ch, e.id), w.m.Cancel(ch, e.id))
	case record.Close:
		s.closed = true
		w.act(fmt.Sprintf("%d: close", ch), w.m.Close(ch))
	}
}

// act notes a step and checks what the machine said to it.
func (w *world) act(step string, actions []Action) {
	w.log = append(w.log, step)
	for _, a := range actions {
		w.log = append(w.log, "  > "+a.String())
		switch a := a.(type) {
		case Block:
			if w.mode == job.AtLeastOnce {
				w.fail("at-least-once mode blocks")
			}
			if w.in[a.Channel].blocked {
				w.fail("channel %d is blocked twice", a.Channel)
			}
			w.in[a.Channel].blocked = true
		case Unblock:
			s := w.in[a.Channel]
			if !s.blocked {
				w.fail("channel %d is unblocked and was not blocked", a.Channel)
			}
			if !w.ended[s.newest] {
				w.fail("channel %d is unblocked while %v holds it", a.Channel, s.newest)
			}
			s.blocked = false
		case Capture:
			w.captured(a.Barrier.Checkpoint)
		case GiveUp:
			w.gaveUp(a.Checkpoint, a.Reason)
		}
	}
	w.check()
}

// end checks that the barriers and cancel-barriers of the outputs ascend, each at most once.
func (w *world) end(id job.CheckpointID) {
	if id <= w.last {
		w.fail("%v ends behind %v", id, w.last)
	}
	w.last = id
	w.ended[id] = true
}

func (w *world) captured(id job.CheckpointID) {
	w.end(id)
	w.ends["capture"]++
	if w.aborted[id] {
		w.fail("%v is captured though it was aborted", id)
	}
	for ch, s := range w.in {
		cut, ok := s.cut[id]
		switch {
		case s.closed:
		case !ok:
			w.fail("%v is captured, channel %d has not delivered it", id, ch)
		case w.mode == job.ExactlyOnce && s.records != cut:
			w.fail("%v is captured with %d records of channel %d, the barrier is behind %d", id, s.records, ch, cut)
		case s.records < cut:
			w.fail("%v is captured without all records of channel %d", id, ch)
		}
	}
}

func (w *world) gaveUp(id job.CheckpointID, reason string) {
	w.end(id)
	w.ends[strings.Fields(reason)[0]]++
	if w.aborted[id] {
		return
	}
	for _, s := range w.in {
		if _, ok := s.cut[id]; !ok && s.newest >= id {
			return // Cancelled, or passed.
		}
	}
	w.fail("%v is given up without a reason", id)
}

// check looks for what should have ended by now.
func (w *world) check() {
	for id := w.last + 1; id <= w.top; id++ {
		all, some, lost := true, false, w.aborted[id]
		for _, s := range w.in {
			_, ok := s.cut[id]
			some = some || ok
			all = all && (ok || s.closed)
			lost = lost || !ok && s.newest >= id
		}
		if some && (all || lost) {
			w.fail("%v neither ended nor can it wait for anything", id)
		}
		if some {
			break // Newer ones wait for this one.
		}
	}
	if len(w.m.aborted) > maxAborted || len(w.m.pending) > int(w.top) {
		w.fail("memory grows")
	}
	if w.mode == job.ExactlyOnce && len(w.m.pending) > 1 {
		w.fail("two checkpoints are being aligned")
	}
}

// finish checks the end: a closed or exhausted sender holds nobody for ever.
func (w *world) finish() {
	open := slices.ContainsFunc(w.in, func(s *sender) bool { return !s.closed })
	for ch, s := range w.in {
		if s.blocked && !open {
			w.fail("channel %d is blocked at the end", ch)
		}
	}
	// The coordinator's timeout frees the rest.
	for id := w.last + 1; id <= w.top; id++ {
		if !w.ended[id] {
			w.aborted[id] = true
			w.act(fmt.Sprintf("abort %v", id), w.m.Abort(id))
		}
	}
	for ch, s := range w.in {
		if s.blocked {
			w.fail("channel %d is blocked at the end", ch)
		}
	}
	if len(w.m.pending) > 0 {
		w.fail("a checkpoint is pending at the end")
	}
}
