// Package lifecycle decides how one job lives: when it is placed, deployed, started, cancelled,
// restarted, and how it ends. It never acts.
//
// Start reading at Machine (machine.go) and the table of transitions (state.go); then Event
// (event.go) and Action (action.go), whose comments are the contract with the shell. task.go follows
// the tasks of an attempt, restart.go says what a failure leads to.
//
// The package is pure: no clock, no goroutine, no I/O. A Machine is owned by the goroutine of its job.
package lifecycle
