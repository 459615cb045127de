package stored

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// FaultKind says in one word what is wrong.
type FaultKind string

// The kinds of faults.
const (
	FaultMissing    FaultKind = "missing"    // The object is not there.
	FaultSize       FaultKind = "size"       // It has another size than the checkpoint says.
	FaultDamaged    FaultKind = "damaged"    // Its bytes are not those that were written.
	FaultContent    FaultKind = "content"    // They are, but what they hold is not what the checkpoint says.
	FaultManifest   FaultKind = "manifest"   // The manifest is damaged, of another checkpoint, or contradicts itself.
	FaultForeign    FaultKind = "foreign"    // The object is not where objects of this checkpoint may be.
	FaultUnreadable FaultKind = "unreadable" // The store cannot read the object, and will not by itself.
)

// Concern is a state of a subtask that a fault is about.
type Concern struct {
	Operator string `json:"operator"`
	Subtask  int    `json:"subtask"`
	State    string `json:"state"`
}

func (c Concern) String() string { return fmt.Sprintf("%s[%d]/%s", c.Operator, c.Subtask, c.State) }

// Fault is something that is wrong with a snapshot.
type Fault struct {
	Object string // Key of the object; of what is in the manifest, the manifest's.
	Kind   FaultKind
	Detail string
	Of     []Concern // Empty where it is about the snapshot as a whole.
}

func (f Fault) String() string {
	text := fmt.Sprintf("%s: %s: %s", f.Object, f.Kind, f.Detail)
	if len(f.Of) > 0 {
		var of []string
		for _, c := range f.Of {
			of = append(of, c.String())
		}
		text += " (" + strings.Join(of, ", ") + ")"
	}
	return text
}

// Report is what Verify has found.
type Report struct {
	Manifest *snapshot.Manifest // Nil if it cannot be read.
	Key      string             // Of the manifest.
	Objects  int                // Without the manifest.
	Sections int                // Of states, inline ones included.
	Entries  int64              // That were read: those of each link of a chain, keys that are gone, items of lists.
	Bytes    int64              // That were read of sections.
	Faults   []Fault            // In the order of objects.
	// Unlisted are objects in the snapshot's folder that it does not list. They do no harm: what a task wrote for nothing is
	// swept when the checkpoint has ended.
	Unlisted []string
	// Undecoded are states whose entries only the program can take apart: their hashes and counts were compared, their keys
	// were not looked at.
	Undecoded []Concern
}

// Err is nil if there are no faults, else it is statebackend.ErrCorrupt with all of them.
func (r *Report) Err() error {
	if len(r.Faults) == 0 {
		return nil
	}
	var list []string
	for _, f := range r.Faults {
		list = append(list, f.String())
	}
	return corrupt("%s has %d faults: %s", r.Key, len(r.Faults), strings.Join(list, "; "))
}

// VerifyOptions say how to verify. The zero value is right for snapshots of backends on maps.
type VerifyOptions struct {
	// Trees reads the trees of a backend on disk. Nil for none: their files are verified by their hashes, and that the
	// entries were not looked at is a fault.
	Trees TreeReader
	// Parallel is how many subtasks' states are read at a time. Default: twice the number of CPUs, so that one waits for
	// the store while another one is decoded.
	Parallel int
	// Dir is a folder for the files of trees, one tree for each of Parallel at a time. Default: the system's.
	Dir string
	// Progress, if set, is told of bytes that were read, of so many in all. It is called by several goroutines at a time.
	Progress func(read, total int64)
}

// TreeReader goes over the tree of one subtask: handles are those of its states and files. Those of files are verified
// already, and r has them at hand. It reports what is wrong with a state to fault, once each, and calls visit with every entry;
// schema is that of the entry's value. What is wrong with the tree as a whole is its error.
type TreeReader func(ctx context.Context, r statebackend.Reader, k int, handles []job.StateHandle,
	visit func(h job.StateHandle, group int, schema string, key, value []byte) error, fault func(h job.StateHandle, err error)) error

// Verify reads a snapshot to the last entry and lists everything that is wrong with it: that all objects are there, are what
// was written, and hold what the manifest says; that each key is in the key group that its hash says, and each group where
// the parallelism puts it. Memory is bounded by a block of each segment that is read, and by the hashes of the keys of one key group
// where a state lies in several segments.
//
// Its error says that the snapshot could not be read now, or that there is none (blob.ErrNotExist): it says nothing of
// damage. There are as many goroutines as VerifyOptions.Parallel says, and none is left when it returns.
func Verify(ctx context.Context, store blob.Store, key string, o VerifyOptions) (*Report, error) {
	if o.Parallel <= 0 {
		o.Parallel = 2 * runtime.NumCPU()
	}
	v := &verifier{o: o, store: store, key: key, report: &Report{Key: key}, layouts: map[string]layouts{}}
	s, err := Open(ctx, store, key, Options{})
	switch {
	case errors.Is(err, statebackend.ErrCorrupt) || isProblems(err):
		v.fault(key, FaultManifest, nil, err)
		return v.report, nil
	case err != nil:
		return nil, err
	}
	v.m, v.reader, v.report.Manifest = s.Manifest, s.reader, s.Manifest
	if err := v.run(ctx); err != nil {
		return nil, err
	}
	return v.report, nil
}

