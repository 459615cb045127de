// Package scheduler decides which worker runs which subtask.
//
// Start reading at Place (place.go): an immutable View of the workers and a Request go in, a Plan or
// the Shortfall (shortfall.go) that says exactly what is lacking comes out. A slot holds at most one
// subtask of each vertex of one job, so a job needs as many slots as its highest parallelism;
// enumerators need none.
//
// The package is pure: no clock, no goroutine, no I/O, no order of a map in its results.
package scheduler
