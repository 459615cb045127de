// Package rpc is how processes talk to each other: the protos of proto/cairn/v1 on the wire, the types of package
// job on both ends.
//
// There are two services. [Jobs] is the API that the command line uses: [JobServer] serves an implementation of it,
// [Client] is one that asks a JobManager. A [Coordinator] is what TaskManagers report to: [WorkerServer] serves it,
// [Session] keeps the other end. Start reading there; convert_*.go has the mappings, errors.go the kinds of errors and
// their status codes, server.go and dial.go the limits of connections.
//
// Goroutines: WorkerServer has two per session, which the gRPC server starts and waits for: one that receives, and
// hands reports to the coordinator, and one that sends what is in the session's queue. Session.Run has the same two
// while it is connected. The queue between never blocks whoever puts something into it.
package rpc
