//go:build e2e

package e2e

import (
	"bufio"
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/cairnstream/cairn/bench/nexmark"
)

var everyQuery = flag.Bool("every-query", false, "kill TaskManagers under every query of the benchmark, not only three")

// TestNexmarkKills: answers of the benchmark are right with TaskManagers in processes of their own, three of which are
// killed in the middle.
func TestNexmarkKills(t *testing.T) {
	queries := []string{"q5", "q9", "q11"}
	if *everyQuery {
		queries = nexmark.Names()
	}
	for _, query := range queries {
		t.Run(query, func(t *testing.T) {
			t.Parallel()
			cmd := exec.Command(filepath.Join(bin, "cairn"), "bench", "nexmark", "--query", query, "--verify", "--events", "2000000",
				"--parallelism", "4", "--taskmanagers", "2", "--throttle", "90000", "-o", "json")
			var stdout bytes.Buffer
			cmd.Stdout = &stdout
			stderr, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			// A process that dies with its parent: the test's end is that of all.
			cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			replaced := killThree(t, stderr)
			if err := cmd.Wait(); err != nil {
				t.Fatal(err)
			}
			var r struct{ Verified *bool }
			if err := json.Unmarshal(stdout.Bytes(), &r); err != nil {
				t.Fatal(err)
			}
			if r.Verified == nil || !*r.Verified || replaced != 3 {
				t.Errorf("%d TaskManagers were replaced: %s", replaced, stdout.Bytes())
			}
		})
	}
}

// killThree kills a TaskManager every few seconds, three in all, as the benchmark names them. It returns when the benchmark
// has said everything, and how many were replaced.
func killThree(t *testing.T, says io.Reader) (replaced int) {
	pids := make(chan int, 8) // Of all that there ever are: two, and one for each kill.
	killed := make(chan struct{})
	go func() {
		defer close(killed)
		for n := range 3 {
			time.Sleep(5 * time.Second) // The run takes 22 s, without what it does again.
			pid := <-pids
			if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
				t.Errorf("kill %d of process %d: %v", n+1, pid, err)
			}
		}
	}()
	lines := bufio.NewScanner(says)
	for lines.Scan() {
		line := lines.Text()
		t.Log(line)
		if _, text, ok := strings.Cut(line, ": pid "); ok {
			var pid int
			if _, err := fmt.Sscan(text, &pid); err != nil {
				t.Errorf("%q: %v", line, err)
			}
			pids <- pid
		}
		if strings.Contains(line, "takes its place") {
			replaced++
		}
	}
	select {
	case <-killed:
	case <-time.After(20 * time.Second):
		t.Error("the run ended before the third kill")
	}
	return replaced
}
