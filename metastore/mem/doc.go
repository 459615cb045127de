// Package mem is a metastore.Store in memory: a [Cluster] holds the data, and every [Client] of it is a
// metastore.Store of its own, as every process has one. For tests it can take a leadership away, be unavailable, and
// leave the outcome of commits unknown, on cue. Start reading at [NewCluster]. It starts no goroutines.
package mem
