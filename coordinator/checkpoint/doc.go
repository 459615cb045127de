// Package checkpoint decides what happens to the checkpoints of one job: when one starts, what an
// acknowledgement means, when it is published, aborted, kept or deleted. It never acts.
//
// Start reading at Machine (machine.go); then Event (event.go) and Action (action.go), whose comments
// are the contract with the shell. pending.go is one checkpoint on its way, trigger.go says when one
// starts, publish.go how one commits, retain.go which objects may be deleted.
//
// The package is pure: no clock, no goroutine, no I/O. A Machine is owned by the goroutine of its job.
// It lives as long as the job has a leader, over many attempts.
package checkpoint
