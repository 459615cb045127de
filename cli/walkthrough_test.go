package cli

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// The commands in pages of docs/ print what these say. -rewrite has them say what the commands print.
func TestWalkThrough(t *testing.T) {
	for _, name := range []string{"state-inspection.md", "checkpoints.md"} {
		t.Run(name, func(t *testing.T) { walkThrough(t, "../docs/"+name, "127.0.0.1:1") }) // Nobody is there.
	}
	t.Run("savepoints.md", func(t *testing.T) {
		jm, stop := fakeJobManager(t)
		defer stop()
		walkThrough(t, "../docs/savepoints.md", jm)
	})
}

// written is when the files were last changed that a page has.
var written = time.Date(2020, 1, 1, 12, 0, 0, 0, time.UTC)

func walkThrough(t *testing.T, page, jobManager string) {
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	dir := t.TempDir()
	if err := os.CopyFS(filepath.Join(dir, "examples/flights/checkpoints"), os.DirFS("../examples/flights/checkpoints")); err != nil {
		t.Fatal(err)
	}
	here, err := filepath.Abs(page)
	if err != nil {
		t.Fatal(err)
	}
	t.Chdir(dir)
	var out strings.Builder
	block, name := "", "" // The language of a block of code, and the file that it is.
	var lines []string
	for line := range strings.Lines(string(text)) {
		fence, isFence := strings.CutPrefix(line, "```")
		switch {
		case isFence && block == "":
			block, name, _ = strings.Cut(strings.TrimSpace(fence), " ")
			lines = nil
			out.WriteString(line)
		case isFence:
			switch {
			case name != "":
				err := os.MkdirAll(filepath.Dir(name), 0o755)
				if err == nil {
					err = os.WriteFile(name, []byte(strings.Join(lines, "")), 0o600)
				}
				if err == nil {
					err = os.Chtimes(name, written, written)
				}
				if err != nil {
					t.Fatal(err)
				}
				out.WriteString(strings.Join(lines, ""))
			case block == "console":
				out.WriteString(session(lines, jobManager))
			default:
				out.WriteString(strings.Join(lines, ""))
			}
			block = ""
			out.WriteString(line)
		case block != "":
			lines = append(lines, line)
		default:
			out.WriteString(line)
		}
	}
	if got := out.String(); got != string(text) {
		if flag.Lookup("rewrite").Value.String() == "true" { // Of datadriven.
			if err := os.WriteFile(here, []byte(got), 0o644); err != nil {
				t.Fatal(err)
			}
			return
		}
		was, is := strings.Split(string(text), "\n"), strings.Split(got, "\n")
		for i := range is {
			if i >= len(was) || was[i] != is[i] {
				t.Fatalf("%s, line %d: the command prints %q: run go test ./cli -run TestWalkThrough -rewrite, and read the difference", page, i+1, is[i])
			}
		}
		t.Fatalf("%s says more than the commands print", page)
	}
}

// session runs the commands of a block and gives it with what they print.
func session(lines []string, jobManager string) string {
	var out strings.Builder
	for _, line := range lines {
		command, ok := strings.CutPrefix(line, "$ ")
		if !ok {
			continue // What was printed.
		}
		out.WriteString(line)
		r := call(nil, []string{"CAIRN_JOBMANAGER=" + jobManager}, words(command)...)
		for printed := range strings.Lines(r.stdout + r.stderr) {
			fmt.Fprintln(&out, strings.TrimRight(printed, " \n"))
		}
	}
	return out.String()
}
