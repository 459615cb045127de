package main

import (
	"context"
	"slices"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/stream"
)

// bar is something that is measured against a limit, or several that one measurement gives.
type bar struct {
	name    string
	what    string
	measure func(context.Context, config) ([]figure, error)
}

// bars are all of them, in the order of measurement.
var bars = []bar{
	{"sum", "filter, map, key-by, running sum over 100 k keys against a hand-written loop, one core; allocations", measureSum},
	{"chain", "an operator added to a chain, records of 24, 32 and 128 bytes", measureChain},
	{"exchange", "records of 24 bytes between two processes, hash edge, 4 subtasks a side", measureExchange},
	{"lone", "a record alone on an idle stream between two TaskManagers", measureLone},
	{"checkpoints", "a checkpoint every second against none, 1 M and 10 k keys", measureCheckpoints},
	{"often", "1,000 checkpoints of an idle job, one every 100 ms", measureOften},
	{"empty", "objects that a checkpoint of 200 subtasks without data writes", measureEmpty},
	{"pause", "the longest pause by freezing or merging 1 M keys", measurePause},
	{"state", "10 M keys of the backend fs: memory, increments, restore, against a Go map", measureState},
	{"recovery", "kill -9 of a TaskManager to the first record after the restart", measureRecovery},
	{"idle", "a TaskManager with an idle job", measureIdle},
	{"parallel", "CPU of a record at parallelism 1, 2, 4 and 8", measureParallel},
	{"channels", "10,000 channels between 200 subtasks: CPU without data, memory with", measureChannels},
	{"timers", "5 M timers due at one watermark, and a barrier behind it", measureTimers},
	{"start", "from the start of a JobManager with embedded etcd to its first answer", measureStart},
}

// programs are the jobs that the bars run.
func programs() []stream.Program {
	return slices.Concat(
		[]stream.Program{
			cairn.Program(sumProgram, sumJob),
			cairn.Program(edgeProgram, edgeJob),
			cairn.Program(loneProgram, loneJob),
			cairn.Program(stateProgram, stateJob),
			cairn.Program(steadyProgram, steadyJob),
			cairn.Program(idleProgram, idleJob),
			cairn.Program(parallelProgram, parallelJob),
			cairn.Program(wideProgram, wideJob),
			cairn.Program(emptyProgram, emptyJob),
			cairn.Program(timersProgram, timersJob),
		},
		chainPrograms(),
	)
}
