package snapshot

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
)

// Store keeps the checkpoints of the jobs of one cluster. It is safe for concurrent use.
type Store struct {
	blob    blob.Store
	cluster string
}

// NewStore makes a Store. The cluster's name is the first segment of all keys.
func NewStore(b blob.Store, cluster string) (*Store, error) {
	if err := blob.CheckKey(cluster); err != nil {
		return nil, fmt.Errorf("name of the cluster: %w", err)
	}
	return &Store{b, cluster}, nil
}

// Reader gives a Reader of the same objects.
func (s *Store) Reader() *Reader { return NewReader(s.blob) }

// WriteManifest stores a manifest and returns its key. A name is never used twice: to write the same manifest
// again succeeds, another one for the same checkpoint is an error. Everything that m lists must be stored.
func (s *Store) WriteManifest(ctx context.Context, m *Manifest) (string, error) {
	data, err := m.Encode()
	if err != nil {
		return "", err
	}
	key := ManifestKey(s.cluster, m.Job, m.Checkpoint)
	err = s.blob.PutIfAbsent(ctx, key, data)
	if errors.Is(err, blob.ErrExists) {
		// It may be our own, from a call whose answer was lost.
		there, readErr := blob.ReadAll(ctx, s.blob, key, MaxManifest)
		switch {
		case readErr != nil:
			err = readErr
		case bytes.Equal(there, data):
			err = nil
		}
	}
	if err != nil {
		return "", fmt.Errorf("write the manifest of job %s, checkpoint %v: %w", m.Job, m.Checkpoint, err)
	}
	return key, nil
}

// LoadManifest reads and verifies the manifest with that key.
func (s *Store) LoadManifest(ctx context.Context, key string) (*Manifest, error) {
	return LoadManifest(ctx, s.blob, key)
}

// LoadManifest reads and verifies the manifest with that key in a store, which may be anywhere in it.
func LoadManifest(ctx context.Context, store blob.Store, key string) (*Manifest, error) {
	data, err := blob.ReadAll(ctx, store, key, MaxManifest)
	if err != nil {
		return nil, fmt.Errorf("load a manifest: %w", err)
	}
	m, err := DecodeManifest(data)
	if err != nil {
		return nil, fmt.Errorf("manifest %s: %w", key, err)
	}
	m.resolve(key)
	return m, nil
}

// DeleteCheckpoint removes everything that is stored for one checkpoint and for no other: the manifest first,
// so that a checkpoint with some objects missing is never taken for whole. It is idempotent and may be repeated
// after an error.
func (s *Store) DeleteCheckpoint(ctx context.Context, id job.ID, c job.CheckpointID) error {
	err := s.blob.Delete(ctx, ManifestKey(s.cluster, id, c))
	if err == nil {
		err = s.deletePrefix(ctx, CheckpointPrefix(s.cluster, id, c))
	}
	if err != nil {
		return fmt.Errorf("delete checkpoint %v of job %s: %w", c, id, err)
	}
	return nil
}

// DeleteJob removes everything that is stored for a job: manifests first.
func (s *Store) DeleteJob(ctx context.Context, id job.ID) error {
	infos, err := s.ListCheckpoints(ctx, id)
	if err == nil {
		keys := make([]string, len(infos))
		for i, info := range infos {
			keys[i] = info.Key
		}
		err = s.blob.Delete(ctx, keys...)
	}
	if err == nil {
		err = s.deletePrefix(ctx, JobPrefix(s.cluster, id))
	}
	if err != nil {
		return fmt.Errorf("delete the checkpoints of job %s: %w", id, err)
	}
	return nil
}

func (s *Store) deletePrefix(ctx context.Context, prefix string) error {
	var keys []string
	for info, err := range s.blob.List(ctx, prefix) {
		if err != nil {
			return err
		}
		keys = append(keys, info.Key)
	}
	if len(keys) == 0 {
		return nil
	}
	return s.blob.Delete(ctx, keys...)
}

