package cli

import (
	"context"
	"fmt"
	"os"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/rpc"
)

// takenView is a savepoint that a JobManager knows.
type takenView struct {
	ID         string    `json:"id"`
	URL        string    `json:"url"`
	Job        string    `json:"job"`
	Name       string    `json:"name"`
	Checkpoint uint64    `json:"checkpoint"`
	Taken      time.Time `json:"taken"`
	Bytes      int64     `json:"bytes"`
	Stopped    bool      `json:"stopped,omitempty"`
}

func viewTaken(s coordinator.Savepoint) takenView {
	return takenView{s.ID, s.URL, string(s.Job), s.Name, uint64(s.Checkpoint), s.Taken, s.Bytes, s.Stopped}
}

func (a *App) savepointTakeCommand() *cobra.Command {
	c := a.newClient()
	var o coordinator.SavepointOptions
	c.text(&o.To, "to", "URL", "folder of the savepoint (default: the cluster's place for savepoints)").flag = true
	return a.ask(&cobra.Command{Use: "take JOB", Short: "takes a savepoint of a running job and prints its URL"}, c,
		func(ctx context.Context, jobs *rpc.Client, args []string) error {
			return a.takeSavepoint(ctx, c, jobs, args[0], o)
		})
}

// takeSavepoint takes a savepoint and prints its URL.
func (a *App) takeSavepoint(ctx context.Context, c *client, jobs *rpc.Client, ref string, o coordinator.SavepointOptions) error {
	if o.To != "" {
		loc, err := placeOf(o.To)
		if err != nil {
			return usage("--to", err.Error())
		}
		o.To = loc.String()
	}
	s, err := jobs.TakeSavepoint(ctx, ref, o)
	if err != nil {
		return err
	}
	return write(a.Stdout, c.format, viewTaken(s), func(w *tabwriter.Writer) { fmt.Fprintln(w, s.URL) })
}

func (a *App) savepointDeleteCommand() *cobra.Command {
	c := a.newClient()
	return a.ask(&cobra.Command{Use: "delete ID", Short: "deletes a savepoint that a JobManager has on record, objects and all"}, c,
		func(ctx context.Context, jobs *rpc.Client, args []string) error {
			s, err := jobs.DeleteSavepoint(ctx, args[0])
			if err != nil {
				return err
			}
			return write(a.Stdout, c.format, viewTaken(s), func(w *tabwriter.Writer) { fmt.Fprintf(w, "%s deleted: %s\n", s.ID, s.URL) })
		})
}

// takenSavepoints lists what a JobManager has on record.
func (a *App) takenSavepoints(ctx context.Context, c *client, ref string) error {
	jobs, err := rpc.NewClient(rpc.ClientConfig{JobManagers: c.addrs})
	if err != nil {
		return err
	}
	defer jobs.Close()
	list, err := jobs.ListSavepoints(ctx, ref)
	if err != nil {
		return err
	}
	return write(a.Stdout, c.format, views(list, viewTaken), func(w *tabwriter.Writer) {
		row(w, "ID", "JOB", "CHECKPOINT", "TAKEN", "SIZE", "STOPPED", "URL")
		for _, s := range list {
			stopped := ""
			if s.Stopped {
				stopped = "yes"
			}
			row(w, s.ID, fmt.Sprintf("%s (%s)", s.Name, s.Job), uint64(s.Checkpoint), clock(s.Taken), size(s.Bytes), stopped, s.URL)
		}
	})
}

// urlOfSavepoint asks a JobManager where the savepoint with an id is; any other text it leaves alone.
func (a *App) urlOfSavepoint(ctx context.Context, text string) (string, error) {
	if !strings.HasPrefix(text, "sp-") || strings.ContainsAny(text, `/\`) {
		return text, nil
	}
	if _, err := os.Stat(text); err == nil {
		return text, nil
	}
	addrs := []string{defaultJobManager}
	for _, kv := range a.Environ {
		if v, ok := strings.CutPrefix(kv, envPrefix+"JOBMANAGER="); ok && v != "" {
			addrs = strings.Split(v, ",")
		}
	}
	jobs, err := rpc.NewClient(rpc.ClientConfig{JobManagers: addrs})
	if err != nil {
		return "", err
	}
	defer jobs.Close()
	list, err := jobs.ListSavepoints(ctx, "")
	if err != nil {
		return "", err
	}
	for _, s := range list {
		if s.ID == text {
			return s.URL, nil
		}
	}
	return "", &codeError{code: NotFound, err: fmt.Errorf("the JobManager has no savepoint %q on record, and there is no folder of that name", text)}
}
