package main

import (
	"bytes"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/cli"
)

// What the benchmark is asked for in a wrong way is wrong usage, and it says what there is.
func TestBenchUsage(t *testing.T) {
	for _, c := range []struct {
		args, says string
	}{
		{"--query nonsense", `there is no query "nonsense"; there are: events, q0, q1,`},
		{"--query=", `there is no query ""`},
		{"--query keyed-count/x", `query "keyed-count/x": the number of keys`},
		{"--backend nonsense", `"nonsense" is not fs or memory`},
		{"--output nonsense", `"nonsense" is not table or json`},
		{"--events 0", `"0" is not a number from 1 on`},
	} {
		a := cli.New(nil)
		var stdout, stderr bytes.Buffer
		a.Stdout, a.Stderr = &stdout, &stderr
		a.Add(benchCommand)
		code := a.Cairn(append([]string{"bench", "nexmark"}, strings.Fields(c.args)...))
		if code != cli.Usage || stdout.Len() > 0 || !strings.Contains(stderr.String(), c.says) {
			t.Errorf("%s: exit %d\n%s%s", c.args, code, &stdout, &stderr)
		}
	}
}
