//go:build e2e

package e2e

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/test/e2e/versions"
)

// versionsRate is of records per second: a version sees its part of them in a second or two.
const versionsRate = 1500

// TestVersions: three builds of a program, whose types of states differ, carry on one job after the other, on every state
// backend. All that they say of the states is right, also of keys that the version between did not meet. A fourth one that
// cannot read the states is refused, with an error that says why, before it has met a record, and the third one goes on.
func TestVersions(t *testing.T) {
	t.Parallel()
	v := &upgrade{c: newSmallCluster(t, 3)}
	dir := build(t, "", "versions/first", "versions/second", "versions/third")
	v1, v2, v3 := filepath.Join(dir, "first"), filepath.Join(dir, "second"), filepath.Join(dir, "third")
	broken := filepath.Join(build(t, "broken", "versions/third"), "third")
	ctx, cancel := context.WithTimeout(context.Background(), 5*time.Minute)
	defer cancel()
	for _, backend := range []string{"fs", "memory", "pebble"} {
		v.jobs = append(v.jobs, &versionsJob{t: t, backend: backend, output: filepath.Join(t.TempDir(), "out")})
	}
	v.c.program = v1
	v.c.start(2)

	v.submit(v1, 1500)
	v.stopAt(ctx, 1000, 1)
	v.replace(v2)
	v.submit(v2, 3000)
	v.stopAt(ctx, 2000, 2)
	v.replace(v3)
	v.submit(v3, 5400)
	v.stopAt(ctx, 5000, 3)

	v.replace(broken)
	v.submit(broken, 6000)
	for _, j := range v.jobs {
		j.refused(v.c.waitEnd(ctx, j.id))
	}

	v.replace(v3)
	v.submit(v3, 0)
	for _, j := range v.jobs {
		d := v.c.waitEnd(ctx, j.id)
		if d.Job.State != coordinator.JobFinished || d.Job.Restarts > 0 {
			t.Errorf("%s: the job ended as %s: %s, after %d restarts", j.backend, d.Job.State, d.Job.Reason, d.Job.Restarts)
		}
		if rows := j.check(3); rows != versions.Count {
			t.Errorf("%s: %d rows of %d", j.backend, rows, versions.Count)
		}
	}
}

// upgrade is the jobs of all state backends, which go through the versions together.
type upgrade struct {
	c    *cluster
	jobs []*versionsJob
}

type versionsJob struct {
	t                   *testing.T
	backend, output, id string
	rows                int // That the version before had said.
}

// submit goes on with every job, up to record hold; 0 is to the end.
func (u *upgrade) submit(binary string, hold int) {
	u.c.t.Helper()
	for _, j := range u.jobs {
		// There is never such a file.
		gate := filepath.Join(u.c.dir, "never")
		id := u.c.submit(binary, "versions", "--name", "versions-"+j.backend, "--parallelism", "2",
			"--arg", fmt.Sprint("count=", versions.Count), "--arg", fmt.Sprint("hold=", hold), "--arg", "gate="+gate,
			"--arg", fmt.Sprint("rate=", versionsRate), "--arg", "output="+j.output,
			"--set", "state.backend="+j.backend, "--set", "checkpoint.interval=200ms")
		if j.id != "" && j.id != id {
			j.t.Fatalf("%s: the job is another one, %s, not %s", j.backend, id, j.id)
		}
		j.id = id
	}
}

// stopAt cancels each job when so many rows are in its output, and checks them. The job keeps its newest checkpoint.
func (u *upgrade) stopAt(ctx context.Context, rows, version int) {
	t := u.c.t
	t.Helper()
	for _, j := range u.jobs {
		for len(j.read()) < rows {
			if d := u.c.get(ctx, j.id); d.Job.State.Ended() || ctx.Err() != nil {
				t.Fatalf("%s: version %d has no %d rows: the job is %s: %s", j.backend, version, rows, d.Job.State, d.Job.Reason)
			}
			time.Sleep(100 * time.Millisecond)
		}
	}
	for _, j := range u.jobs {
		if _, err := u.c.client.Cancel(ctx, j.id); err != nil {
			t.Fatal(err)
		}
	}
	for _, j := range u.jobs {
		d := u.c.waitEnd(ctx, j.id)
		if d.Job.State != coordinator.JobCancelled || d.Job.Restarts > 0 || d.Job.Checkpoint == 0 {
			t.Fatalf("%s: version %d ended as %s: %s, after %d restarts, with checkpoint %d", j.backend, version, d.Job.State, d.Job.Reason, d.Job.Restarts, d.Job.Checkpoint)
		}
		if now := j.check(version); now < rows || now < j.rows {
			t.Fatalf("%s: version %d has left %d rows, and the one before %d", j.backend, version, now, j.rows)
		} else {
			j.rows = now
		}
	}
}

// replace has TaskManagers of another version take the place of those that there are.
func (u *upgrade) replace(binary string) {
	u.c.t.Helper()
	for _, p := range u.c.tms {
		if err := p.Stop(40 * time.Second); err != nil {
			u.c.t.Fatalf("%s did not end well: %v", p.Name, err)
		}
	}
	u.c.program = binary
	for i := range u.c.tms {
		u.c.startTaskManager(i)
	}
}

// cannotRead is the error about the fourth version. With pebble the values that are oldest are named.
var cannotRead = regexp.MustCompile(`operator "accounts".*state "account".*field Count was int(32|64) and is string`)

