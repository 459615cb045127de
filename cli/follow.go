package cli

import (
	"context"
	"fmt"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/rpc"
)

// progress says on stderr how a job fares: what happens as lines, and counts in a line that overwrites itself on a
// terminal, or every few seconds elsewhere.
type progress struct {
	a     *App
	width int // Of the line to be overwritten.
	state coordinator.JobState
	told  time.Time
	last  map[string]int64
}

// every is how often counts are told where they cannot be overwritten.
const every = 5 * time.Second

func (p *progress) show(d coordinator.JobDetail) {
	for _, e := range d.Events {
		p.line(fmt.Sprintf("%s  %s: %s", e.Time.Local().Format("15:04:05"), e.Kind, e.Message))
	}
	if d.Job.State != p.state {
		p.state = d.Job.State
		if len(d.Events) == 0 {
			text := fmt.Sprintf("%s  job %q is %s", time.Now().Format("15:04:05"), d.Job.Name, d.Job.State)
			if d.Job.Reason != "" {
				text += ": " + firstLine(d.Job.Reason)
			}
			p.line(text)
		}
	}
	now := time.Now()
	interval := every
	if p.a.Terminal {
		interval = 200 * time.Millisecond
	}
	if d.Job.State.Ended() || now.Sub(p.told) < interval {
		return
	}
	text := jobCounters(d.Job.Counters)
	if text == "" {
		return
	}
	if rate := p.rate(d.Job.Counters, now.Sub(p.told)); rate != "" {
		text += ", " + rate
	}
	if d.Job.Checkpoint > 0 {
		text += fmt.Sprintf(", checkpoint %d", uint64(d.Job.Checkpoint))
	}
	p.last, p.told = d.Job.Counters, now
	text = fmt.Sprintf("%s  %s  %s", now.Format("15:04:05"), d.Job.State, text)
	if !p.a.Terminal {
		fmt.Fprintln(p.a.Stderr, text)
		return
	}
	p.erase()
	fmt.Fprint(p.a.Stderr, text)
	p.width = len(text)
}

func (p *progress) rate(now map[string]int64, d time.Duration) string {
	before, ok := p.last["records_read"]
	if n := now["records_read"] - before; ok && n > 0 && d > 0 {
		return count(int64(float64(n)/d.Seconds())) + "/s"
	}
	return ""
}

// line prints what stays.
func (p *progress) line(text string) {
	p.erase()
	fmt.Fprintln(p.a.Stderr, text)
}

func (p *progress) erase() {
	if p.width > 0 {
		fmt.Fprintf(p.a.Stderr, "\r%s\r", strings.Repeat(" ", p.width))
		p.width = 0
	}
}

// follow tells of a job until it has ended.
func (a *App) follow(ctx context.Context, jobs rpc.Jobs, ref string) (last coordinator.JobDetail, err error) {
	p := &progress{a: a, told: time.Now()}
	defer p.erase()
	err = jobs.Watch(ctx, ref, func(d coordinator.JobDetail) error {
		p.show(d)
		last = d
		return nil
	})
	if err == nil && !last.Job.State.Ended() {
		err = fmt.Errorf("the JobManager no longer tells of job %q", ref)
	}
	return last, err
}

// ended prints how a job ended and makes that the exit code.
func (a *App) ended(d coordinator.JobDetail, format string) error {
	err := write(a.Stdout, format, viewDetail(d), func(w *tabwriter.Writer) { summary(w, d) })
	if err != nil {
		return err
	}
	return outcome(d.Job)
}

// summary says what a job did.
func summary(w *tabwriter.Writer, d coordinator.JobDetail) {
	j := d.Job
	field(w, "Job", fmt.Sprintf("%s (%s)", j.Name, j.ID))
	field(w, "State", j.State)
	if !j.Started.IsZero() && !j.Ended.IsZero() {
		field(w, "Time", short(j.Ended.Sub(j.Started)))
	}
	field(w, "Counters", jobCounters(j.Counters))
	if late := j.Counters["late_records"]; late > 0 {
		field(w, "Late", fmt.Sprintf("%s records were dropped: they came after their window was complete", count(late)))
	}
	if j.Checkpoint > 0 {
		field(w, "Checkpoint", fmt.Sprint(uint64(j.Checkpoint)))
	}
	if j.Restarts > 0 {
		field(w, "Restarts", j.Restarts)
	}
}
