package pebble

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
	"golang.org/x/sync/errgroup"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend"
)

// frozen implements statebackend.Snapshot.
type frozen struct {
	id       job.CheckpointID
	p        statebackend.Params
	link     string // Folder of the tree's files.
	flush    *flush
	states   []treeState
	values   []frozenValues // Of the states.
	disk     vfs.FS
	base     *stored // What it builds on; nil for nothing.
	baseID   job.CheckpointID
	registry *snapshots
	alive    *statebackend.Alive
	local    *local
	stored   atomic.Pointer[stored]
	released atomic.Bool
}

// stored is what a checkpoint has of a backend.
type stored struct {
	files  map[string]job.StateHandle // By name.
	states []job.StateHandle
	// version is of the tree's content.
	version int
}

// treeState is the description of a state in a tree, as its handle's section holds it.
type treeState struct {
	name    string
	id      byte
	next    int // Numbers from here on were never used in its tree.
	key     string
	k       int // Number of key groups.
	newest  int64
	schemas []string
	value   string  // The present one.
	first   int     // Key group of the first of
	counts  []int64 // the numbers of entries by key group.
}

// treeStateJSON is the text of a treeState.
type treeStateJSON struct {
	Number  int      `json:"number"`
	Next    int      `json:"next"` // Numbers from here on were never used in the tree.
	K       int      `json:"key_groups"`
	Newest  int64    `json:"newest,omitempty"` // The latest time from which a value ages, milliseconds since 1970.
	Schemas []string `json:"schemas"`
	Counts  []byte   `json:"counts"` // Uvarints, one for each key group of the handle.
}

func (s *treeState) encode() ([]byte, error) {
	j := treeStateJSON{Number: int(s.id), Next: s.next, K: s.k, Newest: s.newest, Schemas: s.schemas}
	for _, n := range s.counts {
		j.Counts = binary.AppendUvarint(j.Counts, uint64(n))
	}
	return json.Marshal(j)
}

func decodeTreeState(h job.StateHandle, data []byte) (*treeState, error) {
	fail := func(format string, args ...any) (*treeState, error) {
		return nil, fmt.Errorf("%w: the description of %s: %s", statebackend.ErrCorrupt, snapshot.Place(h), fmt.Sprintf(format, args...))
	}
	var j treeStateJSON
	if err := json.Unmarshal(data, &j); err != nil {
		return fail("%v", err)
	}
	if j.Number < 0 || j.Number >= j.Next || j.Next > maxStates || len(j.Schemas) == 0 || len(j.Schemas) > maxSchemas {
		return fail("state number %d with %d schemas", j.Number, len(j.Schemas))
	}
	s := &treeState{name: h.Name, id: byte(j.Number), next: j.Next, k: j.K, newest: j.Newest, key: h.Key, schemas: j.Schemas, first: h.Groups.First}
	var sum int64
	for rest := j.Counts; len(s.counts) < h.Groups.Len(); {
		n, took := binary.Uvarint(rest)
		if took <= 0 || n > 1<<56 {
			return fail("the number of entries of key group %d", s.first+len(s.counts))
		}
		s.counts, rest = append(s.counts, int64(n)), rest[took:]
		if sum += int64(n); len(s.counts) == h.Groups.Len() && len(rest) > 0 {
			return fail("%d bytes left over", len(rest))
		}
	}
	if sum != h.Entries {
		return fail("%d entries, the checkpoint has %d", sum, h.Entries)
	}
	return s, nil
}

// newSnapshot takes down what is the owner's.
func (b *Backend) newSnapshot(id job.CheckpointID) *frozen {
	b.links++
	s := &frozen{
		id: id, p: b.p, link: fmt.Sprintf("%s/link-%d-%d", b.dir, uint64(id), b.links), baseID: b.base,
		registry: b.snapshots, alive: b.alive, local: b.local, disk: b.fs.FS,
	}
	if b.p.Incremental {
		s.base = b.snapshots.get(b.base)
	}
	for _, st := range b.states {
		key, value := st.t.Schemas()
		s.states = append(s.states, treeState{
			name: st.name, id: st.id, next: b.nextID, newest: st.newest, k: b.p.K, key: key, schemas: st.inUse(), value: value, first: b.p.Groups.First, counts: slices.Clone(st.counts),
		})
		s.values = append(s.values, frozenValues{cache: st.cache, decode: st.decode, now: st.now})
	}
	return s
}

// uploads is how many files of a snapshot are stored at a time.
const uploads = 4

// Write implements statebackend.Snapshot.
func (s *frozen) Write(ctx context.Context, w statebackend.Writer) ([]job.StateHandle, error) {
	fail := func(err error) ([]job.StateHandle, error) {
		return nil, fmt.Errorf("operator %q: snapshot for checkpoint %v: %w", s.p.Operator, s.id, err)
	}
	if err := s.flushed(ctx); err != nil {
		return fail(err)
	}
	s.takeNewest()
	var all stored
	if s.base != nil && s.flush.version == s.base.version && s.same() {
		all = *s.base // Nothing has changed.
	} else {
		var err error
		if all, err = s.write(ctx, w); err != nil {
			return fail(err)
		}
	}
	s.stored.Store(&all)
	s.registry.put(s.id, &all)
	out := slices.Clone(all.states)
	for _, name := range sortedNames(all.files) {
		out = append(out, all.files[name])
	}
	return out, nil
}