// Release removes objects by name that a checkpoint was given up with: those of a declined or stale
// acknowledgement. It refuses keys that are not that checkpoint's, and its manifest. It is idempotent.
func (s *Store) Release(ctx context.Context, id job.ID, c job.CheckpointID, keys ...string) error {
	prefix := CheckpointPrefix(s.cluster, id, c)
	for _, key := range keys {
		if name, ok := strings.CutPrefix(key, prefix); !ok || name == manifestName {
			return fmt.Errorf("release objects of checkpoint %v of job %s: %q is none of them", c, id, key)
		}
	}
	if len(keys) == 0 {
		return nil
	}
	if err := s.blob.Delete(ctx, keys...); err != nil {
		return fmt.Errorf("release objects of checkpoint %v of job %s: %w", c, id, err)
	}
	return nil
}

// CheckpointInfo is a checkpoint that has a manifest. Whether it was committed is for the metadata store to say.
type CheckpointInfo struct {
	Job        job.ID
	Checkpoint job.CheckpointID
	Key        string // Of the manifest.
	Size       int64  // Of the manifest, bytes.
	Modified   time.Time
}

// ListCheckpoints lists the checkpoints of a job, or of all jobs of the cluster when id is empty, in the order
// of job and id.
func (s *Store) ListCheckpoints(ctx context.Context, id job.ID) ([]CheckpointInfo, error) {
	root := s.cluster + "/jobs/"
	prefix := root
	if id != "" {
		prefix = JobPrefix(s.cluster, id) + "checkpoints/"
	}
	var out []CheckpointInfo
	for info, err := range s.blob.List(ctx, prefix) {
		if err != nil {
			return nil, fmt.Errorf("list checkpoints below %s: %w", prefix, err)
		}
		of, rest, _ := strings.Cut(strings.TrimPrefix(info.Key, root), "/")
		c, name, ok := parseCheckpoint(rest)
		if ok && name == manifestName {
			out = append(out, CheckpointInfo{job.ID(of), c, info.Key, info.Size, info.Modified})
		}
	}
	slices.SortFunc(out, func(a, b CheckpointInfo) int {
		return cmp.Or(cmp.Compare(a.Job, b.Job), cmp.Compare(a.Checkpoint, b.Checkpoint))
	})
	return out, nil
}

// VerifyManifest reads everything that m lists and compares hashes; the error names every bad section.
func (s *Store) VerifyManifest(ctx context.Context, m *Manifest) error {
	r := s.Reader()
	var errs []error
	m.handles(func(h job.StateHandle) {
		if ctx.Err() == nil {
			if err := r.Verify(ctx, h); err != nil {
				errs = append(errs, err)
			}
		}
	})
	return errors.Join(append(errs, ctx.Err())...)
}

// Manifests are the manifests of one job, as its coordinator uses them.
type Manifests struct {
	store *Store
	job   job.ID
}

// Manifests gives those of one job.
func (s *Store) Manifests(id job.ID) *Manifests { return &Manifests{s, id} }

// Write stores a manifest and returns its key; see Store.WriteManifest.
func (m *Manifests) Write(ctx context.Context, mf Manifest) (string, error) {
	if mf.Job != m.job {
		return "", fmt.Errorf("write the manifest of checkpoint %v: it is of job %s, not %s", mf.Checkpoint, mf.Job, m.job)
	}
	return m.store.WriteManifest(ctx, &mf)
}

// Load reads and verifies the manifest with that key, which may be another job's.
func (m *Manifests) Load(ctx context.Context, key string) (*Manifest, error) {
	return m.store.LoadManifest(ctx, key)
}

// Delete removes a checkpoint; see Store.DeleteCheckpoint.
func (m *Manifests) Delete(ctx context.Context, id job.CheckpointID) error {
	return m.store.DeleteCheckpoint(ctx, m.job, id)
}

// Release removes objects of a checkpoint that was given up; see Store.Release.
func (m *Manifests) Release(ctx context.Context, id job.CheckpointID, keys ...string) error {
	return m.store.Release(ctx, m.job, id, keys...)
}

// List lists the job's checkpoints.
func (m *Manifests) List(ctx context.Context) ([]CheckpointInfo, error) {
	return m.store.ListCheckpoints(ctx, m.job)
}
