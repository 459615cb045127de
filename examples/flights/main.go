// Command flights aggregates flights by origin and day: the main example.
//
//	go run ./examples/flights run flights-daily --arg input='data/*.ndjson' --arg output=out
package main

import (
	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
)

func main() { cairn.Main(cairn.Program("flights-daily", flightsjob.DailyJob)) }
