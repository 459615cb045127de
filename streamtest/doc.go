// Package streamtest runs a job, or one operator of it, inside a test: the real runtime in one
// process, without files, network or waiting.
//
// [Run] gives a test a [Harness] in a bubble of testing/synctest. The clock stands still there
// until the test moves it, and "everything that was pushed is processed" is a state that the
// harness can wait for ([Harness.Settle]), so that tests need no sleeps and give the same answer
// each time. Records come from an [Input] and end in an [Output]; both stand for systems outside:
// they survive crashes and restores, an Input repeats what a restored job has to read again, and an
// Output forgets what the restored checkpoint does not know.
//
// [Equivalent] runs an operator many times, with its input in random interleavings and batches and
// with crashes and restores at random places, and checks that the answer is always the same.
//
// Start reading at [Run] and the example. Goroutines are those of the runtime, which end with the
// test; the harness itself works on the test's own.
package streamtest
