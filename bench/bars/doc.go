// Command bars measures every bar that the engine is built to and prints it beside its figure.
//
// Start reading at bars (bar.go), the list of all of them; each has a file. What they share:
// local.go runs jobs on a cluster in this process, cluster.go on a cluster of processes (this binary
// is their JobManager and TaskManagers too), meter.go reads clocks and counters, bench/interval says how
// far a figure can be trusted, table.go prints. The jobs stand beside the bars that run them.
package main
