package cli

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/serve"
	"github.com/cairnstream/cairn/snapshot"
)

// defaultMinAge is far above what a checkpoint takes that is still on its way.
const defaultMinAge = time.Hour

type gcOptions struct {
	blob, cluster, job string
	dryRun, offline    bool
	minAge             time.Duration
}

func (a *App) gcCommand() *cobra.Command {
	c := a.newClient()
	g := &gcOptions{minAge: defaultMinAge}
	c.text(&g.blob, "blob", "URL", blobUsage)
	c.text(&g.cluster, "cluster", "NAME", "name of the cluster (default what the JobManager says; with --offline: default)")
	c.text(&g.job, "job", "JOB", "only what is of this job").flag = true
	c.yesNo(&g.dryRun, "dry-run", "show what would be deleted, and delete nothing").flag = true
	c.duration(&g.minAge, "min-age", "leave younger objects alone (default 1h)").flag = true
	c.yesNo(&g.offline, "offline", "no JobManager of the cluster runs: keep every checkpoint that has a manifest").flag = true
	return a.command(&cobra.Command{
		Use: "gc", Short: "deletes objects of checkpoints that nothing refers to",
		Long: `Deletes objects of checkpoints that nothing refers to, and takes back uploads that nobody completes.

A JobManager says which checkpoints are kept or on their way. Of a running job only what was written for checkpoints older
than its newest completed one is looked at; a checkpoint of a job that no JobManager knows is kept if it has a manifest. With --offline nobody is
asked, which is right only while no JobManager of the cluster runs. Savepoints are never looked at.`,
	}, &c.options, func(ctx context.Context, _ []string) error { return a.gc(ctx, c, g) })
}

type gcView struct {
	Cluster      string          `json:"cluster"`
	DryRun       bool            `json:"dry_run"`
	Offline      bool            `json:"offline"`
	Objects      int             `json:"objects"`
	Live         int             `json:"live"`
	Young        int             `json:"young"`
	Foreign      int             `json:"foreign"`
	Garbage      []garbageView   `json:"garbage"`
	GarbageBytes int64           `json:"garbage_bytes"`
	Uploads      []uploadView    `json:"uploads"`
	Deleted      int             `json:"deleted"`
	Missing      []string        `json:"missing"`
	Problems     []gcProblemView `json:"problems"`
}

type garbageView struct {
	Key        string    `json:"key"`
	Size       int64     `json:"size"`
	Modified   time.Time `json:"modified"`
	Job        string    `json:"job"`
	Checkpoint uint64    `json:"checkpoint"`
	Why        string    `json:"why"`
}

type uploadView struct {
	Key   string    `json:"key"`
	ID    string    `json:"id"`
	Begun time.Time `json:"begun"`
	Why   string    `json:"why"`
}

type gcProblemView struct {
	Job   string `json:"job"`
	Error string `json:"error"`
}

func (a *App) gc(ctx context.Context, c *client, g *gcOptions) error {
	if g.blob == "" {
		return usage("gc", "missing flag --blob URL (or CAIRN_BLOB): the cluster's blob store, as its JobManager has it")
	}
	loc, err := clusterStore(g.blob)
	if err != nil {
		return err
	}
	jobs, err := rpc.NewClient(rpc.ClientConfig{JobManagers: c.addrs, ElectionPatience: 2 * time.Second})
	if err != nil {
		return err
	}
	defer jobs.Close()
	o := snapshot.SweepOptions{MinAge: g.minAge, Now: time.Now(), Job: job.ID(g.job)}
	if err := g.whoKnows(ctx, jobs, &o); err != nil {
		return err
	}
	store, done, err := serve.OpenBlob(ctx, loc, g.dryRun)
	if err != nil {
		return storedError(err)
	}
	defer done()
	found, err := snapshot.FindGarbage(ctx, store, o)
	if err != nil {
		return storedError(err)
	}
	v := viewGarbage(found)
	v.Cluster, v.DryRun, v.Offline = o.Cluster, g.dryRun, g.offline
	if !g.dryRun {
		err = found.Delete(ctx, store, func(n int) {
			v.Deleted = n
			if total := len(found.Garbage) + len(found.Uploads); n < total && total > 1000 {
				fmt.Fprintf(a.Stderr, "%s of %s deleted\n", count(int64(n)), count(int64(total)))
			}
		})
	}
	if e := write(a.Stdout, c.format, v, func(w *tabwriter.Writer) { gcTable(w, v) }); e != nil || err != nil {
		return cmp.Or(storedError(err), e)
	}
	var bad []error
	for _, p := range v.Problems {
		bad = append(bad, fmt.Errorf("job %s is left alone: %s", p.Job, p.Error))
	}
	if n := len(v.Missing); n > 0 {
		bad = append(bad, fmt.Errorf("%s missing that checkpoints refer to: cairn checkpoint verify says of which states", plural(n, "object")))
	}
	return errors.Join(bad...)
}