func isProblems(err error) bool {
	var p *job.Problems
	return errors.As(err, &p)
}

type verifier struct {
	o      VerifyOptions
	store  blob.Store
	key    string
	m      *snapshot.Manifest
	reader *snapshot.Reader
	total  int64
	bytes  atomic.Int64
	lost   map[string]bool // Objects that nothing can be read of. Only written before they are looked at.
	mu     sync.Mutex
	// What mu guards.
	report  *Report
	layouts map[string]layouts
}

// fault notes what is wrong, once for an object and detail.
func (v *verifier) fault(object string, kind FaultKind, of []Concern, err error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	detail := err.Error()
	for i, f := range v.report.Faults {
		if f.Object == object && f.Kind == kind && f.Detail == detail {
			v.report.Faults[i].Of = append(v.report.Faults[i].Of, of...)
			return
		}
	}
	v.report.Faults = append(v.report.Faults, Fault{object, kind, detail, of})
}

// failed sorts an error of reading an object: one that may pass, or that the snapshot is not to blame for, is returned.
func (v *verifier) failed(ctx context.Context, object string, of []Concern, err error) error {
	var disk *os.PathError
	var held *contentError
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	case errors.Is(err, errSpool), blob.IsTransient(err), errors.Is(err, blob.ErrDenied):
		return err
	case errors.Is(err, blob.ErrNotExist):
		v.fault(object, FaultMissing, of, errors.New("there is no such object"))
	case errors.Is(err, blob.ErrRange):
		v.fault(object, FaultSize, of, err)
	case errors.As(err, &held):
		v.fault(object, FaultContent, of, err)
	case errors.Is(err, statebackend.ErrCorrupt), errors.Is(err, io.ErrUnexpectedEOF):
		v.fault(object, FaultDamaged, of, err)
	case errors.As(err, &disk):
		v.fault(object, FaultUnreadable, of, err)
	default:
		v.fault(object, FaultDamaged, of, err) // Of another version, or what a decoder says.
	}
	return nil
}

// contentError is a fault of what whole bytes hold.
type contentError struct{ text string }

func (e *contentError) Error() string { return e.text }

func content(format string, args ...any) error { return &contentError{fmt.Sprintf(format, args...)} }

// at is the object that a handle's bytes are in.
func (v *verifier) at(h job.StateHandle) string { return cmp.Or(h.Object, v.key) }

// work is one piece of what is to be done.
type work func(ctx context.Context) error

func (v *verifier) run(ctx context.Context) error {
	v.checkPlace()
	users := map[string][]user{}
	var states []work
	for _, name := range slices.Sorted(maps.Keys(v.m.Operators)) {
		op := v.m.Operators[name]
		for i, sub := range op.Subtasks {
			for _, h := range sub.States {
				v.report.Sections++
				v.total += h.Length
				if h.Object != "" {
					users[h.Object] = append(users[h.Object], user{h, concernsOf(name, i, sub, h)})
				}
			}
			v.checkGroups(name, i, op.Parallelism, sub)
			states = append(states, v.subtask(name, i, sub)...)
		}
	}
	v.report.Objects = len(users)
	if err := v.checkFolder(ctx, users); err != nil {
		return err
	}
	v.lost = map[string]bool{}
	var objects []work
	var mu sync.Mutex
	for _, key := range slices.Sorted(maps.Keys(users)) {
		objects = append(objects, func(ctx context.Context) error {
			ok, err := v.object(ctx, key, users[key])
			if !ok {
				mu.Lock()
				v.lost[key] = true
				mu.Unlock()
			}
			return err
		})
	}
	for _, list := range [][]work{objects, states} {
		g, gctx := errgroup.WithContext(ctx)
		g.SetLimit(v.o.Parallel)
		for _, w := range list {
			g.Go(func() error { return w(gctx) })
		}
		if err := g.Wait(); err != nil {
			return err
		}
	}
	v.report.Bytes = v.bytes.Load()
	slices.SortStableFunc(v.report.Faults, func(a, b Fault) int { return cmp.Or(cmp.Compare(a.Object, b.Object), cmp.Compare(a.Detail, b.Detail)) })
	slices.SortFunc(v.report.Undecoded, compareConcerns)
	v.report.Undecoded = slices.Compact(v.report.Undecoded)
	for i := range v.report.Faults {
		of := v.report.Faults[i].Of
		slices.SortFunc(of, compareConcerns)
		v.report.Faults[i].Of = slices.Compact(of)
	}
	return nil
}

