package stream_test

import (
	"fmt"
	"time"

	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/connector/datagen"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

type Purchase struct {
	Customer string
	Cents    int64
	At       time.Time
}

type Total struct {
	Customer string
	Minute   time.Time
	Cents    int64
}

// A first job: what each customer spends per minute.
func Example() {
	purchases := datagen.Source[Purchase]{Count: 1000, Make: func(n int64, p *Purchase) {
		*p = Purchase{Customer: fmt.Sprint("c", n%7), Cents: n, At: time.Unix(n, 0)}
	}}
	program := stream.Program{Name: "spending", Build: func(j *stream.Job) {
		j.Source("purchases", purchases).
			Timestamps(func(p *Purchase) time.Time { return p.At }, watermark.Bounded(5*time.Second)).
			Filter("paid", func(p *Purchase) bool { return p.Cents > 0 }).
			KeyBy(func(p *Purchase) string { return p.Customer }).
			Window("per-minute", window.Tumbling(time.Minute)).
			Aggregate(window.Functions[string, Purchase, int64, Total]{
				AddTo: func(sum *int64, p *Purchase) { *sum += p.Cents },
				ResultOf: func(p window.Pane[string], sum *int64) Total {
					return Total{p.Key, time.UnixMilli(p.Start), *sum}
				},
			}).
			Sink("totals", collect.New[Total]())
	}}
	job, err := stream.Build(program, nil)
	if err != nil {
		fmt.Println(err)
		return
	}
	for _, op := range job.Graph.Operators {
		fmt.Println(op.Kind, op.Name)
	}
	// Output:
	// enumerator purchases.splits
	// reader purchases
	// filter paid
	// window per-minute
	// sink totals
}
