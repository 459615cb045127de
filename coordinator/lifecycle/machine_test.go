package lifecycle

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/cairnstream/cairn/job"
)

// TestStories runs testdata/*.txt. Each holds `init` with settings, then `do` blocks, an event a line:
//
//	begin | slots | cancel | persisted | persist-failed | restore-refused | advance 5s (Due whenever NextDue says)
//	placed w1 w2 (enum/0 and read/0 on the first, read/1 and sum/0 on the second) | short TEXT
//	ready|running|end-of-data|finished|cancelled TASK... (or all) | failed TASK CLASS
//	lost w1 | lost-spared w1 | checkpoint | checkpoints-failed CLASS
//	up w1 w2: placed, persisted, all ready, all running
//
// A report of another attempt than the newest ends in @a1.
// Run with -rewrite to accept new output; read the diff before committing it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "init":
				s = newStory(t, d)
			case "do":
				for line := range strings.Lines(d.Input) {
					fmt.Fprintf(&s.out, "%v %s\n", s.now.Sub(zero), strings.TrimSpace(line))
					s.do(t, strings.TrimSpace(line))
				}
			default:
				t.Fatalf("unknown command %q", d.Cmd)
			}
			fmt.Fprintln(&s.out, s.m)
			out := s.out.String()
			s.out.Reset()
			return out
		})
	})
}

var (
	zero         = time.Unix(0, 0)
	storyTasks   = []job.Task{{Vertex: "enum"}, {Vertex: "read"}, {Vertex: "read", Subtask: 1}, {Vertex: "sum"}}
	storyReaders = map[job.Task][]job.Task{storyTasks[0]: storyTasks[1:3]}
)

func storyConfig(s job.Settings) Config {
	return Config{
		Topology:    Topology{Tasks: storyTasks, Enumerators: storyTasks[:1], Readers: storyReaders},
		Checkpoints: s.CheckpointMode != job.Off, Strategy: s.RestartStrategy, Initial: s.RestartInitial, Max: s.RestartMax,
	}
}

type story struct {
	m   *Machine
	now time.Time
	out strings.Builder
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	s := &story{now: zero}
	settings := job.DefaultSettings()
	var attempt job.Attempt
	var failedAt time.Time
	jitter := 0.5
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "attempt":
			attempt, failedAt = job.Attempt(number(t, a.Vals[0])), zero
		case "jitter":
			jitter, _ = strconv.ParseFloat(a.Vals[0], 64)
		default:
			if err := settings.Apply(map[string]string{a.Key: a.Vals[0]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	cfg := storyConfig(settings)
	cfg.Jitter = func() float64 { return jitter }
	s.m = New(cfg, attempt, failedAt)
	return s
}

func (s *story) do(t *testing.T, line string) {
	f := strings.Fields(line)
	attempt := s.m.Attempt()
	if last := f[len(f)-1]; strings.HasPrefix(last, "@a") {
		attempt, f = job.Attempt(number(t, last[2:])), f[:len(f)-1]
	}
	switch f[0] {
	case "begin":
		s.step(Begin{})
	case "slots":
		s.step(SlotsChanged{})
	case "cancel":
		s.step(Cancel{})
	case "persisted":
		s.step(Persisted{attempt})
	case "persist-failed":
		s.step(PersistFailed{attempt, "store away"})
	case "restore-refused":
		s.step(RestoreRefused{attempt, job.Failure{Class: job.ClassRefused, Message: "manifest damaged"}})
	case "short":
		s.step(Placed{Shortfall: strings.Join(f[1:], " ")})
	case "placed":
		s.step(Placed{Placements: placements(f[1], f[2])})
	case "up":
		s.step(Placed{Placements: placements(f[1], f[2])})
		s.step(Persisted{s.m.Attempt()})
		for _, state := range []job.TaskState{job.TaskReady, job.TaskRunning} {
			for _, task := range storyTasks {
				s.step(TaskChanged{Attempt: s.m.Attempt(), Task: task, State: state})
			}
		}
	case "failed":
		s.step(TaskChanged{attempt, taskNamed(t, f[1]), job.TaskFailed, &job.Failure{Class: job.Class(f[2]), Message: "boom"}})
	case "ready", "running", "end-of-data", "finished", "cancelled":
		tasks := storyTasks
		if f[1] != "all" {
			tasks = nil
			for _, name := range f[1:] {
				tasks = append(tasks, taskNamed(t, name))
			}
		}
		for _, tk := range tasks {
			s.step(TaskChanged{Attempt: attempt, Task: tk, State: job.TaskState(f[0])})
		}
	case "lost", "lost-spared":
		s.step(WorkerLost{job.WorkerID(f[1]), "the stream broke", f[0] == "lost-spared"})
	case "checkpoint":
		s.step(CheckpointCompleted{attempt})
	case "checkpoints-failed":
		s.step(CheckpointsFailed{attempt, job.Failure{Class: job.Class(f[1]), Message: "too many"}})
	case "advance":
		d, err := time.ParseDuration(f[1])
		if err != nil {
			t.Fatal(err)
		}
		end := s.now.Add(d)
		for {
			at, ok := s.m.NextDue()
			if !ok || at.After(end) {
				break
			}
			if at.After(s.now) {
				s.now = at
			}
			s.step(Due{})
		}
		s.now = end
	default:
		t.Fatalf("unknown event %q", line)
	}
}

func (s *story) step(ev Event) {
	for _, a := range s.m.Step(s.now, ev) {
		fmt.Fprintf(&s.out, "  %v> %v\n", s.now.Sub(zero), a)
	}
}

func placements(first, second string) []job.Placement {
	on := []string{first, first, second, second}
	var out []job.Placement
	for i, t := range storyTasks {
		out = append(out, job.Placement{Task: t, Worker: job.WorkerID(on[i])})
	}
	return out
}

func number(t *testing.T, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func taskNamed(t *testing.T, s string) job.Task {
	v, n, _ := strings.Cut(s, "/")
	return job.Task{Vertex: v, Subtask: int(number(t, n))}
}
