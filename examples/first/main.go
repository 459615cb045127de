package main

import (
	"time"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/connector/file"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/watermark"
)

type Order struct {
	Customer string    `json:"customer"`
	Cents    int64     `json:"cents"`
	At       time.Time `json:"at"`
}

type Total struct {
	Customer string
	Minute   time.Time
	Cents    int64
}

func OrderTotals(j *cairn.Job) {
	sum := window.Functions[string, Order, int64, Total]{
		AddTo:    func(sum *int64, o *Order) { *sum += o.Cents },
		ResultOf: func(p window.Pane[string], sum *int64) Total { return Total{p.Key, p.StartTime(), *sum} },
	}
	j.Source("orders", file.Source[Order]{Paths: []string{j.Arg("input")}}).
		Timestamps(func(o *Order) time.Time { return o.At }, watermark.Bounded(5*time.Second)).
		Filter("positive", func(o *Order) bool { return o.Cents > 0 }).
		KeyBy(func(o *Order) string { return o.Customer }).
		Window("per-minute", window.Tumbling(time.Minute)).Aggregate(sum).
		Sink("totals", file.Sink[Total]{Path: j.Arg("output"), Format: file.CSV})
}

func main() { cairn.Main(cairn.Program("order-totals", OrderTotals)) }
