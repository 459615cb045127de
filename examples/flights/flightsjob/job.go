package flightsjob

import (
	"strconv"
	"time"

	"github.com/cairnstream/cairn/connector/file"
	"github.com/cairnstream/cairn/operator"
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
	read(j, input(j)).
		KeyBy(func(f *Flight) string { return f.Origin }).
		Window("daily", window.Tumbling(24*time.Hour)).
		Aggregate(Delays{}).
		Sink("out", file.Sink[Daily]{Path: j.Arg("output"), Format: file.CSV})
}

// SlidingJob does the same for the flights to each airport in each 6 hours, every 2 hours. Its
// arguments are those of DailyJob.
func SlidingJob(j *stream.Job) { sliding(j, input(j)) }

func sliding(j *stream.Job, src operator.Source[Flight]) {
	read(j, src).
		KeyBy(func(f *Flight) string { return f.Destination }).
		SlidingWindow("sliding", window.Sliding(6*time.Hour, 2*time.Hour)).
		Aggregate(window.Functions[string, Flight, Delays, Sliding]{
			AddTo: Delays{}.Add, MergeOf: Delays{}.Merge,
			ResultOf: func(p window.Pane[string], d *Delays) Sliding {
				return Sliding{p.Key, p.StartTime(), d.Flights, d.Total}
			},
		}).
		Sink("out", file.Sink[Sliding]{Path: j.Arg("output"), Format: file.CSV})
}

// SessionsJob does the same for the flights from each airport that follow each other by less than 6
// hours. Its arguments are those of DailyJob.
func SessionsJob(j *stream.Job) { sessions(j, input(j)) }

func sessions(j *stream.Job, src operator.Source[Flight]) {
	const gap = 6 * time.Hour
	read(j, src).
		KeyBy(func(f *Flight) string { return f.Origin }).
		SessionWindow("sessions", window.Session(gap)).
		Aggregate(window.Functions[string, Flight, Delays, Busy]{
			AddTo: Delays{}.Add, MergeOf: Delays{}.Merge,
			ResultOf: func(p window.Pane[string], d *Delays) Busy {
				return Busy{p.Key, p.StartTime(), p.EndTime().Add(-gap), d.Flights, d.Total}
			},
		}).
		Sink("out", file.Sink[Busy]{Path: j.Arg("output"), Format: file.CSV})
}

// read is the flights from src with their times.
func read(j *stream.Job, src operator.Source[Flight]) stream.Stream[Flight] {
	return j.Source("flights", src).
		Timestamps(func(f *Flight) time.Time { return f.Time }, watermark.Bounded(Bound))
}

// input is the source that the arguments describe.
func input(j *stream.Job) operator.Source[Flight] {
	rate, err := strconv.ParseFloat(j.ArgOr("rate", "0"), 64)
	if err != nil {
		j.Fail("argument rate: %v", err)
	}
	inOrder, err := strconv.ParseBool(j.ArgOr("files-in-order", "false"))
	if err != nil {
		j.Fail("argument files-in-order: %v", err)
	}
	return file.Source[Flight]{Paths: []string{j.Arg("input")}, Decode: Decode, Rate: rate, InOrder: inOrder}
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
