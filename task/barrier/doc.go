// Package barrier decides what a subtask does with the barriers that reach it: which channels to
// block, when to forward a barrier and take the snapshot, and when to give a checkpoint up.
//
// It is pure. The task loop reports what came in and carries out the actions, in order.
package barrier
