// Package job holds the nouns that every other package shares: ids, the graph that a program
// builds, the physical plan that JobManager and TaskManagers derive from it, settings, failures,
// and the messages that a coordinator and a worker exchange.
//
// It is pure: no clock, no goroutine, no I/O. Start reading at Graph (graph.go), then Plan
// (plan.go), then the messages (command.go, report.go).
package job
