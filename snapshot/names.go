package snapshot

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
)

// manifestName is the name of the manifest among the objects of its checkpoint.
const manifestName = "_metadata"

// JobPrefix is what the keys of all objects of a job begin with.
func JobPrefix(cluster string, id job.ID) string {
	return fmt.Sprintf("%s/jobs/%s/", cluster, id)
}

// CheckpointPrefix is what the keys of all objects of a checkpoint begin with.
func CheckpointPrefix(cluster string, id job.ID, c job.CheckpointID) string {
	return fmt.Sprintf("%scheckpoints/%d/", JobPrefix(cluster, id), uint64(c))
}

// ManifestKey is the key of a checkpoint's manifest.
func ManifestKey(cluster string, id job.ID, c job.CheckpointID) string {
	return CheckpointPrefix(cluster, id, c) + manifestName
}

// objectKey is the key of the object that one task writes for a checkpoint. Checkpoint ids are used once and
// an attempt deploys a task once, so the name is never used for other bytes.
func objectKey(c WriterConfig) string {
	return fmt.Sprintf("%sa%d.e%d.%s.%d", CheckpointPrefix(c.Cluster, c.Job, c.Checkpoint), c.Attempt, c.Epoch, plain(c.Task.Vertex), c.Task.Subtask)
}

// plain turns a name into one that every store takes; different names stay different.
func plain(name string) string {
	const keep = 40
	s := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		}
		return '_'
	}, name)
	return fmt.Sprintf("%s-%016x", s[:min(len(s), keep)], xxh3.HashString(name))
}

// parseCheckpoint splits a key below JobPrefix into the checkpoint's id and the object's name.
func parseCheckpoint(rest string) (job.CheckpointID, string, bool) {
	rest, ok := strings.CutPrefix(rest, "checkpoints/")
	number, name, found := strings.Cut(rest, "/")
	n, err := strconv.ParseUint(number, 10, 64)
	if !ok || !found || err != nil || n == 0 || strconv.FormatUint(n, 10) != number {
		return 0, "", false
	}
	return job.CheckpointID(n), name, true
}
