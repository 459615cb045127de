package statebackend_test

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

func TestRecovered(t *testing.T) {
	full := &fs.PathError{Op: "write", Path: "/data/state/tm-1/ops/000012.sst", Err: syscall.ENOSPC}
	for name, c := range map[string]struct {
		thrown any
		class  job.Class
		want   []string
		stack  bool
	}{
		"user code":             {"index out of range", job.ClassUser, []string{"panic: index out of range"}, true},
		"an error of user code": {io.ErrUnexpectedEOF, job.ClassUser, []string{"panic: unexpected EOF"}, true},
		"a fault": {
			statebackend.Fault{Err: fmt.Errorf("operator %q, state %q: read block: %w", "totals", "sum", io.ErrUnexpectedEOF)},
			job.ClassExternal, []string{`access to state: operator "totals", state "sum": read block: unexpected EOF`}, false,
		},
		"a fault of ours": {
			statebackend.Fault{Err: job.Errorf(job.ClassInternal, "key order")}, job.ClassInternal, []string{"key order"}, false,
		},
		"a fault that user code wrapped": {
			fmt.Errorf("while totalling: %w", statebackend.Fault{Err: io.ErrUnexpectedEOF}), job.ClassExternal,
			[]string{"access to state: while totalling: unexpected EOF"}, false,
		},
		"a full disk": {
			statebackend.Fault{Err: full}, job.ClassExternal,
			[]string{"no space left on device", "the disk of /data/state/tm-1/ops/000012.sst is full", "--dir"}, false,
		},
		"a full disk without a path": {
			statebackend.Fault{Err: fmt.Errorf("flush: %w", syscall.EDQUOT), Path: "/data"}, job.ClassExternal,
			[]string{"flush: disk quota exceeded: the disk of /data is full"}, false,
		},
		"a full disk somewhere": {
			statebackend.Fault{Err: syscall.ENOSPC}, job.ClassExternal, []string{"the disk of local state is full"}, false,
		},
	} {
		err := statebackend.Recovered(c.thrown)
		f := job.FailureOf("totals/1", "tm-1", err)
		if f.Class != c.class || (f.Stack != "") != c.stack || !f.Retriable() {
			t.Errorf("%s: %s, stack of %d bytes", name, f.Class, len(f.Stack))
		}
		for _, want := range c.want {
			if !strings.Contains(f.Message, want) {
				t.Errorf("%s: %q does not say %q", name, f.Message, want)
			}
		}
		if thrown, ok := c.thrown.(error); ok && c.class != job.ClassUser && !errors.Is(err, thrown) && !errors.As(err, new(statebackend.Fault)) {
			t.Errorf("%s: the fault is lost in %v", name, err)
		}
	}
}
