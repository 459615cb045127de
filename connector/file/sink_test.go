package file

import (
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"sort"
	"strings"
	"syscall"
	"testing"

	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

var _ operator.Sink[int] = Sink[int]{}

type rec struct {
	K string `csv:"k" json:"k"`
	N int    `csv:"n" json:"n"`
}

// run is one attempt of a job with one sink.
type run struct {
	t       *testing.T
	sink    Sink[rec]
	c       operator.SinkContext
	writers []operator.Writer[rec]
	commit  []operator.Committer
}

// start makes the writers of an attempt, after what from lists was committed.
func start(t *testing.T, s Sink[rec], c operator.SinkContext, from *snapshot) (*run, error) {
	t.Helper()
	if c.Name == "" {
		c.Name = "out"
	}
	if c.Parallelism == 0 {
		c.Parallelism = 1
	}
	if from != nil {
		c.Restored, c.States, c.Committables = true, from.states, from.committables
	}
	r := &run{t: t, sink: s, c: c}
	t.Cleanup(r.close)
	for i := range c.Parallelism {
		c.Subtask = i
		m, err := s.Committer(t.Context(), c)
		if err != nil {
			return nil, err
		}
		r.commit = append(r.commit, m)
		if i == 0 && from != nil {
			if err := m.Commit(t.Context(), from.committables); err != nil {
				return nil, err
			}
		}
		w, err := s.Writer(t.Context(), c)
		if err != nil {
			return nil, err
		}
		r.writers = append(r.writers, w)
	}
	return r, nil
}

func mustStart(t *testing.T, s Sink[rec], c operator.SinkContext, from *snapshot) *run {
	t.Helper()
	r, err := start(t, s, c, from)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

type snapshot struct{ states, committables [][]byte }

func (r *run) write(subtask int, rows ...rec) {
	r.t.Helper()
	if err := r.writers[subtask].Write(&record.Batch[rec]{Rows: rows}); err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) checkpoint(id job.CheckpointID) *snapshot {
	r.t.Helper()
	s := &snapshot{}
	for _, w := range r.writers {
		list, err := w.Prepare(id)
		if err != nil {
			r.t.Fatal(err)
		}
		st, err := w.State()
		if err != nil {
			r.t.Fatal(err)
		}
		s.committables = append(s.committables, list...)
		s.states = append(s.states, st)
	}
	return s
}

func (r *run) committed(s *snapshot) {
	r.t.Helper()
	if err := r.commit[0].Commit(r.t.Context(), s.committables); err != nil {
		r.t.Fatal(err)
	}
}

func (r *run) close() {
	for _, w := range r.writers {
		if err := w.Close(); err != nil {
			r.t.Error(err)
		}
	}
}

// crash leaves the writers as a kill would.
func (r *run) crash() { r.writers = nil }

func names(t *testing.T, dir string) (visible, hidden []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if strings.HasPrefix(e.Name(), ".") {
			hidden = append(hidden, e.Name())
		} else {
			visible = append(visible, e.Name())
		}
	}
	return visible, hidden
}

// output is every row in a directory, sorted.
func output(t *testing.T, dir string) []string {
	t.Helper()
	visible, _ := names(t, dir)
	var rows []string
	for _, name := range visible {
		content, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.SplitAfter(string(content), "\n")
		if lines[0] != "k,n\n" || lines[len(lines)-1] != "" || len(lines) < 3 {
			t.Errorf("%s is %q", name, content)
		}
		for _, l := range lines[1 : len(lines)-1] {
			rows = append(rows, strings.TrimSuffix(l, "\n"))
		}
	}
	sort.Strings(rows)
	return rows
}

func expect(t *testing.T, dir string, rows ...string) {
	t.Helper()
	if got := output(t, dir); !slices.Equal(got, rows) {
		t.Errorf("output is %q, expected %q", got, rows)
	}
}

func csvSink(dir string) Sink[rec] { return Sink[rec]{Path: dir, Format: CSV} }

func ctxOf(id job.ID, attempt job.Attempt, parallelism int) operator.SinkContext {
	return operator.SinkContext{Run: job.Run{Job: id, Attempt: attempt}, Parallelism: parallelism}
}

// A run without faults: parts become visible by the commit, none is empty, nothing else is left.
func TestSinkPlain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	r := mustStart(t, csvSink(dir), ctxOf("00000000000000aa", 1, 2), nil)
	r.write(0, rec{"a", 1}, rec{"b", 2})
	if err := r.writers[1].Write(&record.Batch[rec]{Rows: []rec{{"x", 0}, {"c", 3}}, Sel: []int32{1}}); err != nil {
		t.Fatal(err)
	}
	first := r.checkpoint(7)
	expect(t, dir)
	r.write(0, rec{"d", 4})
	r.committed(first)
	expect(t, dir, "a,1", "b,2", "c,3")
	if s := r.checkpoint(8); len(s.committables) != 1 {
		t.Errorf("%d committables", len(s.committables))
	} else {
		r.committed(s)
	}
	if s := r.checkpoint(9); len(s.committables) != 0 {
		t.Error("a committable of nothing")
	}
	r.close()
	expect(t, dir, "a,1", "b,2", "c,3", "d,4")
	visible, hidden := names(t, dir)
	if want := []string{
		"part-00000000000000aa-c000007-s000-a1-0-out.csv",
		"part-00000000000000aa-c000007-s001-a1-0-out.csv",
		"part-00000000000000aa-c000008-s000-a1-1-out.csv",
	}; !slices.Equal(visible, want) || hidden != nil {
		t.Errorf("names are %q and %q", visible, hidden)
	}
}

