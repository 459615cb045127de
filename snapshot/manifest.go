package snapshot

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

const (
	manifestMagic = "CAIRNMAN"
	// ManifestVersion is of the format of manifests. A reader refuses a higher one. A manifest without states that lie in
	// several sections is written as manifestPlain, which earlier programs read too.
	ManifestVersion = 2
	manifestPlain   = 1

	manifestHead = len(manifestMagic) + 1 + 8 + 16
	// MaxManifest bounds a manifest's bytes, inline states included: it is read whole.
	MaxManifest = 1 << 30
)

// HashName names the function that gives a key its group. It is a part of every manifest.
const HashName = "xxh3-64"

// Manifest is everything that a checkpoint consists of.
type Manifest struct {
	Job        job.ID
	JobName    string
	Program    string `json:",omitempty"`
	Version    string `json:",omitempty"` // Build version of the program.
	Checkpoint job.CheckpointID
	Attempt    job.Attempt
	Epoch      job.Epoch // Of the leader that wrote it.
	Mode       job.Mode
	Final      bool `json:",omitempty"` // Every task had reached the end of its data.
	// Derived is set in a savepoint that no job has written: it says what it was made from.
	Derived string `json:",omitempty"`
	Created time.Time

	K           int    // Number of key groups.
	Hash        string // HashName.
	Fingerprint string // Of Graph.
	Graph       job.Graph
	Operators   map[string]job.OperatorSnapshot // By name.

	Bytes int64 // Of all states; Encode sets it.
}

// Validate lists what is wrong with m.
func (m *Manifest) Validate() error {
	var problems []string
	bad := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	if m.Job == "" {
		bad("no job id")
	}
	if m.Checkpoint == 0 {
		bad("no checkpoint id")
	}
	if m.K < 1 || m.K > job.MaxMaxParallelism {
		bad("number of key groups is %d, want 1 to %d", m.K, job.MaxMaxParallelism)
	}
	if m.Hash != HashName {
		bad("the hash of keys is %q, this program has %s", m.Hash, HashName)
	}
	for _, name := range slices.Sorted(maps.Keys(m.Operators)) {
		op := m.Operators[name]
		if op.Parallelism != len(op.Subtasks) {
			bad("operator %q: parallelism %d, but %d subtasks", name, op.Parallelism, len(op.Subtasks))
		}
		for i, s := range op.Subtasks {
			if _, err := statebackend.Chains(s.States); err != nil {
				bad("operator %q, subtask %d: %v", name, i, err)
			}
			for _, h := range s.States {
				if err := checkHandle(h); err != nil {
					bad("operator %q, subtask %d: %v", name, i, err)
				}
				if h.Object != "" {
					if err := blob.CheckKey(strings.TrimPrefix(h.Object, relative)); err != nil {
						bad("operator %q, subtask %d, state %q: %v", name, i, h.Name, err)
					}
				}
				if h.Groups.First < 0 || h.Groups.Last >= m.K {
					bad("operator %q, subtask %d, state %q: key groups %v of %d", name, i, h.Name, h.Groups, m.K)
				}
			}
		}
	}
	if len(problems) > 0 {
		return &job.Problems{What: fmt.Sprintf("manifest of checkpoint %v", m.Checkpoint), List: problems}
	}
	return nil
}

// handles visits every state handle.
func (m *Manifest) handles(visit func(job.StateHandle)) {
	for _, name := range slices.Sorted(maps.Keys(m.Operators)) {
		for _, s := range m.Operators[name].Subtasks {
			for _, h := range s.States {
				visit(h)
			}
		}
	}
}

// ObjectsOf lists the keys of the objects that m refers to, sorted, each once.
func ObjectsOf(m *Manifest) []string {
	var out []string
	m.handles(func(h job.StateHandle) {
		if h.Object != "" {
			out = append(out, h.Object)
		}
	})
	slices.Sort(out)
	return slices.Compact(out)
}

// Encode gives the bytes of a manifest. Equal manifests have equal bytes.
func (m *Manifest) Encode() ([]byte, error) {
	c := *m
	c.Bytes = 0
	var inline statebackend.Inline
	for name, op := range c.Operators {
		for _, s := range op.Subtasks {
			inline.Add(name, s)
		}
	}
	if err := inline.Check(fmt.Sprintf("checkpoint %v", m.Checkpoint), statebackend.MaxInlineCheckpoint); err != nil {
		return nil, err
	}
	version := byte(manifestPlain)
	c.handles(func(h job.StateHandle) {
		if c.Bytes += h.Length; h.Base != "" {
			version = ManifestVersion
		}
	})
	c.Created = c.Created.UTC().Round(0)
	if err := c.Validate(); err != nil {
		return nil, err
	}
	body, err := json.Marshal(c)
	if err != nil {
		return nil, fmt.Errorf("manifest of checkpoint %v: %w", m.Checkpoint, err)
	}
	if len(body)+manifestHead > MaxManifest {
		return nil, fmt.Errorf("manifest of checkpoint %v has %d bytes, limit is %d: set state.backend=fs", m.Checkpoint, len(body)+manifestHead, MaxManifest)
	}
	b := make([]byte, 0, manifestHead+len(body))
	b = append(b, manifestMagic...)
	b = append(b, version)
	b = binary.LittleEndian.AppendUint64(b, uint64(len(body)))
	sum := xxh3.Hash128(body).Bytes()
	b = append(b, sum[:]...)
	return append(b, body...), nil
}

// DecodeManifest reads and verifies the bytes of a manifest.
func DecodeManifest(data []byte) (*Manifest, error) {
	if len(data) < manifestHead || string(data[:len(manifestMagic)]) != manifestMagic {
		return nil, corrupt("it is no manifest")
	}
	if v := data[len(manifestMagic)]; v < manifestPlain || v > ManifestVersion {
		return nil, fmt.Errorf("manifest of version %d: this program reads versions up to %d", v, ManifestVersion)
	}
	n := binary.LittleEndian.Uint64(data[len(manifestMagic)+1:])
	body := data[manifestHead:]
	if n != uint64(len(body)) {
		return nil, corrupt("the manifest has %d bytes, %d were written", len(body), n)
	}
	want := data[manifestHead-16 : manifestHead]
	if sum := xxh3.Hash128(body).Bytes(); !bytes.Equal(sum[:], want) {
		return nil, corrupt("the hash of the manifest is %s, not %s", hex.EncodeToString(sum[:]), hex.EncodeToString(want))
	}
	m := &Manifest{}
	if err := json.Unmarshal(body, m); err != nil {
		return nil, corrupt("the manifest: %v", err)
	}
	if err := m.Validate(); err != nil {
		return nil, err
	}
	return m, nil
}
