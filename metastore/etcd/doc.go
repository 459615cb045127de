// Package etcd is a metastore.Store on etcd: [Open] connects to a cluster, [StartEmbedded] runs a member of its own
// inside this process, for which Open is then the client.
//
// An election is one key, bound to a lease of the leader. Its create revision is the epoch, and every commit is a
// transaction that compares it. Data lies under PREFIX/kv/, elections under PREFIX/election/.
//
// While etcd is away the leadership goes on for a while, and is taken again if nobody else had it: see term.go.
//
// Goroutines: one per leadership, which renews the lease, takes a new one, and closes Lost when it cannot; it ends with
// the leadership.
// The client library has its own, until Close.
package etcd
