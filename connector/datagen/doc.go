// Package datagen makes input: [Source] computes records from their index, [Slice] serves records that the program
// holds. Both are deterministic, so that a job that restarts reads the same records again.
//
// Start reading at [Source.Splits]. The package starts no goroutines.
package datagen
