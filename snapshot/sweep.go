package snapshot

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
)

// JobCheckpoints is what who has the metadata knows of a job's checkpoints.
type JobCheckpoints struct {
	Ended bool // The job is over.
	// Committed are those that are kept, with the keys of their manifests.
	Committed map[job.CheckpointID]string
	// InProgress is the lowest id of those on their way; 0 if there are none.
	InProgress job.CheckpointID
	// Err says why the rest is not all that is on record. Then nothing of the job is garbage.
	Err error
}

// below is the id below which every checkpoint has ended, for who asks from outside. Of a job that is not over it is at most
// the one behind the newest committed one: what is newer may be on its way, or be the last snapshot of a task that has finished.
func (c JobCheckpoints) below() job.CheckpointID {
	if c.Ended {
		return AllEnded
	}
	var newest job.CheckpointID
	for n := range c.Committed {
		newest = max(newest, n)
	}
	if c.InProgress > 0 {
		return min(c.InProgress, newest+1)
	}
	return newest + 1
}

// SweepOptions say what to look for.
type SweepOptions struct {
	Cluster string
	Job     job.ID // Empty for all.
	// Jobs gives what is on record of all jobs of the cluster. It is asked after the objects were listed: what came to be
	// referred to meanwhile is in it. Nil says that there is nobody to ask, and that no JobManager is running.
	Jobs func(ctx context.Context) (map[job.ID]JobCheckpoints, error)
	// MinAge leaves younger objects alone, by the store's clock. It is a margin, beside what Jobs says.
	MinAge time.Duration
	Now    time.Time
}

// Garbage is an object that nothing refers to.
type Garbage struct {
	blob.Info
	Job        job.ID
	Checkpoint job.CheckpointID
	Why        string
}

// AbandonedUpload is an upload that nothing refers to.
type AbandonedUpload struct {
	blob.Upload
	Job        job.ID
	Checkpoint job.CheckpointID
	Why        string
}

// Swept is what was found, and what is to be deleted.
type Swept struct {
	Garbage  []Garbage // Manifests first, and those of newer checkpoints before older ones.
	Uploads  []AbandonedUpload
	Objects  int // That are there.
	Live     int // That are referred to, or of checkpoints that have not ended.
	Young    int // That nothing refers to, but that are younger than MinAge.
	Foreign  int // Whose names are none of a checkpoint's objects: they are left alone.
	Problems map[job.ID]error
	Missing  []string // Objects that manifests refer to and that are not there.
}

// FindGarbage looks for objects that no checkpoint which is kept, or is on its way, refers to, and for uploads that nobody
// completes. A checkpoint of a job that is not on record is kept when it has a manifest: nobody else can say whether it is
// of use. Of a job of which a manifest cannot be read nothing is garbage, and Problems says why.
func FindGarbage(ctx context.Context, store blob.Store, o SweepOptions) (*Swept, error) {
	if err := blob.CheckKey(o.Cluster); err != nil {
		return nil, fmt.Errorf("name of the cluster: %w", err)
	}
	f := &finder{o: o, store: store, out: &Swept{Problems: map[job.ID]error{}}, keep: map[string]bool{}, below: map[job.ID]job.CheckpointID{}}
	if err := f.list(ctx); err != nil {
		return nil, err
	}
	if err := f.uploads(ctx); err != nil {
		return nil, err
	}
	if err := f.references(ctx); err != nil {
		return nil, err
	}
	f.sort()
	return f.out, nil
}

type finder struct {
	o       SweepOptions
	store   blob.Store
	objects []Garbage
	started []AbandonedUpload
	keep    map[string]bool
	below   map[job.ID]job.CheckpointID
	out     *Swept
}

func (f *finder) root() string { return f.o.Cluster + "/jobs/" }

// of takes a key apart.
func (f *finder) of(key string) (job.ID, job.CheckpointID, bool) {
	name, _, _ := strings.Cut(strings.TrimPrefix(key, f.root()), "/")
	n, ok := CheckpointOf(f.o.Cluster, job.ID(name), key)
	return job.ID(name), n, ok
}

func (f *finder) list(ctx context.Context) error {
	for info, err := range f.store.List(ctx, f.root()) {
		if err != nil {
			return err
		}
		id, n, ok := f.of(info.Key)
		if f.o.Job == "" || f.o.Job == id {
			f.out.Objects++
			if !ok {
				f.out.Foreign++
				continue
			}
		}
		if ok { // Those of other jobs too: their manifests may refer to what is looked at.
			f.objects = append(f.objects, Garbage{Info: info, Job: id, Checkpoint: n})
		}
	}
	return nil
}

func (f *finder) uploads(ctx context.Context) error {
	u, ok := blob.UploadsOf(f.store)
	if !ok {
		return nil
	}
	for x, err := range u.Uploads(ctx, f.root()) {
		if err != nil {
			return err
		}
		if id, n, ok := f.of(x.Key); ok && (f.o.Job == "" || f.o.Job == id) {
			f.started = append(f.started, AbandonedUpload{Upload: x, Job: id, Checkpoint: n})
		}
	}
	return nil
}

// askAgain is how often the record is asked when a manifest on it is not there: its checkpoint may have been given up just
// then.
const askAgain = 3

