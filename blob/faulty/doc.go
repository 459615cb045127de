// Package faulty wraps a blob.Store so that it fails on cue: errors before or after the effect, latency, and objects
// that are damaged when they are read. It is for tests of everything that uses a store. Start reading at [Store] and
// [Rule]. It starts no goroutines; chance comes from a seed.
package faulty
