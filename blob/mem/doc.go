// Package mem is a blob.Store in memory, for tests and for runs within one process. It follows the contract to the
// letter, also where other stores are more lenient (keys that conflict are refused). Start reading at [New]; for
// faults on cue wrap it with blob/faulty. It starts no goroutines.
package mem