// What is not prepared goes with the writer.
func TestSinkClose(t *testing.T) {
	dir := t.TempDir()
	s := csvSink(dir)
	s.PartSize = 20
	r := mustStart(t, s, ctxOf("aa", 1, 1), nil)
	for i := range 20 {
		r.write(0, rec{"row", i})
	}
	r.close()
	if visible, hidden := names(t, dir); visible != nil || hidden != nil {
		t.Errorf("left are %q and %q", visible, hidden)
	}
	if err := r.writers[0].Write(&record.Batch[rec]{Rows: []rec{{}}}); err == nil {
		t.Error("a closed writer writes")
	}
}

// A crash at every moment, then a restore from the newest checkpoint that was committed: the output is that of a run
// without faults.
func TestSinkCrashes(t *testing.T) {
	for _, moment := range []string{"before prepare", "prepared, not committed", "committed, not renamed", "renamed in part", "renamed"} {
		dir := t.TempDir()
		s := csvSink(dir)
		r := mustStart(t, s, ctxOf("aa", 1, 2), nil)
		r.write(0, rec{"a", 1})
		r.write(1, rec{"b", 2})
		newest := r.checkpoint(1)
		r.committed(newest)
		r.write(0, rec{"c", 3})
		r.write(1, rec{"d", 4})
		again := true
		if moment != "before prepare" {
			next := r.checkpoint(2)
			again = moment == "prepared, not committed"
			if !again {
				newest = next
			}
			switch moment {
			case "renamed in part":
				r.committed(&snapshot{committables: next.committables[:1]})
			case "renamed":
				r.committed(next)
				r.committed(next)
			}
		}
		r.crash()
		for attempt := job.Attempt(2); attempt < 5; attempt++ { // Some restarts that get nowhere.
			r = mustStart(t, s, ctxOf("aa", attempt, 3), newest)
			r.write(2, rec{"lost", int(attempt)})
			r.crash()
		}
		r = mustStart(t, s, ctxOf("aa", 5, 1), newest)
		if _, hidden := names(t, dir); len(hidden) != 1 { // The mark of this attempt.
			t.Errorf("%s: hidden files after the restore: %q", moment, hidden)
		}
		if again {
			r.write(0, rec{"c", 3}, rec{"d", 4})
		}
		r.write(0, rec{"e", 5})
		last := r.checkpoint(6)
		r.committed(last)
		r.close()
		expect(t, dir, "a,1", "b,2", "c,3", "d,4", "e,5")
		if _, hidden := names(t, dir); hidden != nil {
			t.Errorf("%s: left are %q", moment, hidden)
		}
	}
}

