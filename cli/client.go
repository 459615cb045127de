package cli

import (
	"context"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/rpc"
)

// defaultJobManager is who is asked when nobody is named.
const defaultJobManager = "127.0.0.1:6123"

// client is what every command that asks a JobManager has.
type client struct {
	options
	addrs  []string
	format string
}

func (a *App) newClient() *client {
	c := &client{}
	c.fromFile = true
	c.addresses(&c.addrs, "jobmanager", "JobManagers to ask, comma separated (default "+defaultJobManager+")")
	c.output(&c.format)
	c.fill = func() {
		if len(c.addrs) == 0 {
			c.addrs = []string{defaultJobManager}
		}
	}
	return c
}

// ask makes a command of f, which asks a JobManager.
func (a *App) ask(cmd *cobra.Command, c *client, f func(ctx context.Context, jobs *rpc.Client, args []string) error) *cobra.Command {
	return a.command(cmd, &c.options, func(ctx context.Context, args []string) error {
		jobs, err := rpc.NewClient(rpc.ClientConfig{JobManagers: c.addrs})
		if err != nil {
			return err
		}
		defer jobs.Close()
		return f(ctx, jobs, args)
	})
}
