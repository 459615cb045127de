// Command cairn controls jobs, and runs the processes of a cluster.
package main

import (
	"os"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/bench/nexmark"
	"github.com/cairnstream/cairn/cli"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
	"github.com/cairnstream/cairn/stream"
)

// flightsProgram is the program of the demo.
const flightsProgram = "flights-daily"

// programs are those that are built in.
func programs() []stream.Program {
	return []stream.Program{
		cairn.Program(flightsProgram, flightsjob.DailyJob),
		cairn.Program("flights-sliding", flightsjob.SlidingJob),
		cairn.Program("flights-sessions", flightsjob.SessionsJob),
		nexmark.Program(),
	}
}

func main() {
	a := cli.New(cairn.NewPrograms(programs()...))
	a.Add(demoCommand)
	a.Add(benchCommand)
	os.Exit(a.Cairn(os.Args[1:]))
}
