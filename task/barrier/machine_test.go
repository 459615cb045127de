package barrier

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
)

// Each file of testdata tells one story. Run with -rewrite to accept new output, and read the diff.
//
//	init channels=N
//	barrier ch=C id=I [mode=at-least-once]
//	cancel ch=C id=I
//	abort id=I
//	abort-range from=I to=J
//	close ch=C
//	trigger id=I
func TestStories(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		var m *Machine
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			number := func(name string) (n int) {
				d.ScanArgs(t, name, &n)
				return n
			}
			control := func() record.Control {
				mode := string(job.ExactlyOnce)
				d.MaybeScanArgs(t, "mode", &mode)
				return record.Control{Kind: record.Barrier, Checkpoint: job.CheckpointID(number("id")), Mode: job.Mode(mode)}
			}
			var out []Action
			switch d.Cmd {
			case "init":
				m = New(number("channels"))
			case "barrier":
				out = m.Barrier(number("ch"), control())
			case "cancel":
				out = m.Cancel(number("ch"), job.CheckpointID(number("id")))
			case "abort":
				out = m.Abort(job.CheckpointID(number("id")))
			case "abort-range":
				for id := number("from"); id <= number("to"); id++ {
					out = append(out, m.Abort(job.CheckpointID(id))...)
				}
				var b strings.Builder
				for _, a := range out {
					fmt.Fprintf(&b, "> %v\n", a)
				}
				fmt.Fprintf(&b, "%d remembered, %v to %v\n", len(m.aborted), m.aborted[0], m.aborted[len(m.aborted)-1])
				return b.String()
			case "close":
				out = m.Close(number("ch"))
			case "trigger":
				out = m.Trigger(control())
			default:
				d.Fatalf(t, "unknown command %q", d.Cmd)
			}
			var b strings.Builder
			for _, a := range out {
				fmt.Fprintf(&b, "> %v\n", a)
			}
			state := m.String()
			if len(m.aborted) > 10 {
				state, _, _ = strings.Cut(state, " aborted=")
				state += fmt.Sprintf(" aborted=[%d of them]", len(m.aborted))
			}
			fmt.Fprintln(&b, state)
			return b.String()
		})
	})
}
