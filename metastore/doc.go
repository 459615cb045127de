// Package metastore is the contract for the small, linearizable store of what a cluster must agree on: who leads,
// which jobs there are, and which checkpoints exist. Large data is in the blob store; here are pointers to it.
//
// Reading is open to everybody. Writing is only possible through a [Leadership], by transactions that hold only
// while that leadership does: a JobManager that was paused, cut off or replaced cannot change anything any more,
// whatever it believes. Start reading at [Store], then [Leadership] and [Settle].
//
// Implementations: metastore/etcd (a cluster of its own, or embedded in the process) and metastore/mem (tests, and
// runs within one process). metatest.Run is the specification that every implementation passes.
//
// The package starts no goroutines and has no state.
package metastore
