// Command taskmanager runs a TaskManager with the built-in programs.
package main

import (
	"os"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/cli"
	"github.com/cairnstream/cairn/examples/flights/flightsjob"
)

func main() {
	p := cairn.NewPrograms(
		cairn.Program("flights-daily", flightsjob.DailyJob),
		cairn.Program("flights-sliding", flightsjob.SlidingJob),
		cairn.Program("flights-sessions", flightsjob.SessionsJob),
	)
	os.Exit(cli.New(p).TaskManager(os.Args[1:]))
}