// Parts of an aborted checkpoint are committed with a later one, and count as known.
func TestSinkAbortedCheckpoint(t *testing.T) {
	dir := t.TempDir()
	r := mustStart(t, csvSink(dir), ctxOf("aa", 1, 1), nil)
	r.write(0, rec{"a", 1})
	aborted := r.checkpoint(1)
	r.write(0, rec{"b", 2})
	s := r.checkpoint(2)
	s.committables = append(aborted.committables, s.committables...)
	r.crash()
	r = mustStart(t, csvSink(dir), ctxOf("aa", 2, 1), s)
	expect(t, dir, "a,1", "b,2")
	r.write(0, rec{"c", 3})
	next := r.checkpoint(3)
	r.committed(next)
	r.close()
	// Another job goes on from the checkpoint, twice.
	r = mustStart(t, csvSink(dir), ctxOf("bb", 1, 2), next)
	r.write(1, rec{"d", 4})
	next = r.checkpoint(1)
	r.committed(next)
	r.close()
	r = mustStart(t, csvSink(dir), ctxOf("cc", 1, 1), next)
	r.close()
	expect(t, dir, "a,1", "b,2", "c,3", "d,4")
	// From the checkpoint before, what came later is foreign.
	_, err := start(t, csvSink(dir), ctxOf("dd", 1, 1), s)
	wantError(t, "older checkpoint", err, job.ClassRefused, dir, "2 parts", "--overwrite")
	c := ctxOf("dd", 1, 1)
	c.Overwrite = true
	mustStart(t, csvSink(dir), c, s).close()
	expect(t, dir, "a,1", "b,2")
}

func TestSinkForeignParts(t *testing.T) {
	dir := t.TempDir()
	keep := filepath.Join(dir, "notes.csv")
	os.WriteFile(keep, []byte("k,n\nkept,0\n"), 0o666)
	r := mustStart(t, csvSink(dir), ctxOf("aa", 1, 1), nil)
	r.write(0, rec{"a", 1})
	first := r.checkpoint(1)
	r.committed(first)
	r.write(0, rec{"b", 1})
	r.checkpoint(2)
	r.crash()

	_, err := start(t, csvSink(dir), ctxOf("bb", 1, 1), nil)
	wantError(t, "foreign", err, job.ClassRefused, dir, "1 parts", "--overwrite", "another directory")
	expect(t, dir, "a,1", "kept,0")
	c := ctxOf("bb", 1, 2)
	c.Overwrite = true
	r = mustStart(t, csvSink(dir), c, nil)
	expect(t, dir, "kept,0")
	r.write(0, rec{"c", 1})
	s := r.checkpoint(1)
	r.committed(s)
	r.crash()
	// A restart of the job that may overwrite finds its own parts, and leaves them; those of another job are not its
	// to remove any more.
	c.Run.Attempt = 2
	mustStart(t, csvSink(dir), c, s).close()
	expect(t, dir, "c,1", "kept,0")
	os.WriteFile(filepath.Join(dir, "part-ee-c000001-s000-a1-0-out.ndjson"), nil, 0o666)
	c.Run.Attempt = 3
	_, err = start(t, csvSink(dir), c, s)
	wantError(t, "intruder", err, job.ClassRefused, dir, "another job", "while this one was running")
	if _, err := os.Stat(keep); err != nil {
		t.Error(err)
	}
}

// Without checkpoints a job commits at its end; when it fails in the middle of that it starts over.
func TestSinkStartsOver(t *testing.T) {
	dir := t.TempDir()
	r := mustStart(t, csvSink(dir), ctxOf("aa", 1, 2), nil)
	r.write(0, rec{"a", 1})
	r.write(1, rec{"b", 1})
	s := r.checkpoint(1)
	r.committed(&snapshot{committables: s.committables[:1]})
	r.crash()
	r = mustStart(t, csvSink(dir), ctxOf("aa", 2, 2), nil)
	expect(t, dir)
	r.write(1, rec{"a", 1}, rec{"b", 1})
	r.committed(r.checkpoint(1))
	r.close()
	expect(t, dir, "a,1", "b,1")
}

