package coordinator

import (
	"bytes"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore"
)

// Keys, all below the cluster's name:
//
//	savepoints/ID                       a savepoint that was taken: savepointRecord
//	saving/ID                           one that is on its way, or is being deleted: savepointRecord
//	names/NAME                          the job that a name belongs to
//	requests/REQUEST                    the job that a request made
//	jobs/ID/submission/N/record         submission: the Nth time that the job was submitted
//	jobs/ID/submission/N/spec/I         its spec, gzipped JSON, in pieces
//	jobs/ID/attempt/N                   the newest attempt: attemptRecord
//	jobs/ID/ids/N                       all checkpoint ids below N are reserved
//	jobs/ID/checkpoint/N                a checkpoint exists: pointer
//	jobs/ID/discard/N                   its deletion has begun: pointer
//	jobs/ID/submission/N/cancel         its end was asked for
//	jobs/ID/submission/N/terminal       it is over: terminal
//	jobs/ID/submission/N/claimed        the snapshot that it claimed is deleted
//	jobs/ID/pin/N/OTHER                 the job OTHER begins with checkpoint N, and has none of its own yet
//
// Only what is below the newest submission of a job counts: a request that was under way for very long
// may write below an older one after that was removed.
//
// Every transaction that must happen once puts a key that it demands to be absent, with a value that
// holds the epoch, so that metastore.Settle can find out what became of it.
type keys struct{ cluster string }

func (k keys) name(name string) string  { return k.cluster + "/names/" + url.PathEscape(name) }
func (k keys) request(id string) string { return k.cluster + "/requests/" + url.PathEscape(id) }
func (k keys) taken(id string) string   { return k.cluster + "/savepoints/" + url.PathEscape(id) }
func (k keys) saving(id string) string  { return k.cluster + "/saving/" + url.PathEscape(id) }
func (k keys) jobs() string             { return k.cluster + "/jobs/" }
func (k keys) job(id job.ID, rest string) string {
	return k.cluster + "/jobs/" + string(id) + "/" + rest
}

// number pads, so that keys sort as numbers do.
func number[T ~uint64 | ~int](n T) string { return fmt.Sprintf("%020d", n) }

type (
	submission struct {
		Epoch     job.Epoch
		N         int
		Name      string
		Request   string `json:",omitempty"`
		Submitted time.Time
		Pieces    int              // Of the spec.
		Resumed   job.CheckpointID `json:",omitempty"`
		From      *source          `json:",omitempty"` // What it begins with, as long as it has no checkpoint of its own.
		Adapt     Adaptation       // Of what is older than First.
		First     job.Attempt      // The first attempt that it may have.
	}
	attemptRecord struct {
		Epoch    job.Epoch
		Attempt  job.Attempt
		Time     time.Time
		Started  time.Time // When the job first ran, as far as known.
		Restarts int
	}
	pointer struct {
		Epoch     job.Epoch
		Attempt   job.Attempt
		Manifest  string
		Mode      job.Mode
		Triggered time.Time
		Duration  time.Duration
		Bytes     int64
		Tasks     int
		Final     bool `json:",omitempty"`
	}
	terminal struct {
		Stopped   bool `json:",omitempty"` // It ended with a savepoint, before the end of its data.
		Epoch     job.Epoch
		State     JobState
		Failure   *job.Failure `json:",omitempty"`
		Ended     time.Time
		Started   time.Time
		Attempt   job.Attempt
		Restarts  int64
		Counters  map[string]int64
		Incidents []Incident
	}
)

// jobRecord is everything on record of a job.
type jobRecord struct {
	id          job.ID
	submission  submission
	spec        job.Spec
	attempt     attemptRecord
	nextID      job.CheckpointID
	checkpoints map[job.CheckpointID]pointer
	discarding  map[job.CheckpointID]pointer
	pins        map[job.ID]job.CheckpointID // By the job that begins with one.
	cancel      bool
	claimed     bool
	terminal    *terminal
	ends        map[int]*terminal // By submission, while it is read.
	cancels     map[int]bool
	claims      map[int]bool
}

// records reads and writes what is on record.
type records struct {
	keys
	store metastore.Store
	lead  metastore.Leadership
}

func (r records) epoch() job.Epoch { return job.Epoch(r.lead.Epoch()) }

// errNotLeader wraps every answer that means that the leadership is over.
var errNotLeader = metastore.ErrNotLeader

