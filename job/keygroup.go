package job

import "fmt"

// DefaultMaxParallelism is the number of key groups of a job that does not say otherwise: many
// small divisors, so that most parallelisms divide it evenly. It is a constant and never derived
// from the parallelism, so that a rescale does not change it.
const DefaultMaxParallelism = 720

// MaxMaxParallelism bounds the number of key groups.
const MaxMaxParallelism = 1 << 15

// GroupRange is a range of key groups, both ends included. It is empty when Last < First.
type GroupRange struct{ First, Last int }

func (r GroupRange) String() string      { return fmt.Sprintf("[%d,%d]", r.First, r.Last) }
func (r GroupRange) Len() int            { return max(0, r.Last-r.First+1) }
func (r GroupRange) Contains(g int) bool { return g >= r.First && g <= r.Last }
func (r GroupRange) Intersect(o GroupRange) GroupRange {
	return GroupRange{max(r.First, o.First), min(r.Last, o.Last)}
}

// GroupOf maps the hash of an encoded key to its group among k.
func GroupOf(hash uint64, k int) int { return int(hash % uint64(k)) }

// OwnerOf is the subtask, of p, that owns group g of k.
func OwnerOf(g, k, p int) int { return g * p / k }

// GroupsOf is the range of the k key groups that subtask i of p owns:
// [ceil(i*k/p), floor(((i+1)*k-1)/p)].
func GroupsOf(i, k, p int) GroupRange {
	return GroupRange{(i*k + p - 1) / p, ((i+1)*k - 1) / p}
}