// Two sinks of one job may write to one directory.
func TestTwoSinks(t *testing.T) {
	dir := t.TempDir()
	ctx := func(name string, attempt job.Attempt) operator.SinkContext {
		c := ctxOf("aa", attempt, 2)
		c.Name = name
		return c
	}
	odd := "odd-name/with\x00" + strings.Repeat("länge", 60)
	a := mustStart(t, csvSink(dir), ctx("a", 1), nil)
	b := mustStart(t, csvSink(dir), ctx(odd, 1), nil)
	a.write(0, rec{"a", 1})
	b.write(0, rec{"b", 1})
	sa, sb := a.checkpoint(1), b.checkpoint(1)
	a.committed(sa)
	a.crash()
	b.crash()
	a = mustStart(t, csvSink(dir), ctx("a", 2), sa) // While parts of b wait.
	b = mustStart(t, csvSink(dir), ctx(odd, 2), sb)
	a.close()
	b.close()
	expect(t, dir, "a,1", "b,1")
	if _, hidden := names(t, dir); hidden != nil {
		t.Errorf("left are %q", hidden)
	}
}

func TestCommitErrors(t *testing.T) {
	prepare := func(t *testing.T) (dir string, r *run, s *snapshot, c committable) {
		dir = t.TempDir()
		r = mustStart(t, csvSink(dir), ctxOf("aa", 1, 1), nil)
		r.write(0, rec{"a", 1})
		s = r.checkpoint(1)
		c, err := decodeCommittable(s.committables[0])
		if err != nil {
			t.Fatal(err)
		}
		return dir, r, s, c
	}
	t.Run("both missing", func(t *testing.T) {
		dir, r, s, c := prepare(t)
		os.Remove(filepath.Join(dir, c.From))
		err := r.commit[0].Commit(t.Context(), s.committables)
		wantError(t, "commit", err, job.ClassRefused, filepath.Join(dir, c.To), c.From, "1 rows")
		r.close()
		os.RemoveAll(dir)
		err = r.commit[0].Commit(t.Context(), s.committables)
		wantError(t, "commit without directory", err, job.ClassExternal, dir)
	})
	t.Run("target differs", func(t *testing.T) {
		dir, r, s, c := prepare(t)
		for _, other := range []string{"longer than it was", strings.Repeat("x", int(c.Size))} {
			os.WriteFile(filepath.Join(dir, c.To), []byte(other), 0o666)
			err := r.commit[0].Commit(t.Context(), s.committables)
			wantError(t, "commit", err, job.ClassRefused, filepath.Join(dir, c.To), "another content")
			if got, _ := os.ReadFile(filepath.Join(dir, c.To)); string(got) != other {
				t.Error("the target was replaced")
			}
		}
	})
	t.Run("truncated", func(t *testing.T) {
		dir, r, s, c := prepare(t)
		os.Truncate(filepath.Join(dir, c.From), c.Size-1)
		err := r.commit[0].Commit(t.Context(), s.committables)
		wantError(t, "commit", err, job.ClassRefused, filepath.Join(dir, c.From), "damaged")
		expect(t, dir)
	})
	t.Run("flipped", func(t *testing.T) {
		dir, r, s, c := prepare(t)
		r.crash()
		content, _ := os.ReadFile(filepath.Join(dir, c.From))
		content[5] ^= 1
		os.WriteFile(filepath.Join(dir, c.From), content, 0o666)
		_, err := start(t, csvSink(dir), ctxOf("aa", 2, 1), s)
		wantError(t, "restore", err, job.ClassRefused, filepath.Join(dir, c.From), "damaged")
		expect(t, dir)
	})
	t.Run("nonsense", func(t *testing.T) {
		_, r, s, _ := prepare(t)
		good := string(s.committables[0])
		for _, bad := range []string{"", "{}", strings.Replace(good, `"v":1`, `"v":2`, 1), strings.Replace(good, `"from":"`, `"from":"../`, 1),
			strings.Replace(good, `"dir":"`, `"dir":"x`, 1), strings.Replace(good, `{`, `{"new":1,`, 1)} {
			err := r.commit[0].Commit(t.Context(), [][]byte{[]byte(bad)})
			wantError(t, bad, err, job.ClassRefused, "committable")
		}
	})
}

// faultyDisk is the real one with a limited number of bytes and failures on cue.
type faultyDisk struct {
	osDisk
	room    *int64
	fail    map[string]error // By operation.
	renamed func()           // Called before a rename.
	hide    string           // Names that begin so are not seen.
}

func (d *faultyDisk) err(op string) error { return d.fail[op] }

