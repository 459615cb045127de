package cli

import (
	"context"
	"fmt"
	"text/tabwriter"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/rpc"
)

// progress says on stderr how a job fares: what happens as lines, and counts in a status line.
type progress struct {
	statusLine
	state coordinator.JobState
	last  map[string]int64
}

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
	if d.Job.State.Ended() || !p.due(now) {
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
	p.last = d.Job.Counters
	p.tell(fmt.Sprintf("%s  %s  %s", now.Format("15:04:05"), d.Job.State, text), now)
}

func (p *progress) rate(now map[string]int64, d time.Duration) string {
	before, ok := p.last["records_read"]
	if n := now["records_read"] - before; ok && n > 0 && d > 0 {
		return count(int64(float64(n)/d.Seconds())) + "/s"
	}
	return ""
}

// follow tells of a job until it has ended.
func (a *App) follow(ctx context.Context, jobs rpc.Jobs, ref string) (last coordinator.JobDetail, err error) {
	p := &progress{statusLine: statusLine{a: a, told: time.Now()}}
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
