package scheduler

import (
	"cmp"
	"slices"

	"github.com/cairnstream/cairn/job"
)

// Worker is what the scheduler knows of a TaskManager.
type Worker struct {
	ID       job.WorkerID
	Data     string // Address of its data exchange.
	Slots    int
	Free     int // Slots that no job holds.
	Draining bool
	Programs []job.ProgramInfo
}

func (w Worker) has(program, version string) bool {
	return slices.Contains(w.Programs, job.ProgramInfo{Name: program, Version: version})
}

// View is the workers at one moment. Place does not change it.
type View struct{ Workers []Worker }

// Request asks for places for every task of a plan.
type Request struct {
	Job     job.ID
	Program string
	Version string
	Plan    *job.Plan
}

// Plan is an answer that can be carried out.
type Plan struct {
	Placements []job.Placement // In the order of job.Plan.Tasks.
	// Slots says how many slots of each worker the job takes. A worker may be in use by an
	// enumerator alone only if it also has a slot of the job.
	Slots map[job.WorkerID]int
}

// Place finds a place for every task, or says what is lacking. The same input gives the same plan.
//
// Slots are dealt out one by one to the eligible worker that has fewest of this job so far; among
// those, to the one with most free slots; among those, by id. Subtask i of every vertex goes to slot
// i, so that forward edges stay within a worker, and vertices of lower parallelism are spread too.
// The enumerators go to the workers in use, in turn.
func Place(v View, r Request) (Plan, *Shortfall) {
	need := r.Plan.Slots()
	var eligible []Worker
	free := 0
	for _, w := range v.Workers {
		if w.has(r.Program, r.Version) && !w.Draining && w.Free > 0 {
			eligible = append(eligible, w)
			free += w.Free
		}
	}
	if free < need {
		return Plan{}, shortfall(v, r, need)
	}
	slices.SortFunc(eligible, func(a, b Worker) int {
		return cmp.Or(cmp.Compare(b.Free, a.Free), cmp.Compare(a.ID, b.ID))
	})
	var slots []Worker
	for round := 0; len(slots) < need; round++ {
		for _, w := range eligible {
			if len(slots) < need && w.Free > round {
				slots = append(slots, w)
			}
		}
	}
	p := Plan{Slots: map[job.WorkerID]int{}}
	for _, w := range slots {
		p.Slots[w.ID]++
	}
	enumerators := 0
	for _, vertex := range r.Plan.Vertices {
		for i := range vertex.Parallelism {
			w := slots[i%len(slots)]
			if vertex.Enumerator {
				w = slots[enumerators%len(slots)]
				enumerators++
			}
			p.Placements = append(p.Placements, job.Placement{Task: job.Task{Vertex: vertex.Name, Subtask: i}, Worker: w.ID, Data: w.Data})
		}
	}
	return p, nil
}