func (d *faultyDisk) Create(path string) (outputFile, error) {
	if err := d.err("create"); err != nil {
		return nil, &fs.PathError{Op: "open", Path: path, Err: err}
	}
	f, err := d.osDisk.Create(path)
	if err != nil {
		return nil, err
	}
	return &faultyFile{outputFile: f, disk: d, path: path}, nil
}

func (d *faultyDisk) List(dir string) ([]string, error) {
	list, err := d.osDisk.List(dir)
	return slices.DeleteFunc(list, func(n string) bool { return d.hide != "" && strings.HasPrefix(n, d.hide) }), err
}

func (d *faultyDisk) Rename(from, to string) error {
	if d.renamed != nil {
		d.renamed()
	}
	if err := d.err("rename"); err != nil {
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return d.osDisk.Rename(from, to)
}

func (d *faultyDisk) SyncDir(dir string) error {
	if err := d.err("syncdir"); err != nil {
		return &fs.PathError{Op: "sync", Path: dir, Err: err}
	}
	return d.osDisk.SyncDir(dir)
}

type faultyFile struct {
	outputFile
	disk *faultyDisk
	path string
}

func (f *faultyFile) Write(p []byte) (int, error) {
	if room := f.disk.room; room != nil {
		if int64(len(p)) > *room {
			n, _ := f.outputFile.Write(p[:*room])
			*room = 0
			return n, &fs.PathError{Op: "write", Path: f.path, Err: syscall.ENOSPC}
		}
		*room -= int64(len(p))
	}
	return f.outputFile.Write(p)
}

func (f *faultyFile) Sync() error {
	if err := f.disk.err("sync"); err != nil {
		return &fs.PathError{Op: "sync", Path: f.path, Err: err}
	}
	return f.outputFile.Sync()
}

// When the disk is full, or fails otherwise, the writer says so, stays that way, and nothing wrong becomes visible.
func TestSinkFaults(t *testing.T) {
	for _, fault := range []string{"full", "create", "sync", "syncdir"} {
		dir := t.TempDir()
		d := &faultyDisk{fail: map[string]error{}}
		s := csvSink(dir)
		s.disk = d
		r := mustStart(t, s, ctxOf("aa", 1, 1), nil)
		r.write(0, rec{"a", 1})
		first := r.checkpoint(1)
		r.committed(first)
		if fault == "full" {
			room := int64(200_000)
			d.room = &room
		} else {
			d.fail[fault] = syscall.EIO
		}
		var err error
		for i := 0; i < 100_000 && err == nil; i++ {
			err = r.writers[0].Write(&record.Batch[rec]{Rows: []rec{{"some text", i}}})
		}
		if err == nil {
			_, err = r.writers[0].Prepare(2)
		}
		say := "input/output error"
		if fault == "full" {
			say = "no space left"
		}
		wantError(t, fault, err, job.ClassExternal, dir, say)
		d.fail, d.room = nil, nil
		if _, err := r.writers[0].Prepare(3); err == nil {
			t.Errorf("%s: the writer goes on", fault)
		}
		_ = r.writers[0].Close()
		r.crash()
		expect(t, dir, "a,1")
		r = mustStart(t, s, ctxOf("aa", 2, 1), first)
		if _, hidden := names(t, dir); len(hidden) != 1 {
			t.Errorf("%s: left are %q", fault, hidden)
		}
		r.write(0, rec{"b", 2})
		next := r.checkpoint(4)
		d.fail = map[string]error{"rename": syscall.EIO}
		wantError(t, "rename", r.commit[0].Commit(t.Context(), next.committables), job.ClassExternal, dir, "input/output error")
		d.fail = map[string]error{"syncdir": syscall.EIO}
		wantError(t, "sync after rename", r.commit[0].Commit(t.Context(), next.committables), job.ClassExternal, dir)
		d.fail = nil
		r.committed(next)
		r.close()
		expect(t, dir, "a,1", "b,2")
	}
}

// Two processes may commit the same part at once: the one that comes too late takes it as done.
func TestCommitRace(t *testing.T) {
	dir := t.TempDir()
	d := &faultyDisk{}
	s := csvSink(dir)
	s.disk = d
	r := mustStart(t, s, ctxOf("aa", 1, 1), nil)
	r.write(0, rec{"a", 1})
	snap := r.checkpoint(1)
	d.renamed = func() {
		d.renamed = nil
		r.committed(snap)
	}
	r.committed(snap)
	expect(t, dir, "a,1")
}

func TestProbe(t *testing.T) {
	dir := t.TempDir()
	d := &faultyDisk{fail: map[string]error{"create": syscall.EROFS}}
	s := csvSink(dir)
	s.disk = d
	_, err := start(t, s, ctxOf("aa", 1, 1), nil)
	wantError(t, "read-only", err, job.ClassExternal, dir, "cannot be used", "read-only")
	d.fail = nil
	r := mustStart(t, s, ctxOf("aa", 1, 3), nil)
	// Subtask 1 does not see what subtask 2 wrote.
	d.hide = ".probe-aa-a1-s2"
	err = r.writers[1].Write(&record.Batch[rec]{Rows: []rec{{"a", 1}}})
	wantError(t, "not shared", err, job.ClassExternal, dir, "not one and the same", "subtask 1 does not see", "subtask 2", "shared file system")
	r.crash()
	d.hide = ""
	// One that closed early is not taken for missing.
	r = mustStart(t, s, ctxOf("aa", 2, 3), nil)
	r.writers[0].Close()
	r.write(1, rec{"a", 1})
	r.close()
	if _, hidden := names(t, dir); hidden != nil {
		t.Errorf("left are %q", hidden)
	}
	file := filepath.Join(dir, "file")
	os.WriteFile(file, nil, 0o666)
	_, err = start(t, csvSink(file), ctxOf("aa", 1, 1), nil)
	wantError(t, "a file", err, job.ClassExternal, file, "not a directory")
	_, err = start(t, csvSink(filepath.Join(file, "x")), ctxOf("aa", 1, 1), nil)
	wantError(t, "below a file", err, job.ClassExternal, file)
}

func TestPartSize(t *testing.T) {
	dir := t.TempDir()
	s := csvSink(dir)
	s.PartSize = 100
	r := mustStart(t, s, ctxOf("aa", 1, 1), nil)
	var want []string
	for i := range 100 {
		r.write(0, rec{fmt.Sprintf("row-%03d", i), i})
		want = append(want, fmt.Sprintf("row-%03d,%d", i, i))
	}
	snap := r.checkpoint(1)
	r.committed(snap)
	r.close()
	expect(t, dir, want...)
	visible, _ := names(t, dir)
	if len(visible) < 10 || len(visible) != len(snap.committables) {
		t.Errorf("%d parts", len(visible))
	}
	for _, name := range visible {
		if info, _ := os.Stat(filepath.Join(dir, name)); info.Size() > 120 {
			t.Errorf("%s has %d bytes", name, info.Size())
		}
	}
}

// Whatever strings and numbers are written, encoding/csv and our own source read them back.
func TestCSVRoundTrip(t *testing.T) {
	s := Sink[rec]{Format: CSV}
	one := Sink[struct{ S string }]{Format: CSV, CSV: CSVOptions{NoHeader: true}}
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		alphabet := rapid.SampledFrom([]rune("ab,\"\n\té \ufeff"))
		rows := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) rec {
			return rec{rapid.StringOfN(alphabet, 0, 10, -1).Draw(t, "k"), rapid.Int().Draw(t, "n")}
		}), 1, 10).Draw(t, "rows")
		e, err := s.newEncoder()
		if err != nil {
			t.Fatal(err)
		}
		oneE, err := one.newEncoder()
		if err != nil {
			t.Fatal(err)
		}
		content, single := slices.Clone(e.header), []byte(nil)
		want, wantSingle := [][]string{{"k", "n"}}, [][]string{}
		for i := range rows {
			content, _ = e.append(content, &rows[i])
			single, _ = oneE.append(single, &struct{ S string }{rows[i].K})
			want = append(want, []string{rows[i].K, fmt.Sprint(rows[i].N)})
			wantSingle = append(wantSingle, []string{rows[i].K})
		}
		got, err := csv.NewReader(bytes.NewReader(content)).ReadAll()
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%q: %v %q", content, err, got)
		}
		got, err = csv.NewReader(bytes.NewReader(single)).ReadAll()
		if err != nil || !reflect.DeepEqual(got, wantSingle) {
			t.Fatalf("%q: %v %q", single, err, got)
		}
		src := Source[rec]{Paths: []string{write(t, filepath.Join(dir, "f"), content)}, Format: CSV}
		if got := readAll(t, src); !slices.Equal(got, rows) {
			t.Fatalf("%q: %+v", content, got)
		}
	})
}