// flushed waits until the folder of the snapshot has the tree's files.
func (s *frozen) flushed(ctx context.Context) error {
	if s.released.Load() {
		return errors.New("it was released")
	}
	select {
	case <-s.flush.done:
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := s.flush.err; err != nil {
		return statebackend.Fault{Err: err, Path: s.link}
	}
	return nil
}

// takeNewest adds what the flush knows.
func (s *frozen) takeNewest() {
	for i := range s.states {
		for _, f := range s.flush.states {
			if f.s.name == s.states[i].name {
				s.states[i].newest = max(s.states[i].newest, f.newest)
			}
		}
	}
}

// same tells whether the states are those of the base, which its entries are. A state may have been opened since.
func (s *frozen) same() bool {
	if len(s.base.states) == 0 {
		return false
	}
	return len(s.states) == len(s.base.states)
}

func (s *treeState) entries() (sum int64) {
	for _, n := range s.counts {
		sum += n
	}
	return sum
}

func (s *frozen) write(ctx context.Context, w statebackend.Writer) (stored, error) {
	all := stored{files: map[string]job.StateHandle{}, version: s.flush.version}
	total := int64(0)
	for i := range s.states {
		total += s.states[i].entries()
	}
	if total == 0 {
		return all, nil
	}
	for i := range s.states {
		st := &s.states[i]
		text, err := st.encode()
		if err != nil {
			return all, err
		}
		h, err := w.Section(ctx, st.name, func(out io.Writer) error {
			_, err := out.Write(text)
			return err
		})
		if err != nil {
			return all, fmt.Errorf("state %q: %w", st.name, err)
		}
		h.Name, h.Kind, h.Key, h.Codec = st.name, statebackend.KindTree, st.key, st.value
		h.Groups, h.Entries = s.p.Groups, st.entries()
		all.states = append(all.states, h)
	}
	names, err := os.ReadDir(s.link)
	if err != nil {
		return all, err
	}
	var mu sync.Mutex
	put := func(name string, h job.StateHandle) {
		h.Name, h.Kind, h.Groups = name, statebackend.KindFile, s.p.Groups
		mu.Lock()
		all.files[name] = h
		mu.Unlock()
	}
	g, gctx := errgroup.WithContext(ctx)
	g.SetLimit(uploads)
	for _, e := range names {
		name := e.Name()
		if !isTable(name) {
			continue
		}
		if s.base != nil {
			if h, ok := s.base.files[name]; ok {
				put(name, h)
				continue
			}
		}
		g.Go(func() error {
			h, err := s.upload(gctx, w, name)
			if err == nil {
				put(name, h)
			}
			return err
		})
	}
	if err := g.Wait(); err != nil {
		return all, err
	}
	for _, e := range names {
		name := e.Name()
		if isTable(name) || strings.HasSuffix(name, ".log") { // Logs are empty: there is no write-ahead log.
			continue
		}
		data, err := os.ReadFile(filepath.Join(s.link, name))
		if err != nil {
			return all, err
		}
		h, err := w.Section(ctx, name, func(out io.Writer) error {
			_, err := out.Write(data)
			return err
		})
		if err != nil {
			return all, fmt.Errorf("file %s: %w", name, err)
		}
		put(name, h)
	}
	return all, nil
}

// isTable tells the files with entries, which are never changed, from those that say which files there are.
func isTable(name string) bool { return strings.HasSuffix(name, ".sst") }

func (s *frozen) upload(ctx context.Context, w statebackend.Writer, name string) (job.StateHandle, error) {
	f, err := os.Open(filepath.Join(s.link, name))
	if err != nil {
		return job.StateHandle{}, err
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return job.StateHandle{}, err
	}
	h, err := w.Object(ctx, name, f, info.Size())
	if err != nil {
		return job.StateHandle{}, fmt.Errorf("file %s: %w", name, err)
	}
	return h, nil
}

// Release implements statebackend.Snapshot.
func (s *frozen) Release() {
	if !s.released.CompareAndSwap(false, true) {
		return
	}
	s.alive.Done()
	select {
	case <-s.flush.done:
		s.clean()
	default:
		go func() { // It ends with the flush, for which Close waits.
			<-s.flush.done
			s.clean()
		}()
	}
}

func (s *frozen) clean() {
	if all := s.stored.Load(); all != nil && s.flush.err == nil {
		s.local.keep(s.id, s.baseID, s.link, all)
	}
	_ = os.RemoveAll(s.link) // What is left goes with the folder of the backend.
	s.registry.drop()
}

func sortedNames(m map[string]job.StateHandle) []string { return slices.Sorted(maps.Keys(m)) }

// snapshots are those of a backend that later ones may build on. It is safe for concurrent use.
type snapshots struct {
	mu struct {
		sync.Mutex
		stored map[job.CheckpointID]*stored
		users  int // The backend and the snapshots that are not released.
		gone   func()
	}
}

func newSnapshots() *snapshots {
	r := &snapshots{}
	r.mu.stored = map[job.CheckpointID]*stored{}
	r.mu.users = 1
	return r
}

func (r *snapshots) put(id job.CheckpointID, s *stored) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.stored[id] = s
}

func (r *snapshots) get(id job.CheckpointID) *stored {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.mu.stored[id]
}

// committed forgets those before id, which nothing builds on any more.
func (r *snapshots) committed(id job.CheckpointID) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for other := range r.mu.stored {
		if other < id {
			delete(r.mu.stored, other)
		}
	}
}

func (r *snapshots) hold() {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.users++
}

func (r *snapshots) drop() {
	r.mu.Lock()
	r.mu.users--
	last := r.mu.users == 0
	gone := r.mu.gone
	r.mu.Unlock()
	if last && gone != nil {
		gone()
	}
}

// leave is the end of the backend: its folder is removed once no snapshot needs it.
func (r *snapshots) leave(dir string) {
	r.mu.Lock()
	r.mu.gone = func() { _ = os.RemoveAll(dir) } // The folder of the process is removed whole at its end.
	r.mu.Unlock()
	r.drop()
}
