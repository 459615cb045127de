package cli

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/serve"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// target is the manifest of a snapshot in a store.
type target struct {
	store blob.Store
	key   string
	close func()
	// kept tells whether the checkpoint is still kept, of one that a JobManager knows: else it may go while it is read.
	kept func(ctx context.Context) (bool, error)
}

// locate finds the manifest of the snapshot that a folder or URL names. It need not be there.
func (a *App) locate(ctx context.Context, text string) (*target, error) {
	url, err := a.urlOfSavepoint(ctx, text)
	if err != nil {
		return nil, err
	}
	loc, err := placeOf(url)
	var p snapshot.Folder
	if err == nil {
		p, err = snapshot.ParseFolder(loc)
	}
	if err != nil {
		return nil, usage("SNAPSHOT", err.Error()) // Without the text, which may have a secret in it.
	}
	store, done, err := serve.OpenBlob(ctx, p.Root, true)
	if err != nil {
		return nil, noSnapshot(text, err)
	}
	key := p.Manifest()
	if p.Job != "" && p.Checkpoint == 0 {
		if key, err = a.newest(ctx, store, p, text); err != nil {
			done()
			return nil, err
		}
	}
	return &target{store: store, key: key, close: done}, nil
}

// checkpointRef is what a person calls a checkpoint: a snapshot, or one of a job that a JobManager knows.
type checkpointRef struct {
	snapshot string
	job      string
	id       job.CheckpointID // 0 for the newest.
}

