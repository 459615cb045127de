// Package cairn is what a program's main needs to be a Cairn binary: Main, Program, and short names
// of what jobs are described with. The typed API itself is package stream; sources and sinks are the
// packages below connector.
//
//	func main() { cairn.Main(cairn.Program("order-totals", OrderTotals)) }
package cairn

import (
	"os"

	"github.com/cairnstream/cairn/cli"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/stream"
)

// Job is the job that a program builds; see stream.Job.
type Job = stream.Job

// Stream is a flow of records; see stream.Stream.
type Stream[T any] = stream.Stream[T]

// Collector takes what user code emits; see operator.Collector.
type Collector[T any] = operator.Collector[T]

// States declares the states of a Process operator; see operator.States.
type States[K comparable] = operator.States[K]

// Handler is what a Process operator does; see operator.Handler.
type Handler[K comparable, T, U any] = operator.Handler[K, T, U]

// KeyedContext is what a Handler works with; see operator.KeyedContext.
type KeyedContext[K comparable, U any] = operator.KeyedContext[K, U]

// The modes of checkpoints, for Job.Set("checkpoint.mode", ...).
const (
	ExactlyOnce = string(job.ExactlyOnce)
	AtLeastOnce = string(job.AtLeastOnce)
	Off         = string(job.Off)
)

// Program names a function that builds a job. The function is called where the job is submitted and
// on every TaskManager that runs a part of it, and must build the same graph from the same arguments.
func Program(name string, build func(*Job)) stream.Program {
	return stream.Program{Name: name, Build: build}
}

// Main is the main function of a binary with these programs: it has the subcommands run, list, plan,
// submit, taskmanager and local. It does not return.
func Main(programs ...stream.Program) {
	os.Exit(cli.New(NewPrograms(programs...)).Program(os.Args[1:]))
}
