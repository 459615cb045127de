//go:build race

package pebble_test

// raced tells that the race detector is on, which makes the suites with little memory take a quarter of an hour: make test runs
// them once without it.
const raced = true