func compareConcerns(a, b Concern) int {
	return cmp.Or(cmp.Compare(a.Operator, b.Operator), cmp.Compare(a.Subtask, b.Subtask), cmp.Compare(a.State, b.State))
}

// user is a state whose bytes are in an object.
type user struct {
	h  job.StateHandle
	of []Concern
}

// concernsOf are the states that a handle's bytes are of: of a tree's file all that are in the tree.
func concernsOf(operator string, i int, sub job.SubtaskSnapshot, h job.StateHandle) (out []Concern) {
	if h.Kind != statebackend.KindFile {
		return []Concern{{operator, i, h.Name}}
	}
	for _, x := range sub.States {
		if x.Kind == statebackend.KindTree {
			out = append(out, Concern{operator, i, x.Name})
		}
	}
	return out
}

func concerns(users []user) []Concern {
	var out []Concern
	for _, u := range users {
		out = append(out, u.of...)
	}
	slices.SortFunc(out, compareConcerns)
	return slices.Compact(out)
}

// checkpointOf takes a key of a checkpoint's object apart: what is before jobs/, the job and the id.
func checkpointOf(key string) (root string, id job.ID, n job.CheckpointID, ok bool) {
	names := strings.Split(key, "/")
	if len(names) < 5 {
		return "", "", 0, false
	}
	names = names[:len(names)-1]
	at := len(names) - 4
	number, err := strconv.ParseUint(names[at+3], 10, 64)
	if names[at] != "jobs" || names[at+2] != "checkpoints" || err != nil || number == 0 {
		return "", "", 0, false
	}
	return strings.Join(names[:at], "/"), job.ID(names[at+1]), job.CheckpointID(number), true
}

// checkPlace compares the manifest's place with what it says.
func (v *verifier) checkPlace() {
	if _, id, n, ok := checkpointOf(v.key); ok && (id != v.m.Job || n != v.m.Checkpoint) {
		v.fault(v.key, FaultManifest, nil, content("it is that of checkpoint %d of job %s", uint64(v.m.Checkpoint), v.m.Job))
	}
}

// allowed tells whether a snapshot may refer to an object: one in its folder, or of its job's earlier checkpoints.
func (v *verifier) allowed(object string) bool {
	if path.Dir(object) == path.Dir(v.key) {
		return true
	}
	root, id, n, ok := checkpointOf(object)
	if !ok || id != v.m.Job || n > v.m.Checkpoint {
		return false
	}
	own, _, _, isCheckpoint := checkpointOf(v.key)
	return !isCheckpoint || root == own
}

// checkFolder finds objects beside the manifest that it does not list.
func (v *verifier) checkFolder(ctx context.Context, users map[string][]user) error {
	for info, err := range v.store.List(ctx, path.Dir(v.key)+"/") {
		if err != nil {
			return err
		}
		if info.Key != v.key && users[info.Key] == nil {
			v.report.Unlisted = append(v.report.Unlisted, info.Key)
		}
	}
	return nil
}

// checkGroups compares the key groups of a subtask's states with those that the parallelism gives it.
func (v *verifier) checkGroups(operator string, i, parallelism int, sub job.SubtaskSnapshot) {
	want := job.GroupsOf(i, v.m.K, parallelism)
	seen := map[string]bool{}
	for j, h := range sub.States {
		of := concernsOf(operator, i, sub, h)
		switch h.Kind {
		case snapshot.KindList, snapshot.KindBroadcast:
			if h.Groups.Len() > 0 {
				v.fault(v.key, FaultManifest, of, content("a %s has key groups %v", h.Kind, h.Groups))
			}
		case statebackend.KindKeyed, statebackend.KindTree, statebackend.KindFile:
			if h.Groups != want {
				v.fault(v.key, FaultManifest, of, content("key groups %v, those of the subtask are %v", h.Groups, want))
			}
		default:
			v.fault(v.key, FaultManifest, of, content("it is of kind %q, which this program does not know", h.Kind))
		}
		id := h.Kind + "/" + h.Name
		if h.Kind == statebackend.KindTree { // A state is in a segment or in a tree.
			id = statebackend.KindKeyed + "/" + h.Name
		}
		if h.Base == "" && seen[id] {
			v.fault(v.key, FaultManifest, of, content("handle %d is of a %s that is there already", j, h.Kind))
		}
		seen[id] = true
	}
}

