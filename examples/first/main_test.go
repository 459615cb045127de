package main

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstream/cairn"
	"github.com/cairnstream/cairn/cli"
)

// The job that the README shows is this one, and it is short.
func TestReadme(t *testing.T) {
	source, err := os.ReadFile("main.go")
	if err != nil {
		t.Fatal(err)
	}
	readme, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(readme), "```go\n"+string(source)+"```\n") {
		t.Error("README.md does not hold examples/first/main.go word for word")
	}
	if n := strings.Count(string(source), "\n"); n >= 40 {
		t.Errorf("the first job has %d lines, want fewer than 40", n)
	}
}

func TestRun(t *testing.T) {
	const input = "orders.ndjson" // What the README runs it on.
	out := filepath.Join(t.TempDir(), "out")
	app := cli.New(cairn.NewPrograms(cairn.Program("order-totals", OrderTotals)))
	var progress strings.Builder
	app.Stderr, app.Stdout = &progress, &progress
	if code := app.Program([]string{"run", "order-totals", "--arg", "input=" + input, "--arg", "output=" + out}); code != 0 {
		t.Fatalf("exit code %d\n%s", code, &progress)
	}
	parts, err := filepath.Glob(filepath.Join(out, "*.csv"))
	if err != nil {
		t.Fatal(err)
	}
	var rows []string
	for _, p := range parts {
		data, err := os.ReadFile(p)
		if err != nil {
			t.Fatal(err)
		}
		rows = append(rows, strings.Split(strings.TrimSpace(string(data)), "\n")[1:]...)
	}
	slices.Sort(rows)
	want := []string{"ann,2026-03-01T10:00:00Z,300", "ann,2026-03-01T10:01:00Z,1", "bob,2026-03-01T10:00:00Z,100"}
	if !slices.Equal(rows, want) {
		t.Errorf("got %q, want %q", rows, want)
	}
}
