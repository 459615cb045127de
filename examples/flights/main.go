// Command flights aggregates flights by airport and time: the main example.
//
//	go run ./examples/flights run flights-daily --arg input='data/*.ndjson' --arg output=out
//
// flights-sliding and flights-sessions take the same arguments.
package main

import (
	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
)

func main() {
	cairn.Main(
		cairn.Program("flights-daily", flightsjob.DailyJob),
		cairn.Program("flights-sliding", flightsjob.SlidingJob),
		cairn.Program("flights-sessions", flightsjob.SessionsJob),
	)
}