// settle commits a transaction that has a witness. false: a condition did not hold. An error that is
// metastore.ErrOutcomeUnknown leaves it open.
func (r records) settle(ctx context.Context, txn metastore.Txn) (bool, error) {
	outcome, err := metastore.Settle(ctx, r.lead, txn)
	switch {
	case err != nil:
		return false, err
	case outcome == metastore.NotLeader:
		return false, errNotLeader
	case outcome == metastore.Committed:
		return true, nil
	}
	// It may have been carried out by an earlier call whose outcome stayed unknown.
	for _, p := range txn.Puts {
		if !slices.Contains(txn.Conditions, metastore.Absent(p.Key)) {
			continue
		}
		e, err := r.lead.Get(ctx, p.Key)
		if errors.Is(err, metastore.ErrNotFound) {
			return false, nil
		}
		if err != nil {
			return false, fmt.Errorf("%w: %w", metastore.ErrOutcomeUnknown, err)
		}
		return bytes.Equal(e.Value, p.Value), nil
	}
	return false, nil
}

// insist repeats f, which settles a transaction, as long as its outcome is unknown; told hears of it. An
// error means that nothing was done.
func (r records) insist(ctx context.Context, timeout time.Duration, f func(context.Context) (bool, error), told func(error)) (bool, error) {
	for unknown := false; ; {
		fctx, cancel := context.WithTimeout(ctx, timeout)
		ok, err := f(fctx)
		cancel()
		unknown = unknown || errors.Is(err, metastore.ErrOutcomeUnknown)
		if err == nil || errors.Is(err, errNotLeader) || !unknown {
			return ok, err
		}
		told(err)
		select {
		case <-ctx.Done():
			return false, ctx.Err()
		case <-time.After(time.Second):
		}
	}
}

// commit is for transactions that may be repeated at will.
func (r records) commit(ctx context.Context, txn metastore.Txn) error {
	outcome, err := r.lead.Commit(ctx, txn)
	switch {
	case err != nil:
		return err
	case outcome == metastore.NotLeader:
		return errNotLeader
	case outcome != metastore.Committed:
		return fmt.Errorf("%v: %v", txn, outcome)
	}
	return nil
}

const pieceLen = 90_000 // Bytes, below metastore.MaxValueLen.

// maxPieces keeps a submission within one transaction.
const maxPieces = 10

func encodeSpec(s job.Spec) ([][]byte, error) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	if err := json.NewEncoder(z).Encode(s); err != nil {
		return nil, fmt.Errorf("encode the job's spec: %w", err)
	}
	if err := z.Close(); err != nil {
		return nil, fmt.Errorf("encode the job's spec: %w", err)
	}
	var out [][]byte
	for rest := b.Bytes(); len(rest) > 0; {
		n := min(len(rest), pieceLen)
		out = append(out, rest[:n])
		rest = rest[n:]
	}
	if len(out) > maxPieces {
		return nil, errorf(ErrInvalid, "the job's graph and arguments have %d bytes compressed: the limit is %d", b.Len(), maxPieces*pieceLen)
	}
	return out, nil
}

func decodeSpec(pieces [][]byte) (s job.Spec, err error) {
	z, err := gzip.NewReader(bytes.NewReader(bytes.Join(pieces, nil)))
	if err != nil {
		return s, err
	}
	b, err := io.ReadAll(z)
	if err != nil {
		return s, err
	}
	return s, json.Unmarshal(b, &s)
}

// mustJSON encodes records of plain fields, which cannot fail.
func mustJSON(v any) []byte {
	b, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode %T: %v", v, err))
	}
	return b
}

// load reads every job. A record that cannot be read is an error that names its key: a job must not be
// lost, or run from something else, because of it.
func (r records) load(ctx context.Context) ([]*jobRecord, error) { return r.read(ctx, r.jobs()) }

// loadOne reads one job.
func (r records) loadOne(ctx context.Context, id job.ID) (*jobRecord, error) {
	all, err := r.read(ctx, r.job(id, ""))
	if err != nil {
		return nil, err
	}
	if len(all) != 1 {
		return nil, fmt.Errorf("job %s is not on record", id)
	}
	return all[0], nil
}

