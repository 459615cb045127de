//go:build broken

package main

const version = 4

// count was a number.
type count = string

func add(c *count)        { *c += "1" }
func countOf(count) int64 { return 0 }
