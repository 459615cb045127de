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

// DeleteJob removes everything that is stored for a job: manifests first. Of one checkpoint alone nothing is removed by its
// prefix: later ones may refer to its objects.
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
