// Package lint checks the rules that hold the tree together and that no compiler knows: which package may import
// which (table.go), which are free of clocks, I/O and goroutines, which third-party modules stay behind one
// door, and that no file names a path of somebody's machine. It is a test, so `go test ./internal/lint` is all
// there is to run; a new package adds its row to the table in the commit that adds it.
package lint
