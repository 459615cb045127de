// Package coordinator runs the jobs of a cluster for as long as one JobManager leads it.
//
// It is the shell of three pure machines: coordinator/lifecycle decides how a job lives,
// coordinator/checkpoint what happens to its checkpoints, scheduler where its tasks run. The shell
// feeds them events and carries out what they say. Start reading at Coordinator (coordinator.go); a
// job's loop is in loop.go, what it does for its machines in lifecycle.go and checkpoint.go, what is on
// record in record.go and write.go, recovery in recover.go, where objects are deleted in deletion.go, sessions of workers in session.go,
// what callers ask in api.go and submit.go.
//
// Goroutines, all in one internal/group that Close waits for:
//   - "job ID": one per job that is not over. It owns the two machines and everything in jobLoop.
//     Others send it mail, which never blocks; it publishes immutable views for readers.
//   - "job ID: OPERATION": I/O for a job (a publication, a reservation, a record). It ends by mailing
//     its answer.
//   - "job ID: deletions": deletes objects, with backoff, so that nothing else waits for it.
//   - "heartbeats": counts silent ticks of the sessions.
//   - "leadership": stops everything, without writing anything, when the leadership is lost.
//
// Coordinator.mu guards the registers of workers, slots and jobs; no I/O, send or callback is made
// under it.
//
// Identity of a job. An id belongs to one line of state. A job that failed, or was cancelled with its
// checkpoints retained, goes on under its own id when its name is submitted again: attempts and
// checkpoint ids grow on, objects keep their owner, and sinks meet the names and transactions that
// they made before. A job that finished, that has no checkpoint, or that is submitted afresh starts
// under a new id; the name then belongs to that one.
//
// Order of records. Attempts and checkpoint ids are durable before they are used; the terminal record
// is durable before anybody is told and before anything is cleaned up; a pointer is removed before
// what it points to is deleted. All writes are guarded by the leadership.
package coordinator
