package snapshot

import (
	"path"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/job"
)

// relative is what the key of an object begins with that lies beside the manifest, as those of savepoints do: they can be
// copied to any place. Keys of stores cannot begin so, and a program that does not know of it refuses the manifest.
const relative = "./"

// resolve makes the keys of objects in a manifest with that key begin at the store's root.
func (m *Manifest) resolve(key string) {
	if !slices.ContainsFunc(ObjectsOf(m), func(o string) bool { return strings.HasPrefix(o, relative) }) {
		return
	}
	dir := path.Dir(key)
	m.Rename(func(object string) string {
		if name, ok := strings.CutPrefix(object, relative); ok {
			return path.Join(dir, name)
		}
		return object
	})
}

// Rename gives the objects that m refers to other keys. It changes no memory that m shares with other manifests.
func (m *Manifest) Rename(object func(key string) string) {
	ops := make(map[string]job.OperatorSnapshot, len(m.Operators))
	for name, op := range m.Operators {
		subtasks := make([]job.SubtaskSnapshot, len(op.Subtasks))
		for i, s := range op.Subtasks {
			states := make([]job.StateHandle, len(s.States))
			for j, h := range s.States {
				if h.Object != "" {
					h.Object = object(h.Object)
				}
				states[j] = h
			}
			s.States = states
			subtasks[i] = s
		}
		op.Subtasks = subtasks
		ops[name] = op
	}
	m.Operators = ops
}