func (r records) read(ctx context.Context, under string) ([]*jobRecord, error) {
	entries, err := r.store.List(ctx, under)
	if err != nil {
		return nil, err
	}
	byID := map[job.ID]*jobRecord{}
	var out []*jobRecord
	pieces := map[string][][]byte{}
	for _, e := range entries {
		id, rest, _ := strings.Cut(strings.TrimPrefix(e.Key, r.jobs()), "/")
		j := byID[job.ID(id)]
		if j == nil {
			j = &jobRecord{id: job.ID(id), nextID: 1, checkpoints: map[job.CheckpointID]pointer{}, discarding: map[job.CheckpointID]pointer{},
				pins: map[job.ID]job.CheckpointID{}, ends: map[int]*terminal{}, cancels: map[int]bool{}, claims: map[int]bool{}}
			byID[j.id] = j
			out = append(out, j)
		}
		if err := j.add(rest, e.Value, pieces); err != nil {
			return nil, fmt.Errorf("read %q: %w", e.Key, err)
		}
	}
	for _, j := range out {
		j.terminal, j.cancel, j.claimed = j.ends[j.submission.N], j.cancels[j.submission.N], j.claims[j.submission.N]
		if f := j.submission.From; f != nil {
			j.nextID = max(j.nextID, f.Checkpoint+1)
		}
		prefix := string(j.id) + "/" + number(j.submission.N)
		if j.spec, err = decodeSpec(pieces[prefix]); err != nil {
			return nil, fmt.Errorf("read the spec of job %s: %w", j.id, err)
		}
	}
	return out, nil
}

func (j *jobRecord) add(rest string, value []byte, pieces map[string][][]byte) error {
	parts := strings.Split(rest, "/")
	var n uint64
	if len(parts) > 1 {
		var err error
		if n, err = strconv.ParseUint(parts[1], 10, 64); err != nil {
			return err
		}
	}
	switch parts[0] {
	case "submission":
		switch parts[len(parts)-1] {
		case "record":
			var s submission
			if err := json.Unmarshal(value, &s); err != nil {
				return err
			}
			if s.N >= j.submission.N {
				j.submission = s
			}
		case "cancel":
			j.cancels[int(n)] = true
		case "claimed":
			j.claims[int(n)] = true
		case "terminal":
			j.ends[int(n)] = &terminal{}
			return json.Unmarshal(value, j.ends[int(n)])
		default: // spec/I; entries come sorted.
			prefix := string(j.id) + "/" + parts[1]
			pieces[prefix] = append(pieces[prefix], value)
		}
	case "attempt":
		var a attemptRecord
		if err := json.Unmarshal(value, &a); err != nil {
			return err
		}
		if a.Attempt >= j.attempt.Attempt {
			j.attempt = a
		}
	case "pin":
		if len(parts) != 3 {
			return errors.New("want pin/N/JOB")
		}
		j.pins[job.ID(parts[2])] = job.CheckpointID(n)
	case "ids":
		j.nextID = max(j.nextID, job.CheckpointID(n))
	case "checkpoint", "discard":
		var p pointer
		if err := json.Unmarshal(value, &p); err != nil {
			return err
		}
		if parts[0] == "checkpoint" {
			j.checkpoints[job.CheckpointID(n)] = p
		} else {
			j.discarding[job.CheckpointID(n)] = p
		}
	default:
		return errors.New("not a key that this version knows")
	}
	return nil
}

// savepoints reads those below a key.
func (r records) savepoints(ctx context.Context, prefix string) ([]savepointRecord, error) {
	entries, err := r.store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	var out []savepointRecord
	for _, e := range entries {
		var s savepointRecord
		if err := json.Unmarshal(e.Value, &s); err != nil {
			return nil, fmt.Errorf("read %q: %w", e.Key, err)
		}
		out = append(out, s)
	}
	return out, nil
}

// savepoint reads one that was taken.
func (r records) savepoint(ctx context.Context, id string) (savepointRecord, error) {
	var s savepointRecord
	e, err := r.lead.Get(ctx, r.taken(id))
	switch {
	case errors.Is(err, metastore.ErrNotFound):
		return s, errorf(ErrNotFound, "there is no savepoint %q on record", id)
	case err != nil:
		return s, err
	}
	return s, json.Unmarshal(e.Value, &s)
}

// namesOnRecord reads which job each name belongs to.
func (r records) namesOnRecord(ctx context.Context) (map[string]job.ID, error) {
	prefix := r.name("")
	entries, err := r.store.List(ctx, prefix)
	if err != nil {
		return nil, err
	}
	out := map[string]job.ID{}
	for _, e := range entries {
		name, err := url.PathUnescape(strings.TrimPrefix(e.Key, prefix))
		if err != nil {
			return nil, fmt.Errorf("read %q: %w", e.Key, err)
		}
		out[name] = job.ID(e.Value)
	}
	return out, nil
}
