package snapshot

import (
	"math"
	"strings"

	"github.com/cairnstream/cairn/job"
)

// Live is what is to be known of a job before anything of it is swept.
type Live struct {
	Below job.CheckpointID // Every checkpoint below it has ended.
	Keep  map[string]bool  // Keys that something refers to which is kept or on its way, those of manifests included.
}

// AllEnded is the Below of a job that is over.
const AllEnded = job.CheckpointID(math.MaxUint64)

// Garbage tells whether the object with that key may be deleted: it is of a checkpoint of the job that has ended, and nothing
// that is kept, or on its way, refers to it. Names are never used again, so it stays so, and no clock takes part.
func (l Live) Garbage(cluster string, id job.ID, key string) bool {
	n, ok := CheckpointOf(cluster, id, key)
	return ok && n < l.Below && !l.Keep[key]
}

// CheckpointOf is the checkpoint of a job for which the object with that key was written.
func CheckpointOf(cluster string, id job.ID, key string) (job.CheckpointID, bool) {
	rest, ok := strings.CutPrefix(key, JobPrefix(cluster, id))
	if !ok {
		return 0, false
	}
	n, _, ok := parseCheckpoint(rest)
	return n, ok
}
