package cli

import (
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/rpc"
)

func (a *App) submitCommand() *cobra.Command {
	c := a.newClient()
	var r request
	var s coordinator.Submission
	var wait bool
	a.jobFlags(&c.options, &r)
	c.text(&r.name, "name", "NAME", "of the job (default: that of the program)").flag = true
	c.yesNo(&s.Fresh, "fresh", "start from nothing, not from the newest checkpoint of an earlier job of that name").flag = true
	a.fromFlags(&c.options, &r.from)
	c.yesNo(&r.overwrite, "overwrite", "let sinks overwrite output that they do not know of").flag = true
	c.text(&s.RequestID, "request-id", "ID", "repeating a submission with the same id gives the same job").flag = true
	c.yesNo(&wait, "wait", "follow the job until it has ended; the exit code tells how").flag = true
	return a.ask(&cobra.Command{Use: "submit NAME", Short: "starts a program on a cluster and prints the job's id"}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		var err error
		if s.Spec, err = a.spec(args[0], r); err != nil {
			return err
		}
		s.Overwrite = r.overwrite
		if err := r.from.into(&s); err != nil {
			return err
		}
		res, err := jobs.Submit(ctx, s)
		if err != nil {
			return err
		}
		a.notes(res)
		if !wait {
			return write(a.Stdout, c.format, viewSubmitted(res), func(w *tabwriter.Writer) { fmt.Fprintln(w, res.Job.ID) })
		}
		if c.format == asTable {
			fmt.Fprintln(a.Stdout, res.Job.ID)
		}
		d, err := a.follow(ctx, jobs, string(res.Job.ID))
		if err != nil {
			return err
		}
		return a.ended(d, c.format)
	})
}

// notes says what the user should know of a submission.
func (a *App) notes(s coordinator.Submitted) {
	for _, n := range s.Notes {
		fmt.Fprintln(a.Stderr, n)
	}
}
