// Package transport measures the exchange alone between two processes: how many records a second a
// hash edge with four subtasks a side carries, and how long a record alone on an idle stream takes.
//
// [Load.Measure] is the sending process; it starts the receiving one, in which [Load.Receive] runs.
package transport
