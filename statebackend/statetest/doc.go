// Package statetest is the specification of state backends as a test: Run passes for each of them. Start
// reading at Run. Objects is a store of sections in memory that fails and damages on cue.
package statetest
