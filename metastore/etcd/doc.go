// Package etcd is a metastore.Store on etcd: [Open] connects to a cluster, [StartEmbedded] runs a member of its own
// inside this process, for which Open is then the client.
//
// An election is one key, bound to a lease of the leader. Its create revision is the epoch, and every commit is a
// transaction that compares it. Data lies under PREFIX/kv/, elections under PREFIX/election/.
//
// Goroutines: one per leadership, which waits for the lease to end and then closes Lost; it ends with the leadership.
// The client library has its own, until Close.
package etcd
