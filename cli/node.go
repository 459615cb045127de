package cli

import (
	"context"
	"fmt"
	"runtime"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/rpc"
)

func (a *App) nodeCommand() *cobra.Command {
	c := a.newClient()
	list := a.ask(&cobra.Command{Use: "list", Short: "lists the TaskManagers"}, c, func(ctx context.Context, jobs *rpc.Client, _ []string) error {
		nodes, err := jobs.Nodes(ctx)
		if err != nil {
			return err
		}
		return write(a.Stdout, c.format, views(nodes, viewNode), func(w *tabwriter.Writer) {
			row(w, "ID", "HOST", "PID", "DATA", "FREE SLOTS", "TASKS", "PROGRAMS", "CONNECTED", "HEARTBEAT")
			for _, n := range nodes {
				row(w, n.Worker.ID, n.Worker.Host, n.Worker.PID, n.Worker.Data, fmt.Sprintf("%d/%d", n.FreeSlots, n.Worker.Slots),
					n.Tasks, len(n.Worker.Programs), ago(n.Connected), ago(n.Heartbeat))
			}
		})
	})
	return a.group(&cobra.Command{Use: "node", Short: "lists TaskManagers"}, list)
}

func (a *App) versionCommand() *cobra.Command {
	c := a.newClient()
	return a.ask(&cobra.Command{
		Use: "version", Short: "prints the version, and that of the JobManager if one is named",
	}, c, func(ctx context.Context, jobs *rpc.Client, _ []string) error {
		v := versionView{Version: Version, GoVersion: runtime.Version()}
		if c.given("jobmanager") {
			s, err := jobs.Version(ctx)
			if err != nil {
				return err
			}
			v.Server = viewServer(s)
		}
		return write(a.Stdout, c.format, v, func(w *tabwriter.Writer) {
			fmt.Fprintf(w, "%s\t%s (%s)\n", a.Name, v.Version, v.GoVersion)
			if s := v.Server; s != nil {
				fmt.Fprintf(w, "jobmanager\t%s (%s), cluster %s, epoch %d, leader %t %s\n", s.Version, s.GoVersion, s.Cluster, s.Epoch, s.Leader, s.LeaderAddress)
			}
		})
	})
}
