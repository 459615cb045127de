package cli

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"unicode"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
)

func (a *App) jobCommand() *cobra.Command {
	return a.group(
		&cobra.Command{Use: "job", Short: "lists, shows, watches, cancels and stops jobs; a JOB is an id, a unique prefix of one, or a name"},
		a.jobListCommand(), a.jobShowCommand(), a.jobWatchCommand(), a.jobCancelCommand(), a.jobStopCommand(),
	)
}

func (a *App) jobListCommand() *cobra.Command {
	c := a.newClient()
	return a.ask(&cobra.Command{Use: "list", Short: "lists jobs, newest first"}, c, func(ctx context.Context, jobs *rpc.Client, _ []string) error {
		list, err := jobs.List(ctx)
		if err != nil {
			return err
		}
		return write(a.Stdout, c.format, views(list, viewJob), func(w *tabwriter.Writer) {
			row(w, "ID", "NAME", "STATE", "ATTEMPT", "RESTARTS", "PARALLELISM", "CHECKPOINT", "SUBMITTED", "REASON")
			for _, j := range list {
				checkpoint := ""
				if j.Checkpoint > 0 {
					checkpoint = fmt.Sprint(uint64(j.Checkpoint))
				}
				row(w, j.ID, j.Name, j.State, j.Attempt, j.Restarts, j.Parallelism, checkpoint, clock(j.Submitted), firstLine(j.Reason))
			}
		})
	})
}

func firstLine(s string) string {
	s, _, _ = strings.Cut(s, "\n")
	return s
}

func (a *App) jobShowCommand() *cobra.Command {
	c := a.newClient()
	return a.ask(&cobra.Command{Use: "show JOB", Short: "shows all about a job"}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		d, err := jobs.Get(ctx, args[0])
		if err != nil {
			return err
		}
		return write(a.Stdout, c.format, viewDetail(d), func(w *tabwriter.Writer) { showJob(w, d) })
	})
}

func showJob(w *tabwriter.Writer, d coordinator.JobDetail) {
	j := d.Job
	field(w, "Job", fmt.Sprintf("%s (%s)", j.Name, j.ID))
	field(w, "Program", strings.TrimSpace(j.Program+" "+j.Version))
	field(w, "State", j.State)
	field(w, "Reason", j.Reason)
	field(w, "Attempt", fmt.Sprintf("%d, %d restarts", j.Attempt, j.Restarts))
	field(w, "Parallelism", fmt.Sprintf("%d, %d slots", j.Parallelism, j.Slots))
	field(w, "Submitted", clock(j.Submitted))
	field(w, "Started", clock(j.Started))
	field(w, "Ended", clock(j.Ended))
	if j.Checkpoint > 0 {
		field(w, "Checkpoint", strings.TrimRight(fmt.Sprintf("%d  %s", uint64(j.Checkpoint), ago(j.Checkpointed)), " "))
	}
	field(w, "Begun with", j.From)
	if d.Restored > 0 {
		field(w, "Restored from", fmt.Sprintf("checkpoint %d", uint64(d.Restored)))
	}
	if j.Failure != nil {
		text := j.Failure.String()
		if j.Failure.Stack != "" {
			text += "\n" + strings.ReplaceAll(strings.TrimRight(j.Failure.Stack, "\n"), "\t", "    ")
		}
		field(w, "Last failure", text)
	}
	field(w, "Counters", jobCounters(j.Counters))
	for _, k := range slices.Sorted(maps.Keys(d.Spec.Args)) {
		field(w, "Argument "+k, d.Spec.Args[k])
	}
	fmt.Fprintln(w)
	row(w, "VERTEX", "SUBTASK", "STATE", "TASKMANAGER", "COUNTERS")
	for _, v := range d.Vertices {
		for _, t := range v.Tasks {
			row(w, strings.Join(v.Operators, " > "), t.Task.Subtask, t.State, t.Worker, counters(t.Counters))
		}
	}
	showHotKeys(w, d.HotKeys)
	if len(d.Events) > 0 {
		fmt.Fprintln(w)
		row(w, "TIME", "EVENT", "MESSAGE")
		for _, e := range d.Events {
			row(w, clock(e.Time), e.Kind, e.Message)
		}
	}
}

// leastShare is less than what makes a key hot: of others -o json tells.
const leastShare = 0.005

func showHotKeys(w *tabwriter.Writer, list []job.HotKeys) {
	head := false
	for _, h := range list {
		for _, k := range h.Keys {
			share := h.Share(k)
			if share < leastShare {
				continue
			}
			if !head {
				head = true
				fmt.Fprintln(w)
				row(w, "OPERATOR", "HOT KEY", "SHARE")
			}
			row(w, h.Operator, printable(k.Key), fmt.Sprintf("%.1f%%", 100*share))
		}
	}
}

// printable is a text of somebody else's for a terminal: as it is, or quoted where it has more than letters in it.
func printable(s string) string {
	if s == "" || strings.ContainsFunc(s, func(r rune) bool { return !unicode.IsPrint(r) }) {
		return strconv.Quote(s)
	}
	return s
}

// jobCounters are the sums of a whole job for people: what was read from the sources and written to the sinks, and not
// what went from one task to the next.
func jobCounters(m map[string]int64) string {
	m = maps.Clone(m)
	delete(m, "records_in")
	delete(m, "records_out")
	return counters(m)
}

// counters are sums for people: those that count something.
func counters(m map[string]int64) string {
	var out []string
	for _, k := range slices.Sorted(maps.Keys(m)) {
		if m[k] != 0 {
			out = append(out, fmt.Sprintf("%s %s", strings.ReplaceAll(k, "_", " "), count(m[k])))
		}
	}
	return strings.Join(out, ", ")
}

func (a *App) jobWatchCommand() *cobra.Command {
	c := a.newClient()
	return a.ask(&cobra.Command{
		Use: "watch JOB", Short: "follows a job until it has ended, then shows it; the exit code tells how it ended",
	}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		d, err := a.follow(ctx, jobs, args[0])
		if err != nil {
			return err
		}
		return a.ended(d, c.format)
	})
}

func (a *App) jobStopCommand() *cobra.Command {
	c := a.newClient()
	o := coordinator.SavepointOptions{Stop: true}
	c.text(&o.To, "to", "URL", "folder of the savepoint (default: the cluster's place for savepoints)").flag = true
	return a.ask(&cobra.Command{
		Use: "stop JOB", Short: "ends a job with a savepoint, whose URL it prints; a failure leaves the job running",
	}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		return a.takeSavepoint(ctx, c, jobs, args[0], o)
	})
}

func (a *App) jobCancelCommand() *cobra.Command {
	c := a.newClient()
	var wait bool
	c.yesNo(&wait, "wait", "return when the job has ended").flag = true
	return a.ask(&cobra.Command{
		Use: "cancel JOB", Short: "ends a job; its checkpoints are kept unless its setting checkpoint.on-cancel is delete",
	}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		j, err := jobs.Cancel(ctx, args[0])
		if err != nil {
			return err
		}
		if wait {
			d, err := a.follow(ctx, jobs, string(j.ID))
			if err != nil {
				return err
			}
			j = d.Job
		}
		return write(a.Stdout, c.format, viewJob(j), func(w *tabwriter.Writer) { fmt.Fprintf(w, "%s %s\n", j.ID, j.State) })
	})
}
