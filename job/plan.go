package job

import (
	"fmt"
)

// Vertex is a chain of operators that one goroutine per subtask runs.
type Vertex struct {
	Name        string // The name of its first operator.
	Operators   []int  // Indices into Graph.Operators, upstream first.
	Parallelism int
	In          []int // Indices into Plan.Edges, in the order of the head operator's inputs.
	Out         []int // Indices into Plan.Edges.
	Enumerator  bool
	Reader      bool
}

// PlanEdge joins two vertices. Operator numbers are those of the graph.
type PlanEdge struct {
	ID        int
	From, To  int    // Indices into Plan.Vertices.
	FromOp    int    // The operator whose output this is.
	Output    string // Name of its side output; empty for the main one.
	ToOp      int
	Input     int // Which input of ToOp.
	Partition Partition
}

// Plan is the physical form of a Graph. It follows from the graph and the parallelism alone, so
// that a JobManager and every TaskManager derive the same one.
type Plan struct {
	Graph    Graph
	Vertices []Vertex
	Edges    []PlanEdge
	K        int // Number of key groups.
}

// NewPlan chains the operators of g: an operator joins its input's chain when it has a single
// input, that edge is Forward, and both have the same parallelism. One that calls the outside is
// always the first of its chain: while it waits, its task must be able to leave records where they
// are.
// The graph must be valid.
func NewPlan(g Graph, s Settings) (*Plan, error) {
	if err := g.Validate(); err != nil {
		return nil, err
	}
	p := &Plan{Graph: g, K: s.MaxParallelism}
	vertexOf := make([]int, len(g.Operators))
	par := make([]int, len(g.Operators))
	var problems []string
	for i, op := range g.Operators {
		par[i] = op.Parallelism
		switch {
		case op.Kind == KindEnumerator:
			par[i] = 1
		case par[i] == 0:
			par[i] = s.Parallelism
		}
		if par[i] > s.MaxParallelism {
			problems = append(problems, fmt.Sprintf("operator %q: parallelism %d is above max-parallelism %d", op.Name, par[i], s.MaxParallelism))
		}
		if len(op.Inputs) == 1 && op.Inputs[0].Partition == Forward && par[op.Inputs[0].From] == par[i] && op.Kind != KindAsync {
			v := vertexOf[op.Inputs[0].From]
			vertexOf[i] = v
			p.Vertices[v].Operators = append(p.Vertices[v].Operators, i)
			continue
		}
		v := len(p.Vertices)
		vertexOf[i] = v
		p.Vertices = append(p.Vertices, Vertex{
			Name: op.Name, Operators: []int{i}, Parallelism: par[i],
			Enumerator: op.Kind == KindEnumerator, Reader: op.Kind == KindReader,
		})
		for n, in := range op.Inputs {
			e := PlanEdge{ID: len(p.Edges), From: vertexOf[in.From], To: v, FromOp: in.From, Output: in.Output, ToOp: i, Input: n, Partition: in.Partition}
			if e.Partition == Forward && par[in.From] != par[i] {
				e.Partition = Rebalance
			}
			p.Edges = append(p.Edges, e)
			p.Vertices[e.From].Out = append(p.Vertices[e.From].Out, e.ID)
			p.Vertices[v].In = append(p.Vertices[v].In, e.ID)
		}
	}
	if len(problems) > 0 {
		return nil, &Problems{What: "plan", List: problems}
	}
	return p, nil
}

// Tasks lists every subtask, vertex by vertex.
func (p *Plan) Tasks() []Task {
	var out []Task
	for _, v := range p.Vertices {
		for i := range v.Parallelism {
			out = append(out, Task{v.Name, i})
		}
	}
	return out
}

// Slots is the number of slots that the job needs: its highest parallelism, enumerators aside.
func (p *Plan) Slots() int {
	n := 0
	for _, v := range p.Vertices {
		if !v.Enumerator {
			n = max(n, v.Parallelism)
		}
	}
	return max(n, 1)
}

// Vertex returns the index of the vertex with that name, or -1.
func (p *Plan) Vertex(name string) int {
	for i, v := range p.Vertices {
		if v.Name == name {
			return i
		}
	}
	return -1
}

// ChannelsIn lists the channels into subtask i of vertex v, edge by edge.
func (p *Plan) ChannelsIn(v, i int) []Channel {
	var out []Channel
	for _, id := range p.Vertices[v].In {
		e := p.Edges[id]
		if e.Partition == Forward {
			out = append(out, Channel{id, i, i})
			continue
		}
		for from := range p.Vertices[e.From].Parallelism {
			out = append(out, Channel{id, from, i})
		}
	}
	return out
}

// ChannelsOut lists the channels out of subtask i along edge id, by receiver.
func (p *Plan) ChannelsOut(id, i int) []Channel {
	e := p.Edges[id]
	if e.Partition == Forward {
		return []Channel{{id, i, i}}
	}
	out := make([]Channel, p.Vertices[e.To].Parallelism)
	for to := range out {
		out[to] = Channel{id, i, to}
	}
	return out
}

// Bounded tells whether every source of the job ends.
func (p *Plan) Bounded() bool {
	for _, op := range p.Graph.Operators {
		if op.Kind == KindEnumerator && !op.Bounded {
			return false
		}
	}
	return true
}
