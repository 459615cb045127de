//go:build !race

package pebble_test

const raced = false
