package file

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// probe makes sure that a directory can be written to and is the same one for all subtasks. Each leaves a hidden mark
// there before any task runs, and looks for all marks before it makes anything durable. A subtask that closes says so
// in the name of its mark; the last one removes them all.
type probe struct {
	disk    disk
	dir     string
	c       operator.SinkContext
	checked bool
}

const closedMark = ".closed"

var probeName = regexp.MustCompile(`^\.probe-([^-]+)-a(\d+)-s\d+-.+$`)

func (p *probe) name(subtask int) string {
	return fmt.Sprintf(".probe-%s-a%d-s%d-%s", escape(string(p.c.Run.Job)), p.c.Run.Attempt, subtask, escapeSink(p.c.Name))
}

func parseProbe(name string) (job.Run, bool) {
	m := probeName.FindStringSubmatch(name)
	if m == nil {
		return job.Run{}, false
	}
	var n numbers
	run := job.Run{Job: job.ID(unescape(m[1])), Attempt: job.Attempt(n.parse(m[2]))}
	return run, !n.bad
}

// write leaves the mark and reads it back.
func (p *probe) write() error {
	path := filepath.Join(p.dir, p.name(p.c.Subtask))
	text := []byte("Cairn looks whether all of its processes see this file.\n")
	if err := p.disk.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return p.fail(err)
	}
	f, err := p.disk.Create(path)
	if err != nil {
		return p.fail(err)
	}
	_, err = f.Write(text)
	if err := errors.Join(err, f.Close()); err != nil {
		return p.fail(err)
	}
	in, err := p.disk.Open(path)
	if err != nil {
		return p.fail(err)
	}
	got, err := io.ReadAll(in)
	in.Close()
	if err == nil && !bytes.Equal(got, text) {
		err = fmt.Errorf("%s reads back as %s", path, quoteBytes(got))
	}
	if err != nil {
		return p.fail(err)
	}
	return nil
}

// check looks for the marks of all subtasks, once.
func (p *probe) check() error {
	if p.checked || p.c.Parallelism <= 1 {
		return nil
	}
	there, err := p.marks()
	if err != nil {
		return p.fail(err)
	}
	for i := range p.c.Parallelism {
		if name := p.name(i); !there[name] && !there[name+closedMark] {
			return job.Errorf(job.ClassExternal, "output directory %s is not one and the same for all TaskManagers: subtask %d does not see the mark %s of subtask %d; use a shared file system",
				p.dir, p.c.Subtask, name, i)
		}
	}
	p.checked = true
	return nil
}

func (p *probe) marks() (map[string]bool, error) {
	names, err := p.disk.List(p.dir)
	if err != nil {
		return nil, err
	}
	there := map[string]bool{}
	for _, name := range names {
		if strings.HasPrefix(name, ".probe-") {
			there[name] = true
		}
	}
	return there, nil
}

// close says that this subtask needs the marks no more. What it cannot remove the next attempt does.
func (p *probe) close() {
	own := p.name(p.c.Subtask)
	if p.c.Parallelism <= 1 {
		_ = p.disk.Remove(filepath.Join(p.dir, own))
		return
	}
	_ = p.disk.Rename(filepath.Join(p.dir, own), filepath.Join(p.dir, own+closedMark))
	there, err := p.marks()
	if err != nil {
		return
	}
	for i := range p.c.Parallelism {
		if !there[p.name(i)+closedMark] && there[p.name(i)] {
			return
		}
	}
	for i := range p.c.Parallelism {
		_ = p.disk.Remove(filepath.Join(p.dir, p.name(i)+closedMark))
	}
}

func (p *probe) fail(err error) error {
	return job.Errorf(job.ClassExternal, "output directory %s cannot be used: %w", p.dir, err)
}