func TestNDJSONSink(t *testing.T) {
	dir := t.TempDir()
	r := mustStart(t, Sink[rec]{Path: dir}, ctxOf("aa", 1, 1), nil)
	r.write(0, rec{"<a>\n", 1}, rec{"b", 2})
	r.committed(r.checkpoint(1))
	visible, _ := names(t, dir)
	content, _ := os.ReadFile(filepath.Join(dir, visible[0]))
	if string(content) != "{\"k\":\"<a>\\n\",\"n\":1}\n{\"k\":\"b\",\"n\":2}\n" || filepath.Ext(visible[0]) != ".ndjson" {
		t.Errorf("%s is %q", visible[0], content)
	}
}

func TestEncodeErrors(t *testing.T) {
	dir := t.TempDir()
	w, err := Sink[float64]{Path: dir}.Writer(t.Context(), operator.SinkContext{Run: job.Run{Job: "aa", Attempt: 1}, Name: "out", Parallelism: 1})
	if err != nil {
		t.Fatal(err)
	}
	err = w.Write(&record.Batch[float64]{Rows: []float64{math.NaN()}})
	wantError(t, "NaN", err, job.ClassRecord, "ndjson")
	if list, err := w.Prepare(1); list != nil || err != nil {
		t.Errorf("a part without rows: %q, %v", list, err)
	}
	w.Write(&record.Batch[float64]{Rows: []float64{1}})
	w.Write(&record.Batch[float64]{Rows: []float64{math.Inf(1)}})
	w.Write(&record.Batch[float64]{Rows: []float64{2}})
	list, err := w.Prepare(2)
	if err != nil {
		t.Fatal(err)
	}
	c, err := decodeCommittable(list[0])
	if err != nil {
		t.Fatal(err)
	}
	if content, _ := os.ReadFile(filepath.Join(dir, c.From)); string(content) != "1\n2\n" || c.Rows != 2 {
		t.Errorf("content %q, %d rows", content, c.Rows)
	}
	w.Close()

	encode := func(s Sink[rec], text string) error {
		s.Path = t.TempDir()
		s.Encode = func(dst []byte, _ *rec) ([]byte, error) { return append(dst, text...), nil }
		r := mustStart(t, s, ctxOf("aa", 1, 1), nil)
		defer r.close()
		if err := r.writers[0].Write(&record.Batch[rec]{Rows: []rec{{}}}); err != nil {
			return err
		}
		r.committed(r.checkpoint(1))
		visible, _ := names(t, s.Path)
		content, _ := os.ReadFile(filepath.Join(s.Path, visible[0]))
		return errors.New(string(content))
	}
	wantError(t, "two lines", encode(Sink[rec]{}, "a\nb"), job.ClassUser, `"a\nb"`)
	wantError(t, "own JSON", encode(Sink[rec]{}, "[1]"), job.ClassInternal, "[1]\n")
	wantError(t, "own CSV", encode(Sink[rec]{Format: CSV, CSV: CSVOptions{Columns: []string{"a", "b,c"}}}, "1,2"), job.ClassInternal, "a,\"b,c\"\n1,2\n")
}

