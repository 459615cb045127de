// Package statetest is the specification of state backends as a test: Run and Model pass for each of them. Start
// reading at Run, and at Model, which compares random sequences of all that can happen with plain maps. Objects is a
// store of sections in memory that fails and damages on cue.
package statetest
