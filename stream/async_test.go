package stream_test

import (
	"context"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

func lookup(context.Context, order) (spent, error) { return spent{}, nil }

// An operator that calls the outside starts a chain of its own and keeps records in checkpoints.
func TestAsync(t *testing.T) {
	bp, err := stream.Build(stream.Program{Name: "p", Build: func(j *stream.Job) {
		j.Source("orders", orders()).Filter("", keepAll[order]).
			Async("lookup", operator.AsyncOptions{}, lookup).
			Filter("", keepAll[spent]).Sink("out", collect.New[spent]())
	}}, nil)
	if err != nil {
		t.Fatal(err)
	}
	op := bp.Graph.Operators[3]
	if op.Kind != job.KindAsync || !op.Stateful || len(op.State) != 1 || op.State[0].Name != operator.CallsState || op.State[0].Value == "" {
		t.Errorf("the operator is %+v", op)
	}
	plan, err := job.NewPlan(bp.Graph, job.DefaultSettings())
	if err != nil {
		t.Fatal(err)
	}
	if v := plan.Vertices[plan.Vertex("lookup")]; len(v.Operators) != 3 || plan.Edges[v.In[0]].Partition != job.Forward {
		t.Errorf("the chain is %+v", v)
	}
}

func TestAsyncProblems(t *testing.T) {
	got := problems(t, nil, func(j *stream.Job) {
		s := j.Source("orders", orders())
		s.Async("", operator.AsyncOptions{}, lookup).Sink("a", collect.New[spent]())
		s.AsyncWith("nothing", operator.AsyncOptions{Timeout: -time.Second}, operator.AsyncCalls[order, spent]{}).Sink("b", collect.New[spent]())
		s.Async[spent]("nil", operator.AsyncOptions{}, nil).Sink("c", collect.New[spent]())
		s.Map("funcs", func(*order) func() { return nil }).
			Async("odd", operator.AsyncOptions{}, func(context.Context, func()) (spent, error) { return spent{}, nil }).Sink("d", collect.New[spent]())
	})
	expect(t, got,
		"without one: async-2 (async)",
		`async "nothing" behind "orders": the function is nil`,
		`async "nothing": timeout -1s is negative`,
		`async "nil" behind "orders": the function is nil`,
		`async "odd": its records are part of checkpoints`,
	)
}
