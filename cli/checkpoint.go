package cli

import (
	"context"
	"fmt"
	"strconv"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
)

func (a *App) checkpointCommand() *cobra.Command {
	return a.group(
		&cobra.Command{Use: "checkpoint", Short: "lists, triggers, shows and verifies the checkpoints of a job"},
		a.checkpointListCommand(), a.checkpointTriggerCommand(), a.checkpointShowCommand(), a.checkpointVerifyCommand(),
	)
}

func (a *App) checkpointListCommand() *cobra.Command {
	c := a.newClient()
	return a.ask(&cobra.Command{Use: "list JOB", Short: "lists checkpoints, newest first"}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		list, err := jobs.ListCheckpoints(ctx, args[0])
		if err != nil {
			return err
		}
		return write(a.Stdout, c.format, views(list, viewCheckpoint), func(w *tabwriter.Writer) { checkpointTable(w, list...) })
	})
}

func checkpointTable(w *tabwriter.Writer, list ...coordinator.Checkpoint) {
	row(w, "ID", "STATE", "MODE", "TRIGGERED", "DURATION", "SIZE", "TASKS", "REASON")
	for _, p := range list {
		state := string(p.State)
		if p.Final {
			state += ", final"
		}
		row(w, uint64(p.ID), state, p.Mode, clock(p.Triggered), short(p.Duration), size(p.Bytes), fmt.Sprintf("%d/%d", p.Acknowledged, p.Tasks), firstLine(p.Reason))
	}
}

func (a *App) checkpointTriggerCommand() *cobra.Command {
	c := a.newClient()
	var o coordinator.TriggerOptions
	c.yesNo(&o.Full, "full", "one that builds on no other checkpoint").flag = true
	c.yesNo(&o.Incremental, "incremental", "one that builds on another checkpoint, or none at all").flag = true
	return a.ask(&cobra.Command{Use: "trigger JOB", Short: "takes a checkpoint now and waits for it"}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		p, err := jobs.TriggerCheckpoint(ctx, args[0], o)
		if err != nil {
			return err
		}
		return write(a.Stdout, c.format, viewCheckpoint(p), func(w *tabwriter.Writer) { checkpointTable(w, p) })
	})
}

func (a *App) checkpointShowCommand() *cobra.Command {
	c := a.newClient()
	var id job.CheckpointID
	return a.ask(&cobra.Command{
		Use: "show JOB [ID]", Short: "shows all about a checkpoint, by default the newest completed one",
	}, c, func(ctx context.Context, jobs *rpc.Client, args []string) error {
		if len(args) > 1 {
			n, err := strconv.ParseUint(args[1], 10, 64)
			if err != nil || n == 0 {
				return usage("checkpoint show", fmt.Sprintf("%q is not the number of a checkpoint", args[1]))
			}
			id = job.CheckpointID(n)
		}
		p, err := jobs.GetCheckpoint(ctx, args[0], id)
		if err != nil {
			return err
		}
		return write(a.Stdout, c.format, viewCheckpointDetail(p), func(w *tabwriter.Writer) {
			checkpointTable(w, p.Checkpoint)
			if len(p.Operators) > 0 {
				fmt.Fprintln(w)
				row(w, "OPERATOR", "PARALLELISM", "ENTRIES", "SIZE")
				for _, o := range p.Operators {
					row(w, o.Name, o.Parallelism, count(o.Entries), size(o.Bytes))
				}
			}
			if len(p.Tasks) > 0 {
				fmt.Fprintln(w)
				row(w, "TASK", "TASKMANAGER", "START", "ALIGN", "SYNC", "ASYNC", "UPLOAD", "SIZE")
				for _, t := range p.Tasks {
					row(w, t.Task, t.Worker, short(t.Stats.Start), short(t.Stats.Align), short(t.Stats.Sync), short(t.Stats.Async), short(t.Stats.Upload), size(t.Stats.Bytes))
				}
			}
		})
	})
}