// parseRef tells a job from a folder or URL: JOB [ID], JOB/latest and JOB/checkpoint/N are asked of a JobManager, unless there
// is such a folder.
func parseRef(args []string) (checkpointRef, error) {
	text := args[0]
	number := func(s string) (job.CheckpointID, error) {
		n, err := strconv.ParseUint(s, 10, 64)
		if err != nil || n == 0 {
			return 0, fmt.Errorf("%q is not the number of a checkpoint", s)
		}
		return job.CheckpointID(n), nil
	}
	_, err := os.Stat(text)
	folder := err == nil || strings.Contains(text, "://")
	if len(args) > 1 {
		id, err := number(args[1])
		if err == nil && strings.Contains(text, "://") {
			err = errors.New("a URL names its checkpoint: want no ID beside it")
		}
		return checkpointRef{job: text, id: id}, err
	}
	if folder {
		return checkpointRef{snapshot: text}, nil
	}
	if name, ok := strings.CutSuffix(text, "/latest"); ok && !strings.Contains(name, "/") {
		return checkpointRef{job: name}, nil
	}
	if name, n, ok := strings.Cut(text, "/checkpoint/"); ok && !strings.Contains(name, "/") {
		id, err := number(n)
		return checkpointRef{job: name, id: id}, err
	}
	if strings.ContainsAny(text, `/\`) || strings.HasPrefix(text, "sp-") {
		return checkpointRef{snapshot: text}, nil
	}
	return checkpointRef{job: text}, nil
}

// ofJob asks a JobManager where a job's checkpoint is, in the cluster's blob store.
func (a *App) ofJob(ctx context.Context, c *client, blobURL string, r checkpointRef) (*target, error) {
	loc, err := clusterStore(blobURL)
	if err != nil {
		return nil, err
	}
	ask := func(ctx context.Context) ([]coordinator.Checkpoint, error) {
		jobs, err := rpc.NewClient(rpc.ClientConfig{JobManagers: c.addrs})
		if err != nil {
			return nil, err
		}
		defer jobs.Close()
		return jobs.ListCheckpoints(ctx, r.job) // It does not read the manifest, which may be what is damaged.
	}
	list, err := ask(ctx)
	if err != nil {
		return nil, err
	}
	for _, p := range list { // Newest first.
		if p.State == coordinator.CheckpointCompleted && r.id == 0 || p.ID == r.id {
			if p.Manifest == "" {
				return nil, &codeError{code: NotFound, err: fmt.Errorf("checkpoint %d of job %q is %s: there is nothing of it to verify", uint64(p.ID), r.job, p.State)}
			}
			store, done, err := serve.OpenBlob(ctx, loc, true)
			if err != nil {
				return nil, storedError(err)
			}
			return &target{store, p.Manifest, done, func(ctx context.Context) (bool, error) {
				now, err := ask(ctx)
				return slices.ContainsFunc(now, func(q coordinator.Checkpoint) bool {
					return q.ID == p.ID && q.State == coordinator.CheckpointCompleted
				}), err
			}}, nil
		}
	}
	what := "completed checkpoint"
	if r.id > 0 {
		what = fmt.Sprintf("checkpoint %d", uint64(r.id))
	}
	return nil, &codeError{code: NotFound, err: fmt.Errorf("job %q has no %s", r.job, what)}
}

// clusterStore is the location of the cluster's blob store.
func clusterStore(blobURL string) (blob.Location, error) {
	if blobURL == "" {
		return blob.Location{}, usage("JOB", "missing flag --blob URL (or CAIRN_BLOB): the cluster's blob store, as its JobManager has it; or give the checkpoint's folder or URL in place of JOB")
	}
	loc, err := placeOf(blobURL)
	if err != nil {
		return loc, usage("--blob", err.Error())
	}
	return loc, nil
}

const blobUsage = "URL or folder of the cluster's blob store, as its JobManager has it"

func (a *App) checkpointVerifyCommand() *cobra.Command {
	c := a.newClient()
	var blobURL string
	c.text(&blobURL, "blob", "URL", blobUsage)
	v := verifyOptions(&c.options)
	return a.command(&cobra.Command{
		Use: "verify JOB|SNAPSHOT [ID]", Short: "reads a checkpoint to the last entry and lists everything that is wrong with it",
		Long: `Reads a checkpoint to the last entry and lists everything that is wrong with it. The exit code is 1 when it is damaged.

SNAPSHOT is the folder or URL of a checkpoint, or of a job for its newest one: no cluster is needed. Of a JOB, by default its
newest completed checkpoint, a JobManager is asked where the checkpoint is; it is read from the blob store of --blob.`,
	}, &c.options, func(ctx context.Context, args []string) error {
		r, err := parseRef(args)
		if err != nil {
			return usage("checkpoint verify", err.Error())
		}
		var t *target
		if r.job == "" {
			t, err = a.locate(ctx, r.snapshot)
		} else {
			t, err = a.ofJob(ctx, c, blobURL, r)
		}
		if err != nil {
			return err
		}
		defer t.close()
		return a.verify(ctx, t, args[0], *v, c.format)
	})
}

func (a *App) savepointVerifyCommand() *cobra.Command {
	o := &options{}
	var format string
	o.output(&format)
	v := verifyOptions(o)
	return a.command(&cobra.Command{
		Use: "verify SNAPSHOT", Short: "reads a savepoint to the last entry and lists everything that is wrong with it",
	}, o, func(ctx context.Context, args []string) error {
		t, err := a.locate(ctx, args[0])
		if err != nil {
			return err
		}
		defer t.close()
		return a.verify(ctx, t, args[0], *v, format)
	})
}

// verifyOptions adds --parallel.
func verifyOptions(o *options) *stored.VerifyOptions {
	v := serve.Verify()
	o.number(&v.Parallel, "parallel", "how many subtasks' states are read at a time (default twice the number of CPUs)").flag = true
	return &v
}

type verifyView struct {
	Manifest   string           `json:"manifest"`
	OK         bool             `json:"ok"`
	Job        string           `json:"job,omitempty"`
	Name       string           `json:"name,omitempty"`
	Checkpoint uint64           `json:"checkpoint,omitempty"`
	Created    *time.Time       `json:"created,omitempty"`
	Objects    int              `json:"objects"`
	Sections   int              `json:"sections"`
	Entries    int64            `json:"entries"`
	Bytes      int64            `json:"bytes"`
	Seconds    float64          `json:"seconds"`
	Faults     []faultView      `json:"faults"`
	Unlisted   []string         `json:"unlisted"`
	Undecoded  []stored.Concern `json:"undecoded"`
}

type faultView struct {
	Object string           `json:"object"`
	Kind   string           `json:"kind"`
	Detail string           `json:"detail"`
	States []stored.Concern `json:"states"`
}

func viewFault(f stored.Fault) faultView {
	return faultView{f.Object, string(f.Kind), f.Detail, append([]stored.Concern{}, f.Of...)}
}

func viewVerify(r *stored.Report, took time.Duration) verifyView {
	v := verifyView{
		Manifest: r.Key, OK: len(r.Faults) == 0, Objects: r.Objects, Sections: r.Sections, Entries: r.Entries, Bytes: r.Bytes, Seconds: took.Seconds(),
		Faults: views(r.Faults, viewFault), Unlisted: append([]string{}, r.Unlisted...), Undecoded: append([]stored.Concern{}, r.Undecoded...),
	}
	if m := r.Manifest; m != nil {
		v.Job, v.Name, v.Checkpoint, v.Created = string(m.Job), m.JobName, uint64(m.Checkpoint), &m.Created
	}
	return v
}

// verify reads a snapshot and prints what is wrong with it.
func (a *App) verify(ctx context.Context, t *target, text string, o stored.VerifyOptions, format string) error {
	p := &meter{began: time.Now(), line: statusLine{a: a, told: time.Now()}}
	o.Progress = p.show
	r, err := stored.Verify(ctx, t.store, t.key, o)
	p.end()
	gone := errors.Is(err, blob.ErrNotExist)
	if err != nil && (!gone || t.kept == nil) {
		return noSnapshot(text, err)
	}
	if t.kept != nil && (gone || slices.ContainsFunc(r.Faults, func(f stored.Fault) bool { return f.Kind == stored.FaultMissing })) {
		switch kept, e := t.kept(ctx); {
		case e != nil:
			return e
		case !kept:
			return &codeError{
				code: NotFound, err: fmt.Errorf("%s: the checkpoint went while it was read: a newer one has taken its place", t.key),
				hint: "verify the newest one, take a savepoint, or have the job retain more: checkpoint.retained",
			}
		case gone:
			return fmt.Errorf("%s is damaged: the JobManager has the checkpoint on record, and there is no manifest: %w", t.key, err)
		}
	}
	took := time.Since(p.began)
	if err := write(a.Stdout, format, viewVerify(r, took), func(w *tabwriter.Writer) { verifyTable(w, r) }); err != nil {
		return err
	}
	if took > time.Second {
		fmt.Fprintf(a.Stderr, "%s read in %s, %s/s\n", size(r.Bytes), short(took), size(int64(float64(r.Bytes)/took.Seconds())))
	}
	if n := len(r.Faults); n > 0 {
		return &codeError{code: Failed, err: fmt.Errorf("%s is damaged: %s", t.key, plural(n, "fault"))}
	}
	return nil
}

func plural(n int, what string) string {
	if n == 1 {
		return "1 " + what
	}
	return fmt.Sprintf("%d %ss", n, what)
}

func verifyTable(w *tabwriter.Writer, r *stored.Report) {
	field(w, "Manifest", r.Key)
	snapshotFields(w, r.Manifest)
	if r.Manifest != nil {
		field(w, "Objects", r.Objects)
		field(w, "Sections", r.Sections)
		field(w, "Entries", count(r.Entries))
		field(w, "Bytes", size(r.Bytes))
	}
	field(w, "Faults", len(r.Faults))
	if len(r.Undecoded) > 0 {
		field(w, "Not decoded", concernsText(r.Undecoded)+": only the program can read their entries; hashes and counts agree")
	}
	if len(r.Unlisted) > 0 {
		field(w, "Not listed", strings.Join(r.Unlisted, "\n"))
	}
	if len(r.Faults) > 0 {
		fmt.Fprintln(w)
		row(w, "OBJECT", "FAULT", "STATES", "DETAIL")
		for _, f := range r.Faults {
			row(w, f.Object, f.Kind, concernsText(f.Of), f.Detail)
		}
	}
}

// concernsText names states, and not more than people read.
func concernsText(of []stored.Concern) string {
	const most = 4
	var out []string
	for i, c := range of {
		if i == most {
			out = append(out, fmt.Sprintf("and %d more", len(of)-most))
			break
		}
		out = append(out, c.String())
	}
	return strings.Join(out, ", ")
}

// snapshotFields says which snapshot it is.
func snapshotFields(w *tabwriter.Writer, m *snapshot.Manifest) {
	if m == nil {
		return
	}
	field(w, "Job", fmt.Sprintf("%s (%s)", m.JobName, m.Job))
	field(w, "Program", strings.TrimSpace(m.Program+" "+m.Version))
	field(w, "Checkpoint", uint64(m.Checkpoint))
	field(w, "Created", clock(m.Created))
	field(w, "Made from", m.Derived)
}

// meter says on stderr how much of something has been read. Several goroutines call show.
type meter struct {
	began time.Time
	mu    sync.Mutex
	line  statusLine
}

func (m *meter) show(read, total int64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	now := time.Now()
	if !m.line.due(now) {
		return
	}
	m.line.tell(fmt.Sprintf("%s of %s read, %s/s", size(read), size(total), size(int64(float64(read)/now.Sub(m.began).Seconds()))), now)
}

func (m *meter) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.line.erase()
}