func TestSinkValidate(t *testing.T) {
	if err := csvSink("x").Validate(); err != nil {
		t.Error(err)
	}
	own := func(dst []byte, _ *int) ([]byte, error) { return dst, nil }
	for _, bad := range []Sink[int]{
		{}, {Path: "x", Format: CSV}, {Path: "x", PartSize: -1}, {Path: "\xff"}, {Path: "x", Format: 9},
		{Path: "x", Format: CSV, Encode: own}, {Path: "x", Format: CSV, CSV: CSVOptions{Columns: []string{"a"}}},
		{Path: "x", Format: CSV, Encode: own, CSV: CSVOptions{NoHeader: true, Comma: '\n'}},
	} {
		if bad.Validate() == nil {
			t.Errorf("%+v passed", bad)
		}
	}
	if err := (Sink[int]{Path: "x", Format: CSV, Encode: own, CSV: CSVOptions{NoHeader: true}}).Validate(); err != nil {
		t.Error(err)
	}
}

// Committables and states of version 1 stay readable.
func TestSinkGolden(t *testing.T) {
	golden, err := os.ReadFile("testdata/sink-v1.json")
	if err != nil {
		t.Fatal(err)
	}
	lines := bytes.Split(bytes.TrimSpace(golden), newline)
	c, err := decodeCommittable(lines[0])
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := encode(c); !bytes.Equal(raw, lines[0]) {
		t.Errorf("committable is written as %s", raw)
	}
	p, _ := parseFinal(c.To)
	h, _ := parseHidden(c.From)
	h.checkpoint = p.checkpoint
	if p != h || p.final() != c.To || h.hidden() != c.From || p.run.Attempt != 3 || p.subtask != 2 || p.seq != 5 || p.checkpoint != 17 {
		t.Errorf("names are %+v, %+v", p, h)
	}
	s, err := decodeState(lines[1])
	if err != nil {
		t.Fatal(err)
	}
	if raw, _ := encode(s); !bytes.Equal(raw, lines[1]) {
		t.Errorf("state is written as %s", raw)
	}
	for _, bad := range []string{"", "{}", `{"v":2}`, `{"v":1,"sink":"x","known":[]}`} {
		_, err := decodeState([]byte(bad))
		wantError(t, bad, err, job.ClassRefused, "state of a file sink")
	}
}

