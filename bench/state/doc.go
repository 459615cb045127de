// Package state measures state backends with 10 M keys, each function against the bars that are set for it. Start reading at
// Measure. What it measures runs in this process alone; meter.go reads its clocks and its memory.
package state