// whoKnows finds out whom to ask which checkpoints are alive.
func (g *gcOptions) whoKnows(ctx context.Context, jobs *rpc.Client, o *snapshot.SweepOptions) error {
	if g.offline {
		o.Cluster = cmp.Or(g.cluster, "default")
		vctx, cancel := context.WithTimeout(ctx, 2*time.Second)
		defer cancel()
		if v, err := jobs.Version(vctx); err == nil && v.Cluster == o.Cluster {
			return &codeError{code: Refused, err: fmt.Errorf("a JobManager of cluster %q is running: leave --offline out, so that it is asked which checkpoints are on their way", v.Cluster)}
		}
		return nil
	}
	const hint = "if no JobManager of the cluster runs, --offline says so: then every checkpoint that has a manifest is kept"
	v, err := jobs.Version(ctx)
	if err != nil {
		return &codeError{code: codeOf(err), err: fmt.Errorf("nothing is deleted without a JobManager, which says what is alive: %w", err), hint: hint}
	}
	if g.cluster != "" && g.cluster != v.Cluster {
		return usage("gc", fmt.Sprintf("--cluster %s: the JobManager is of cluster %s", g.cluster, v.Cluster))
	}
	o.Cluster = v.Cluster
	if g.job != "" {
		d, err := jobs.Get(ctx, g.job)
		if err != nil {
			return err
		}
		o.Job = d.Job.ID
	}
	o.Jobs = func(ctx context.Context) (map[job.ID]snapshot.JobCheckpoints, error) { return checkpointsOf(ctx, jobs) }
	return nil
}

// checkpointsOf asks for the checkpoints of all jobs. A job's state is asked before: one that ends meanwhile counts as running.
func checkpointsOf(ctx context.Context, jobs rpc.Jobs) (map[job.ID]snapshot.JobCheckpoints, error) {
	list, err := jobs.List(ctx)
	if err != nil {
		return nil, err
	}
	out := map[job.ID]snapshot.JobCheckpoints{}
	for _, j := range list {
		c := snapshot.JobCheckpoints{Ended: j.State.Ended(), Committed: map[job.CheckpointID]string{}}
		points, err := jobs.ListCheckpoints(ctx, string(j.ID))
		if err != nil {
			return nil, fmt.Errorf("checkpoints of job %q: %w", j.Name, err)
		}
		for _, p := range points {
			switch p.State {
			case coordinator.CheckpointCompleted:
				c.Committed[p.ID] = p.Manifest
			case coordinator.CheckpointInProgress:
				if c.InProgress == 0 || p.ID < c.InProgress {
					c.InProgress = p.ID
				}
			}
		}
		// Of a job that its version cannot run a JobManager knows no more than that there are checkpoints.
		if newest := slices.Max(append(slices.Collect(maps.Keys(c.Committed)), 0)); newest < j.Checkpoint {
			c.Err = fmt.Errorf("the JobManager says that checkpoint %d is the newest, and lists it not: %s", uint64(j.Checkpoint), firstLine(j.Reason))
		}
		out[j.ID] = c
	}
	return out, nil
}

func viewGarbage(s *snapshot.Swept) gcView {
	v := gcView{
		Objects: s.Objects, Live: s.Live, Young: s.Young, Foreign: s.Foreign, Missing: append([]string{}, s.Missing...), Problems: []gcProblemView{},
		Garbage: views(s.Garbage, func(g snapshot.Garbage) garbageView {
			return garbageView{g.Key, g.Size, g.Modified.UTC(), string(g.Job), uint64(g.Checkpoint), g.Why}
		}),
		Uploads: views(s.Uploads, func(u snapshot.AbandonedUpload) uploadView {
			return uploadView{u.Key, u.ID, u.Begun.UTC(), u.Why}
		}),
	}
	for _, g := range s.Garbage {
		v.GarbageBytes += g.Size
	}
	for _, id := range slices.Sorted(maps.Keys(s.Problems)) {
		v.Problems = append(v.Problems, gcProblemView{string(id), s.Problems[id].Error()})
	}
	return v
}

func gcTable(w *tabwriter.Writer, v gcView) {
	if len(v.Garbage)+len(v.Uploads) > 0 {
		row(w, "OBJECT", "SIZE", "WRITTEN", "WHY")
		for _, g := range v.Garbage {
			row(w, g.Key, size(g.Size), clock(g.Modified), g.Why)
		}
		for _, u := range v.Uploads {
			row(w, u.Key, "upload "+u.ID, clock(u.Begun), u.Why)
		}
		fmt.Fprintln(w)
	}
	field(w, "Cluster", v.Cluster)
	field(w, "Objects", count(int64(v.Objects)))
	field(w, "Kept", fmt.Sprintf("%s, and %s younger than --min-age", count(int64(v.Live)), count(int64(v.Young))))
	if v.Foreign > 0 {
		field(w, "Unknown", fmt.Sprintf("%s, left alone", count(int64(v.Foreign))))
	}
	field(w, "Garbage", fmt.Sprintf("%s, %s", plural(len(v.Garbage), "object"), size(v.GarbageBytes)))
	if len(v.Uploads) > 0 {
		field(w, "Uploads", len(v.Uploads))
	}
	if v.DryRun {
		field(w, "Deleted", "0 (--dry-run)")
		return
	}
	field(w, "Deleted", v.Deleted)
}