func TestPartNames(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := part{
			run:        job.Run{Job: job.ID(rapid.StringMatching(`[a-z0-9%/-]{1,20}`).Draw(t, "job")), Attempt: job.Attempt(rapid.Uint32().Draw(t, "attempt"))},
			subtask:    rapid.IntRange(0, 1<<20).Draw(t, "subtask"),
			seq:        rapid.IntRange(0, 1<<40).Draw(t, "seq"),
			sink:       escapeSink(rapid.StringN(1, 100, 300).Draw(t, "sink")),
			ext:        rapid.SampledFrom([]string{"csv", "ndjson"}).Draw(t, "ext"),
			checkpoint: job.CheckpointID(rapid.Uint32().Draw(t, "checkpoint")),
		}
		if got, ok := parseFinal(p.final()); !ok || got != p {
			t.Fatalf("%s: %+v", p.final(), got)
		}
		want := p
		want.checkpoint = 0
		if got, ok := parseHidden(p.hidden()); !ok || got != want {
			t.Fatalf("%s: %+v", p.hidden(), got)
		}
		if n := p.final(); len(n) > 255 || strings.ContainsAny(n, "/\x00") {
			t.Fatalf("%q cannot name a file", n)
		}
	})
}

func FuzzCommittable(f *testing.F) {
	golden, err := os.ReadFile("testdata/sink-v1.json")
	if err != nil {
		f.Fatal(err)
	}
	for line := range bytes.Lines(golden) {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, raw []byte) {
		if c, err := decodeCommittable(raw); err == nil {
			again, err := encode(c)
			if err != nil {
				t.Fatal(err)
			}
			if d, err := decodeCommittable(again); err != nil || d != c {
				t.Errorf("%s: %+v, %v", raw, d, err)
			}
		} else if classOf(err) != job.ClassRefused {
			t.Error(err)
		}
		if s, err := decodeState(raw); err == nil {
			s.knows(part{})
			_, _ = mergeStates([][]byte{raw, raw})
		}
	})
}

type nullFile struct{ io.Writer }

func (nullFile) Close() error { return nil }
func (nullFile) Sync() error  { return nil }

func BenchmarkWrite(b *testing.B) {
	for _, format := range []Format{CSV, NDJSON} {
		b.Run(format.String(), func(b *testing.B) {
			s := Sink[rec]{Format: format}
			e, err := s.newEncoder()
			if err != nil {
				b.Fatal(err)
			}
			w := rowWriter[rec]{&writer{format: format, header: e.header, open: &openPart{file: nullFile{io.Discard}, hash: newHash()}}, e.append}
			batch := &record.Batch[rec]{Rows: make([]rec, 1000)}
			for i := range batch.Rows {
				batch.Rows[i] = rec{"origin", i}
			}
			b.ReportAllocs()
			for b.Loop() {
				if err := w.Write(batch); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/row")
		})
	}
}