// refused checks that a job has failed because its states cannot be read, at once, and met no record.
func (j *versionsJob) refused(d coordinator.JobDetail) {
	j.t.Helper()
	if d.Job.State != coordinator.JobFailed || d.Job.Restarts > 0 || d.Job.Counters["records_read"] > 0 {
		j.t.Errorf("%s: the version that cannot read the states is %s after %d restarts and %d records", j.backend, d.Job.State, d.Job.Restarts, d.Job.Counters["records_read"])
	}
	if d.Job.Failure == nil || !cannotRead.MatchString(d.Job.Failure.String()) {
		j.t.Errorf("%s: the version that cannot read the states failed with %v, not %s", j.backend, d.Job.Failure, cannotRead)
	} else {
		j.t.Logf("%s: %v", j.backend, d.Job.Failure)
	}
	if now := len(j.read()); now != j.rows {
		j.t.Errorf("%s: there are %d rows after the version that cannot read the states, and %d before", j.backend, now, j.rows)
	}
}

// read reads the rows that are committed.
func (j *versionsJob) read() (rows []versions.Row) {
	j.t.Helper()
	parts, err := filepath.Glob(filepath.Join(j.output, "part-*.ndjson"))
	if err != nil {
		j.t.Fatal(err)
	}
	for _, name := range parts {
		f, err := os.Open(name)
		if err != nil {
			j.t.Fatal(err)
		}
		lines := bufio.NewScanner(f)
		lines.Buffer(nil, 1<<20)
		for lines.Scan() {
			var r versions.Row
			if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
				j.t.Fatalf("%s: %v", name, err)
			}
			rows = append(rows, r)
		}
		_ = f.Close()
		if err := lines.Err(); err != nil {
			j.t.Fatalf("%s: %v", name, err)
		}
	}
	return rows
}

// check compares the rows with what the versions should have said, each of the records that it says it met. The newest
// version so far is given. It returns how many rows there are.
func (j *versionsJob) check(newest int) int {
	j.t.Helper()
	rows := j.read()
	slices.SortFunc(rows, func(a, b versions.Row) int { return int(a.N - b.N) })
	next := [versions.Splits]int64{}
	for i := range next {
		next[i] = int64(i)
	}
	last := [versions.Splits]int{}
	met := map[string][]int{} // Versions of cold keys, in order.
	states := map[string]*model{}
	for _, r := range rows {
		s := r.N % versions.Splits
		if r.N != next[s] {
			j.t.Fatalf("%s: after version %d there is a row of record %d where that of %d should be", j.backend, newest, r.N, next[s])
		}
		next[s] += versions.Splits
		if r.Version < last[s] || r.Version > newest {
			j.t.Fatalf("%s: record %d was met by version %d, the one before by version %d", j.backend, r.N, r.Version, last[s])
		}
		last[s] = r.Version
		key := versions.KeyOf(r.N)
		if states[key] == nil {
			states[key] = &model{}
		}
		states[key].meet(r.N, r.Version)
		if want := states[key].String(); r.States != want {
			j.t.Fatalf("%s: key %s after record %d, which version %d met:\n got %s\nwant %s", j.backend, key, r.N, r.Version, r.States, want)
		}
		if strings.HasPrefix(key, "cold") && !slices.Contains(met[key], r.Version) {
			met[key] = append(met[key], r.Version)
		}
	}
	if newest == 3 {
		for key, list := range met {
			if !slices.Equal(list, []int{1, 3}) {
				j.t.Errorf("%s: key %s was met by the versions %v, not by 1 and 3", j.backend, key, list)
			}
		}
	}
	return len(rows)
}

// model is what the states of a key should hold.
type model struct{ versions.View }

// meet does what a version does with a record.
func (m *model) meet(n int64, version int) {
	if m.Items == nil {
		m.Items = map[string]versions.Owned{}
	}
	item, step := m.Items[versions.Item(n)], versions.Step{}
	switch version {
	case 1:
		m.Count++
		m.Total += int64(versions.Amount(n))
		if m.Owner == "" {
			m.Owner = fmt.Sprintf("owner-%d", n)
		}
		m.Note = fmt.Sprintf("note-%d", n)
		m.Line++
		m.Place = fmt.Sprintf("place-%d", n)
		item.N++
		step.N = n
		m.Recent = versions.Step{N: n}
		m.Seen++
	case 2:
		m.Note = "" // Dropped.
		m.Count += 1 << 40
		m.Total += int64(versions.Amount(n)) << 40
		m.Line += 1 << 20
		m.Tags = append(m.Tags, fmt.Sprintf("tag-%d", n))
		if len(m.Tags) > 3 {
			m.Tags = m.Tags[1:]
		}
		m.Level = uint32(uint8(m.Level + 1))
		item.N += 1 << 40
		item.By = "v2"
		step.N, step.Kind = n+1<<40, "v2"
		m.Recent.N = n + 1<<40
		m.Recent.V++
		m.Seen += 1 << 40
	case 3:
		m.Note = ""
		m.Count++
		m.Total++
		m.Line += 1 << 41
		m.Level += 1000
		if m.Marks == nil {
			m.Marks = map[string]int32{}
		}
		m.Marks[fmt.Sprintf("mark-%d", n/8%3)]++
		item.N += 1 << 41
		item.By = "v3"
		step.N, step.Kind = n+1<<41, "v3"
		m.Recent.N = n + 1<<41
		m.Recent.V += 1 << 41
		m.Seen += 1 << 41
	}
	m.Items[versions.Item(n)] = item
	m.History = append(m.History, step)
	if len(m.History) > versions.Steps {
		m.History = m.History[1:]
	}
}
