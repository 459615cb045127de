// Package statebackend is the contract of keyed state: what an operator may do with its state, and
// what a backend must do to snapshot and restore it.
//
// A Backend belongs to one operator of one subtask. The subtask's goroutine owns it; only a
// Snapshot that Freeze returned is used elsewhere. Operators see typed tables (Value); backends see
// the erased Table behind them.
package statebackend
