package lifecycle

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cairnstream/cairn/job"
)

var (
	seedFlag  = flag.Uint64("seed", 0, "seed of the randomized test; 0 takes one from the clock")
	stepsFlag = flag.Int("steps", 100_000, "steps of the randomized test")
)

// TestRandom feeds random events and checks after each what must always hold: attempts only grow and
// are durable before they are deployed; no attempt is deployed while a task of another one is left;
// slots are freed exactly once; a job ends once; and when the world behaves, it runs or has ended.
func TestRandom(t *testing.T) {
	seed := *seedFlag
	if seed == 0 {
		seed = uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d: repeat with -run TestRandom -seed %d", seed, seed)
	w := &world{t: t, r: rand.New(rand.NewPCG(seed, 2)), now: zero}
	for w.jobs = 0; w.steps < *stepsFlag; w.jobs++ {
		w.life()
	}
	t.Logf("%d jobs: %v", w.jobs, w.ends)
	if w.ends[Finished] == 0 || w.ends[Cancelled] == 0 || w.ends[Failed] == 0 {
		t.Error("too little happened for the test to mean anything")
	}
}

type world struct {
	t     *testing.T
	r     *rand.Rand
	m     *Machine
	now   time.Time
	log   []entry
	steps int
	jobs  int
	ends  map[State]int

	holding  bool        // Slots.
	toPlace  bool        // Place was asked for.
	persist  job.Attempt // Persist was asked for.
	durable  job.Attempt
	deployed job.Attempt
	tasks    map[job.Task]job.TaskState // As the workers know them, of the deployed attempt.
	started  bool
	ended    State
}

// life leads one job to its end.
func (w *world) life() {
	settings := job.DefaultSettings()
	settings.RestartStrategy = []string{"exponential", "fixed-delay", "none"}[w.r.IntN(3)]
	if w.r.IntN(3) == 0 {
		settings.CheckpointMode = job.Off
	}
	*w = world{t: w.t, r: w.r, now: w.now, steps: w.steps, jobs: w.jobs, ends: w.ends}
	if w.ends == nil {
		w.ends = map[State]int{}
	}
	cfg := storyConfig(settings)
	cfg.Jitter = w.r.Float64
	w.m = New(cfg, 0, time.Time{})
	w.step(Begin{})
	for range w.r.IntN(300) {
		if w.ended != "" {
			break
		}
		w.random()
	}
	w.quiet()
	w.ends[w.ended]++
}

func (w *world) random() {
	w.now = w.now.Add(time.Duration(w.r.IntN(800)) * time.Millisecond)
	task := storyTasks[w.r.IntN(len(storyTasks))]
	switch n := w.r.IntN(1000); {
	case n < 250:
		w.step(Due{})
	case n < 330:
		w.place(w.r.IntN(2) == 0)
	case n < 350:
		w.step(SlotsChanged{})
	case n < 430:
		w.answerPersist(w.r.IntN(4) > 0)
	case n < 900:
		w.progress(task, false)
	case n < 915:
		w.report(task, job.TaskFailed, []job.Class{job.ClassUser, job.ClassInternal, job.ClassInternal, job.ClassRefused}[w.r.IntN(4)])
	case n < 925:
		w.lose(job.WorkerID([]string{"w1", "w2"}[w.r.IntN(2)]))
	case n < 935:
		w.step(CheckpointCompleted{w.m.Attempt()})
	case n < 940:
		w.step(CheckpointsFailed{w.m.Attempt(), job.Failure{Class: job.ClassInternal, Message: "too many"}})
	case n < 942:
		w.step(Cancel{})
	default:
		w.step(TaskChanged{Attempt: w.m.Attempt() - 1, Task: task, State: job.TaskFinished})
	}
}

// quiet behaves until the job has ended.
func (w *world) quiet() {
	for range 400 {
		if w.ended != "" {
			if w.holding {
				w.failf("ended and holds slots")
			}
			return
		}
		w.now = w.now.Add(time.Second)
		w.step(Due{})
		w.place(true)
		w.answerPersist(true)
		for _, task := range storyTasks {
			w.progress(task, true)
		}
	}
	w.failf("not ended after a quiet time: %v", w.m)
}

func (w *world) place(ok bool) {
	if !w.toPlace {
		return
	}
	if !ok {
		w.step(Placed{Shortfall: fmt.Sprintf("need %d", w.r.IntN(3))})
		if w.r.IntN(2) == 0 {
			w.step(SlotsChanged{})
		}
		return
	}
	w.toPlace, w.holding = false, true
	w.step(Placed{Placements: placements("w1", "w2")})
}

func (w *world) answerPersist(ok bool) {
	a := w.persist
	if a == 0 {
		return
	}
	w.persist = 0
	if ok {
		w.durable = a
		w.step(Persisted{a})
	} else {
		w.step(PersistFailed{a, "away"})
	}
}

// progress moves a task on by one state, as its worker would.
func (w *world) progress(task job.Task, ends bool) {
	state, ok := w.tasks[task]
	if !ok || state.Terminal() {
		return
	}
	switch {
	case !w.m.Live():
		w.report(task, job.TaskCancelled, "")
	case state == "":
		w.report(task, job.TaskReady, "")
	case state == job.TaskReady && w.started:
		w.report(task, job.TaskRunning, "")
	case state == job.TaskRunning && (ends || w.r.IntN(10) == 0):
		w.report(task, job.TaskEndOfData, "")
	case state == job.TaskEndOfData && w.m.State() == Finishing:
		w.report(task, job.TaskFinished, "")
	}
}

func (w *world) report(task job.Task, state job.TaskState, class job.Class) {
	if old, ok := w.tasks[task]; !ok || old.Terminal() {
		return
	}
	w.tasks[task] = state
	ev := TaskChanged{Attempt: w.deployed, Task: task, State: state}
	if class != "" {
		ev.Failure = &job.Failure{Class: class, Message: "random"}
	}
	w.step(ev)
}

func (w *world) lose(id job.WorkerID) {
	for _, p := range placements("w1", "w2") {
		if _, ok := w.tasks[p.Task]; ok && p.Worker == id {
			w.tasks[p.Task] = job.TaskCancelled
		}
	}
	w.step(WorkerLost{id, "random", w.r.IntN(2) == 0})
}

func (w *world) step(ev Event) {
	w.steps++
	w.note("", ev)
	for _, a := range w.m.Step(w.now, ev) {
		w.note("  > ", a)
		w.check(a)
	}
	switch s := w.m.State(); s {
	case Deploying, Running, Finishing:
		if !w.holding {
			w.failf("no slots in state %s", s)
		}
	case Created, WaitingForSlots, Finished, Cancelled, Failed:
		if w.holding {
			w.failf("slots are held in state %s", s)
		}
	}
}

func (w *world) check(a Action) {
	if w.ended != "" {
		w.failf("%v after the end", a)
	}
	switch a := a.(type) {
	case Place:
		if w.holding {
			w.failf("place while holding slots")
		}
		w.toPlace = true
	case Persist:
		if a.Attempt <= w.durable {
			w.failf("attempt %d after %d", a.Attempt, w.durable)
		}
		w.persist = a.Attempt
	case Deploy:
		if a.Attempt != w.durable || a.Attempt <= w.deployed {
			w.failf("deploy %d: durable is %d, deployed %d", a.Attempt, w.durable, w.deployed)
		}
		for task, state := range w.tasks {
			if !state.Terminal() {
				w.failf("deploy %d while %v of %d is %q", a.Attempt, task, w.deployed, state)
			}
		}
		w.deployed, w.started = a.Attempt, false
		w.tasks = map[job.Task]job.TaskState{}
		for _, p := range a.Placements {
			w.tasks[p.Task] = ""
		}
	case Start:
		for task, state := range w.tasks {
			if state != job.TaskReady || w.started {
				w.failf("start while %v is %q, started=%v", task, state, w.started)
			}
		}
		w.started = true
	case Freed:
		if !w.holding {
			w.failf("freed twice")
		}
		w.holding = false
	case Expel:
		for _, p := range placements("w1", "w2") {
			for _, id := range a.Workers {
				if _, ok := w.tasks[p.Task]; ok && p.Worker == id {
					w.tasks[p.Task] = job.TaskCancelled
				}
			}
		}
	case Conclude:
		w.ended = a.State
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
