// Package task runs subtasks: a Manager per TaskManager process, which carries out the
// coordinator's commands, and a goroutine per subtask, which runs a chain of operators.
//
// The goroutine of a subtask owns its gate, its operators, their state and its outputs. Everything
// else sends it mail: functions that it runs between two batches (mailbox.go). Start reading at
// subtask.loop (loop.go); what a barrier does is in checkpoint.go.
//
// Goroutines: one per subtask (named after it), which its run waits for; one per snapshot being
// uploaded, which the subtask waits for before it ends; one of the Manager that sends counters.
package task
