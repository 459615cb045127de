// Package serve puts the parts of each process together: a JobManager, a TaskManager, and a whole cluster in one
// process. It is the only package of the product that names implementations: which metadata store, which blob store,
// which state backends, which transport.
//
// Start reading at JobManager (jobmanager.go) and TaskManager (taskmanager.go); each is a function that returns when its
// context ends, after it has drained. leader.go is how a JobManager leads and stops leading, local.go the cluster in one
// process, http.go the endpoints for people and probes.
//
// Goroutines are in one internal/group per process, by name: "grpc", "http", "election" (campaigns, and runs the
// coordinator while it leads), "metadata store" (says once a second that it is away) in a JobManager; "data", "http",
// "session" in a TaskManager. What they start themselves is described in coordinator, task, rpc and exchange/grpc.
package serve
