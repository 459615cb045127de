package checkpoint

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
//	start a1 | stop a1 | eod src/0 | finish src/0 | request 1 [full | savepoint ID | stop ID] | forget | deleted c1 | pin c1 | unpin c1
//	ack c1 src/0 OBJECT... | decline c1 sum/0 CLASS | published c1 committed|failed|unknown [CLASS]
//	reserved 21 | reserve-failed | advance 10s (Due at every time that NextDue names)
//
// An ack, decline, eod or finish of another attempt than the running one ends in @a2.
// Run with -rewrite to accept new output; read the diff before committing it.
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var s *story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "init":
				s = newStory(t, d)
				return s.m.String() + "\n"
			case "do":
				for line := range strings.Lines(d.Input) {
					s.do(t, strings.TrimSpace(line))
				}
				fmt.Fprintln(&s.out, s.m)
				out := s.out.String()
				s.out.Reset()
				return out
			}
			t.Fatalf("unknown command %q", d.Cmd)
			return ""
		})
	})
}

var (
	storyTasks = []job.Task{{Vertex: "src", Subtask: 0}, {Vertex: "sum", Subtask: 0}, {Vertex: "sum", Subtask: 1}}
	storyEnums = storyTasks[:1]
)

type story struct {
	m        *Machine
	now      time.Time
	attempt  job.Attempt
	reserves bool // The story answers reservations itself.
	out      strings.Builder
}

func newStory(t *testing.T, d *datadriven.TestData) *story {
	settings := job.DefaultSettings()
	settings.CheckpointTimeout = time.Minute
	s := &story{now: time.Unix(0, 0)}
	var h History
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "reserves":
			s.reserves = true
		case "next":
			h.Next = parseID(t, a.Vals[0])
		case "committed", "discarding":
			for _, v := range a.Vals {
				id, objects, _ := strings.Cut(v, ":")
				c := Committed{parseID(t, id), strings.Split(objects, "+")}
				if a.Key == "committed" {
					h.Committed = append(h.Committed, c)
				} else {
					h.Discarding = append(h.Discarding, c)
				}
			}
		default:
			if err := settings.Apply(map[string]string{"checkpoint." + a.Key: a.Vals[0]}); err != nil {
				t.Fatal(err)
			}
		}
	}
	s.m = New(ConfigOf(settings), h)
	return s
}

func (s *story) do(t *testing.T, line string) {
	fmt.Fprintf(&s.out, "%v %s\n", s.now.Sub(time.Unix(0, 0)), line)
	f := strings.Fields(line)
	attempt := s.attempt
	if last := f[len(f)-1]; strings.HasPrefix(last, "@a") {
		attempt = job.Attempt(parseInt(t, last[2:]))
		f = f[:len(f)-1]
	}
	switch f[0] {
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
	case "start":
		s.attempt = job.Attempt(parseInt(t, f[1][1:]))
		s.step(Started{s.attempt, storyTasks, storyEnums})
	case "stop":
		s.step(Stopped{job.Attempt(parseInt(t, f[1][1:]))})
	case "ack":
		s.step(Acked{attempt, parseID(t, f[1]), parseTask(t, f[2]), snapshotOf(f[3:])})
	case "decline":
		s.step(Declined{attempt, parseID(t, f[1]), parseTask(t, f[2]), job.Failure{Class: job.Class(f[3]), Message: "no"}})
	case "eod":
		s.step(EndOfData{attempt, parseTask(t, f[1])})
	case "finish":
		s.step(Finished{attempt, parseTask(t, f[1])})
	case "published":
		ev := Published{ID: parseID(t, f[1]), Outcome: Outcome(f[2])}
		if ev.Outcome != PublishCommitted {
			ev.Failure = &job.Failure{Class: job.ClassExternal, Message: "store away"}
			if len(f) > 3 {
				ev.Failure = &job.Failure{Class: job.Class(f[3]), Message: "too large"}
			}
		}
		s.step(ev)
	case "request":
		r := Requested{Token: Token(parseInt(t, f[1]))}
		switch {
		case len(f) == 3:
			r.Full = true
		case len(f) == 4:
			r.Savepoint = &Savepoint{ID: f[3], Stop: f[2] == "stop"}
		}
		s.step(r)
	case "reserved":
		s.step(Reserved{job.CheckpointID(parseInt(t, f[1]))})
	case "reserve-failed":
		s.step(ReserveFailed{})
	case "deleted":
		s.step(Deleted{parseID(t, f[1])})
	case "forget":
		s.step(Forget{})
	case "pin":
		s.step(Pin{parseID(t, f[1])})
	case "unpin":
		s.step(Unpin{parseID(t, f[1])})
	default:
		t.Fatalf("unknown event %q", line)
	}
}

func (s *story) step(ev Event) {
	for _, a := range s.m.Step(s.now, ev) {
		if r, ok := a.(Reserve); ok && !s.reserves {
			s.step(Reserved(r))
			continue
		}
		fmt.Fprintf(&s.out, "  %v> %v\n", s.now.Sub(time.Unix(0, 0)), a)
	}
}

func snapshotOf(objects []string) Snapshot {
	var op job.SubtaskSnapshot
	for _, o := range objects {
		if o == "eod" {
			op.EndOfData = true
			continue
		}
		op.States = append(op.States, job.StateHandle{Name: o, Object: o})
	}
	return Snapshot{Operators: map[string]job.SubtaskSnapshot{"op": op}, Stats: job.CheckpointStats{Bytes: 10}}
}

func parseInt(t *testing.T, s string) uint64 {
	n, err := strconv.ParseUint(s, 10, 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func parseID(t *testing.T, s string) job.CheckpointID {
	return job.CheckpointID(parseInt(t, strings.TrimPrefix(s, "c")))
}

func parseTask(t *testing.T, s string) job.Task {
	v, n, _ := strings.Cut(s, "/")
	return job.Task{Vertex: v, Subtask: int(parseInt(t, n))}
}