// references finds everything that is referred to.
func (f *finder) references(ctx context.Context) error {
	for try := 1; ; try++ {
		again, err := f.ask(ctx, try == askAgain)
		if err != nil || !again {
			return err
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

func (f *finder) ask(ctx context.Context, last bool) (again bool, err error) {
	clear(f.keep)
	clear(f.below)
	clear(f.out.Problems)
	onRecord := map[job.ID]JobCheckpoints{}
	if f.o.Jobs != nil {
		if onRecord, err = f.o.Jobs(ctx); err != nil {
			return false, err
		}
	}
	there := make(map[string]bool, len(f.objects))
	manifests := map[job.ID][]string{} // Of jobs that are not on record.
	for _, g := range f.objects {
		there[g.Key] = true
		if _, ok := onRecord[g.Job]; !ok && strings.HasSuffix(g.Key, "/"+manifestName) {
			manifests[g.Job] = append(manifests[g.Job], g.Key)
		}
		f.below[g.Job] = AllEnded
	}
	for _, u := range f.started {
		f.below[u.Job] = AllEnded
	}
	load := func(id job.ID, key string, recorded bool) error {
		f.keep[key] = true
		m, err := LoadManifest(ctx, f.store, key)
		switch {
		case err == nil:
			for _, o := range ObjectsOf(m) {
				f.keep[o] = true
			}
		case blob.IsTransient(err), errors.Is(err, blob.ErrDenied), ctx.Err() != nil:
			return err
		case errors.Is(err, blob.ErrNotExist) && !recorded: // Deleted since it was listed.
		case errors.Is(err, blob.ErrNotExist) && !last:
			again = true
		default:
			f.out.Problems[id] = err
		}
		return nil
	}
	for id, c := range onRecord {
		f.below[id] = c.below()
		if c.Err != nil {
			f.out.Problems[id] = c.Err
		}
		for _, key := range c.Committed {
			if err := load(id, key, true); err != nil {
				return false, err
			}
		}
	}
	for id, keys := range manifests {
		for _, key := range keys {
			if err := load(id, key, false); err != nil {
				return false, err
			}
		}
	}
	f.out.Missing = f.out.Missing[:0]
	for _, key := range slices.Sorted(maps.Keys(f.keep)) {
		if id, _, ok := f.of(key); ok && !there[key] && (f.o.Job == "" || f.o.Job == id) {
			if _, err := f.store.Stat(ctx, key); errors.Is(err, blob.ErrNotExist) { // Else it was written since.
				f.out.Missing = append(f.out.Missing, key)
			}
		}
	}
	return again, nil
}

// sort tells garbage from what is alive.
func (f *finder) sort() {
	young := func(at time.Time) bool { return f.o.Now.Sub(at) < f.o.MinAge }
	live := func(id job.ID) Live { return Live{Below: f.below[id], Keep: f.keep} }
	for _, g := range f.objects {
		if f.o.Job != "" && f.o.Job != g.Job {
			continue
		}
		switch {
		case f.out.Problems[g.Job] != nil || !live(g.Job).Garbage(f.o.Cluster, g.Job, g.Key):
			f.out.Live++
		case young(g.Modified):
			f.out.Young++
		default:
			g.Why = "no checkpoint that is kept refers to it"
			if strings.HasSuffix(g.Key, "/"+manifestName) {
				g.Why = "the checkpoint was not committed, or is no longer kept"
			}
			f.out.Garbage = append(f.out.Garbage, g)
		}
	}
	first := func(g Garbage) int {
		if strings.HasSuffix(g.Key, "/"+manifestName) {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(f.out.Garbage, func(a, b Garbage) int {
		return cmp.Or(cmp.Compare(first(a), first(b)), cmp.Compare(a.Job, b.Job), cmp.Compare(b.Checkpoint, a.Checkpoint), cmp.Compare(a.Key, b.Key))
	})
	for _, u := range f.started {
		if f.out.Problems[u.Job] == nil && u.Checkpoint < f.below[u.Job] && !young(u.Begun) {
			u.Why = "its checkpoint has ended"
			f.out.Uploads = append(f.out.Uploads, u)
		}
	}
}

const (
	// sweepBatch is how many objects are deleted by one call: as many as stores take at a time.
	sweepBatch = 1000
	// sweepTries is how often a batch is tried. The store itself tries each request several times.
	sweepTries = 5
)

// Delete removes what was found, in batches. One that fails for a reason that passes is tried again, each time after twice the
// pause. done is told how many objects and uploads are gone; the error says what is left.
func (s *Swept) Delete(ctx context.Context, store blob.Store, done func(n int)) error {
	retry := func(f func() error) error {
		for try, pause := 1, time.Second; ; try, pause = try+1, 2*pause {
			err := f()
			if err == nil || !blob.IsTransient(err) || try == sweepTries {
				return err
			}
			select {
			case <-ctx.Done():
				return ctx.Err()
			case <-time.After(pause):
			}
		}
	}
	n := 0
	for batch := range slices.Chunk(s.Garbage, sweepBatch) {
		keys := make([]string, len(batch))
		for i, g := range batch {
			keys[i] = g.Key
		}
		if err := retry(func() error { return store.Delete(ctx, keys...) }); err != nil {
			return fmt.Errorf("%d of %d objects are deleted: %w", n, len(s.Garbage), err)
		}
		n += len(batch)
		done(n)
	}
	u, _ := blob.UploadsOf(store)
	for i, x := range s.Uploads {
		if err := retry(func() error { return u.AbortUpload(ctx, x.Upload) }); err != nil {
			return fmt.Errorf("%d of %d uploads are taken back: %w", i, len(s.Uploads), err)
		}
		done(n + i + 1)
	}
	return nil
}