// object looks at an object as a whole; false if the states in it need not be looked at.
func (v *verifier) object(ctx context.Context, key string, users []user) (bool, error) {
	of := concerns(users)
	if !v.allowed(key) {
		v.fault(key, FaultForeign, of, content("it lies neither beside the manifest nor among the job's checkpoints up to %d", uint64(v.m.Checkpoint)))
	}
	info, err := v.store.Stat(ctx, key)
	if err != nil {
		return false, v.failed(ctx, key, of, err)
	}
	raw := slices.ContainsFunc(users, func(u user) bool { return u.h.Offset == 0 && u.h.Kind == statebackend.KindFile })
	if raw {
		for _, u := range users {
			if u.h.Offset != 0 || u.h.Length != info.Size {
				v.fault(key, FaultSize, of, fmt.Errorf("%d bytes, the checkpoint has %d from %d", info.Size, u.h.Length, u.h.Offset))
				return false, nil
			}
		}
		return true, nil
	}
	for _, u := range users {
		if u.h.Offset+u.h.Length > info.Size {
			v.fault(key, FaultSize, of, fmt.Errorf("%d bytes: a section ends at byte %d", info.Size, u.h.Offset+u.h.Length))
			return false, nil
		}
	}
	about, sections, err := snapshot.ReadObject(ctx, v.store, key, info.Size)
	if err != nil {
		// The sections may be whole: they are looked at all the same.
		return true, v.failed(ctx, key, of, err)
	}
	if about.Job != v.m.Job || about.Checkpoint > v.m.Checkpoint {
		v.fault(key, FaultContent, of, content("it is of checkpoint %d of job %s", uint64(about.Checkpoint), about.Job))
	} else if _, _, n, ok := checkpointOf(key); ok && n != about.Checkpoint && v.m.Derived == "" {
		v.fault(key, FaultContent, of, content("it is of checkpoint %d", uint64(about.Checkpoint)))
	}
	for _, u := range users {
		listed := slices.ContainsFunc(sections, func(s snapshot.Section) bool {
			return s.Offset == u.h.Offset && s.Length == u.h.Length && s.Hash == u.h.Hash
		})
		if !listed {
			v.fault(key, FaultContent, u.of, content("it has no section of %d bytes at byte %d with hash %s: it is the object of %s[%d] of checkpoint %d",
				u.h.Length, u.h.Offset, u.h.Hash, about.Vertex, about.Subtask, uint64(about.Checkpoint)))
		}
	}
	return true, nil
}

// subtask lists what there is to do for one subtask of an operator: a piece for each chain and list, and one for its tree.
func (v *verifier) subtask(operator string, i int, sub job.SubtaskSnapshot) (out []work) {
	var tree []job.StateHandle
	for j := 0; j < len(sub.States); j++ {
		h := sub.States[j]
		of := Concern{operator, i, h.Name}
		switch h.Kind {
		case statebackend.KindKeyed:
			end := j + 1
			for end < len(sub.States) && sub.States[end].Base != "" {
				end++
			}
			c := statebackend.Chain(sub.States[j:end])
			out = append(out, func(ctx context.Context) error { return v.chain(ctx, of, c) })
			j = end - 1
		case snapshot.KindList, snapshot.KindBroadcast:
			out = append(out, func(ctx context.Context) error { return v.list(ctx, of, h) })
		case statebackend.KindTree, statebackend.KindFile:
			tree = append(tree, h)
		}
	}
	if len(tree) > 0 {
		out = append(out, func(ctx context.Context) error { return v.tree(ctx, operator, i, sub, tree) })
	}
	return out
}

// read counts bytes.
func (v *verifier) read(n int) {
	if at := v.bytes.Add(int64(n)); v.o.Progress != nil {
		v.o.Progress(at, v.total)
	}
}

func (v *verifier) entries(n int64) {
	v.mu.Lock()
	v.report.Entries += n
	v.mu.Unlock()
}

// layoutsOf finds how entries are encoded, and notes a state that only the program can take apart.
func (v *verifier) layoutsOf(of Concern, key, value string) layouts {
	v.mu.Lock()
	defer v.mu.Unlock()
	id := fmt.Sprintf("%d:%s%s", len(key), key, value)
	l, ok := v.layouts[id]
	if !ok {
		l.key, _ = layout(key)
		l.value, _ = layout(value)
		v.layouts[id] = l
	}
	if l.key == nil || l.value == nil {
		v.report.Undecoded = append(v.report.Undecoded, of)
	}
	return l
}
