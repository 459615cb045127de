package job

import (
	"cmp"
	"fmt"
)

// ID identifies a job: 16 lower-case hexadecimal digits. It is used once: a job that was cancelled or
// failed and goes on from its checkpoint keeps it, one that starts from nothing gets another.
type ID string

// Attempt counts the executions of one job. It grows at every restart and is durable before it
// is used; messages and data channels of an older attempt are refused.
type Attempt uint64

// Epoch is the term of a leader: it grows from leader to leader of one cluster.
type Epoch uint64

// CheckpointID numbers the checkpoints of a job from 1. An id is used once, ever.
type CheckpointID uint64

func (c CheckpointID) String() string { return fmt.Sprintf("c%d", uint64(c)) }

// WorkerID names one incarnation of a TaskManager process. A process that starts again at the
// same address has another one.
type WorkerID string

// Task names one subtask of one vertex, such as sum/2.
type Task struct {
	Vertex  string
	Subtask int
}

func (t Task) String() string { return fmt.Sprintf("%s/%d", t.Vertex, t.Subtask) }

// Compare orders tasks by vertex, then subtask.
func (t Task) Compare(u Task) int {
	if c := cmp.Compare(t.Vertex, u.Vertex); c != 0 {
		return c
	}
	return cmp.Compare(t.Subtask, u.Subtask)
}

// Channel names one logical data channel of a job: one subtask of the sending vertex to one of
// the receiving vertex, along edge number Edge of the plan.
type Channel struct {
	Edge int
	From int
	To   int
}

func (c Channel) String() string { return fmt.Sprintf("e%d:%d>%d", c.Edge, c.From, c.To) }
