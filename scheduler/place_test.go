package scheduler

import (
	"fmt"
	"reflect"
	"slices"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
)

func vertex(name string, parallelism int) job.Vertex {
	return job.Vertex{Name: name, Parallelism: parallelism}
}

func planOf(enumerators int, vertices ...job.Vertex) *job.Plan {
	p := &job.Plan{Vertices: vertices}
	for i := range enumerators {
		p.Vertices = append(p.Vertices, job.Vertex{Name: fmt.Sprintf("enum%d", i), Parallelism: 1, Enumerator: true})
	}
	return p
}

func draw(t *rapid.T) (View, Request) {
	programs := []job.ProgramInfo{{Name: "p", Version: "1"}, {Name: "p", Version: "2"}, {Name: "q", Version: "1"}}
	var v View
	for i := range rapid.IntRange(0, 6).Draw(t, "workers") {
		slots := rapid.IntRange(0, 5).Draw(t, "slots")
		v.Workers = append(v.Workers, Worker{
			ID: job.WorkerID(fmt.Sprintf("w%d", i)), Data: fmt.Sprintf("host%d:1", i), Slots: slots,
			Free:     rapid.IntRange(0, slots).Draw(t, "free"),
			Draining: rapid.IntRange(0, 5).Draw(t, "draining") == 0,
			Programs: rapid.SliceOfNDistinct(rapid.SampledFrom(programs), 0, 3, func(p job.ProgramInfo) job.ProgramInfo { return p }).Draw(t, "programs"),
		})
	}
	var vertices []job.Vertex
	for i := range rapid.IntRange(1, 4).Draw(t, "vertices") {
		vertices = append(vertices, vertex(fmt.Sprintf("v%d", i), rapid.IntRange(1, 8).Draw(t, "parallelism")))
	}
	return v, Request{Program: "p", Version: "1", Plan: planOf(rapid.IntRange(0, 3).Draw(t, "enumerators"), vertices...)}
}

// TestPlace checks what must hold of every plan and of every refusal.
func TestPlace(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v, r := draw(t)
		free := 0
		for _, w := range v.Workers {
			if w.has("p", "1") && !w.Draining {
				free += w.Free
			}
		}
		p, short := Place(v, r)
		if (free >= r.Plan.Slots()) != (short == nil) {
			t.Fatalf("%d free, need %d: %v", free, r.Plan.Slots(), short)
		}
		if short != nil {
			if short.Need != r.Plan.Slots() || short.Free != free || len(short.Reasons) == 0 {
				t.Fatalf("shortfall %+v, free %d", short, free)
			}
			return
		}
		byID := map[job.WorkerID]Worker{}
		for _, w := range v.Workers {
			byID[w.ID] = w
		}
		var tasks []job.Task
		enumerator := map[string]bool{}
		for _, vx := range r.Plan.Vertices {
			enumerator[vx.Name] = vx.Enumerator
		}
		perVertex := map[string]map[job.WorkerID]int{}
		for _, pl := range p.Placements {
			w, ok := byID[pl.Worker]
			if !ok || !w.has("p", "1") || w.Draining || pl.Data != w.Data {
				t.Fatalf("%v on %+v", pl, w)
			}
			if p.Slots[pl.Worker] == 0 {
				t.Fatalf("%v on a worker without a slot of the job", pl)
			}
			if !enumerator[pl.Task.Vertex] {
				if perVertex[pl.Task.Vertex] == nil {
					perVertex[pl.Task.Vertex] = map[job.WorkerID]int{}
				}
				perVertex[pl.Task.Vertex][pl.Worker]++
			}
			tasks = append(tasks, pl.Task)
		}
		if !slices.Equal(tasks, r.Plan.Tasks()) {
			t.Fatalf("placed %v of %v", tasks, r.Plan.Tasks())
		}
		for name, on := range perVertex {
			for id, n := range on {
				if n > p.Slots[id] {
					t.Fatalf("%d subtasks of %s in %d slots of %s", n, name, p.Slots[id], id)
				}
			}
		}
		sum := 0
		for id, n := range p.Slots {
			sum += n
			if n > byID[id].Free {
				t.Fatalf("%d slots of %s, which has %d free", n, id, byID[id].Free)
			}
		}
		if sum != r.Plan.Slots() {
			t.Fatalf("took %d slots, need %d", sum, r.Plan.Slots())
		}
		// Even: nobody has two more than another that had room for one more.
		for id, n := range p.Slots {
			for _, w := range v.Workers {
				if w.has("p", "1") && !w.Draining && w.Free > p.Slots[w.ID] && n > p.Slots[w.ID]+1 {
					t.Fatalf("%s has %d slots of the job, %s has %d and room for more", id, n, w.ID, p.Slots[w.ID])
				}
			}
		}
		// The same whatever the order of the workers.
		slices.Reverse(v.Workers)
		if again, _ := Place(v, r); !reflect.DeepEqual(p, again) {
			t.Fatalf("another order of workers: %v, was %v", again, p)
		}
	})
}

func TestShortfall(t *testing.T) {
	has := func(id string, slots, free int, programs ...job.ProgramInfo) Worker {
		return Worker{ID: job.WorkerID(id), Slots: slots, Free: free, Programs: programs}
	}
	v1, v2, q := job.ProgramInfo{Name: "flights", Version: "v1"}, job.ProgramInfo{Name: "flights", Version: "v2"}, job.ProgramInfo{Name: "other", Version: "v1"}
	r := Request{Program: "flights", Version: "v1", Plan: planOf(1, vertex("sum", 4))}
	for _, c := range []struct {
		name    string
		workers []Worker
		want    string
	}{
		{"nobody", nil, "need 4 slots, and no TaskManager is connected"},
		{"other program", []Worker{has("a", 4, 4, q)}, `need 4 slots on TaskManagers with program "flights" version "v1", and none of the 1 connected has it`},
		{"other version", []Worker{has("a", 4, 4, v2), has("b", 4, 4, v2), has("c", 2, 2, q)},
			`need 4 slots on TaskManagers with program "flights" version "v1", and none of the 3 connected has it; other versions of "flights" on 2 TaskManagers: "v2" on 2; no "flights" on 1 TaskManager`},
		{"too few", []Worker{has("a", 2, 2, v1), has("b", 2, 1, v1), has("c", 9, 9, v2)},
			`need 4 slots, have 3 free on 2 TaskManagers with program "flights" version "v1"; jobs hold 1 slot of theirs; other versions of "flights" on 1 TaskManager: "v2" on 1`},
	} {
		if _, s := Place(View{c.workers}, r); s == nil || s.String() != c.want {
			t.Errorf("%s:\n got %v\nwant %s", c.name, s, c.want)
		}
	}
}
