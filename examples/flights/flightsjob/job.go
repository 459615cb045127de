package flightsjob

import (
	"strconv"
	"time"

	"github.com/cairnstream/cairn/connector/file"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/stream"
	"github.com/cairnstream/cairn/watermark"
)

// Bound is how much later than a flight's departure its record may come.
const Bound = time.Hour

// DailyJob counts the flights and sums up the delays of each airport and day. Its arguments are input, a file or a
// pattern, and output, a directory; rate, records per second over all, and files-in-order (true), which says that the
// files follow each other in time, may be given too.
func DailyJob(j *stream.Job) {
	rate, err := strconv.ParseFloat(j.ArgOr("rate", "0"), 64)
	if err != nil {
		j.Fail("argument rate: %v", err)
	}
	inOrder, err := strconv.ParseBool(j.ArgOr("files-in-order", "false"))
	if err != nil {
		j.Fail("argument files-in-order: %v", err)
	}
	j.Source("flights", file.Source[Flight]{Paths: []string{j.Arg("input")}, Decode: Decode, Rate: rate, InOrder: inOrder}).
		Timestamps(func(f *Flight) time.Time { return f.Time }, watermark.Bounded(Bound)).
		KeyBy(func(f *Flight) string { return f.Origin }).
		Window("daily", window.Tumbling(24*time.Hour)).
		Aggregate(Delays{}).
		Sink("out", file.Sink[Daily]{Path: j.Arg("output"), Format: file.CSV})
}

// Delays is what is known of the flights of one airport and day.
type Delays struct{ Flights, Total, Max int64 }

// Zero implements window.Aggregator.
func (Delays) Zero() Delays { return Delays{} }

// Add implements window.Aggregator.
func (Delays) Add(d *Delays, f *Flight) {
	if d.Flights == 0 || f.Delay > d.Max {
		d.Max = f.Delay
	}
	d.Flights++
	d.Total += f.Delay
}

// Merge implements window.Aggregator.
func (Delays) Merge(into, from *Delays) {
	switch {
	case from.Flights == 0:
		return
	case into.Flights == 0:
		*into = *from
		return
	}
	into.Flights += from.Flights
	into.Total += from.Total
	into.Max = max(into.Max, from.Max)
}

// Result implements window.Aggregator.
func (Delays) Result(p window.Pane[string], d *Delays) Daily {
	return Daily{Origin: p.Key, Day: time.UnixMilli(p.Start).UTC(), Flights: d.Flights, TotalDelay: d.Total, MaxDelay: d.Max}
}
