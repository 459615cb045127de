package snapshot

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
)

// relative is what the key of an object begins with that lies beside the manifest, as those of savepoints do: they can be
// copied to any place. Keys of stores cannot begin so, and a program that does not know of it refuses the manifest.
const relative = "./"

// WriteSavepoint stores m as the manifest of a savepoint in a folder, a key of the store: all of its objects lie there too,
// and it lists them by their names there, so that the folder can be copied to any place. There is no manifest in the folder
// yet, else it is blob.ErrExists. It returns the manifest's key.
func WriteSavepoint(ctx context.Context, store blob.Store, folder string, m *Manifest) (string, error) {
	c := *m
	var elsewhere []string
	c.Rename(func(object string) string {
		name, ok := strings.CutPrefix(object, folder+"/")
		if !ok {
			elsewhere = append(elsewhere, object)
		}
		return relative + name
	})
	if len(elsewhere) > 0 {
		return "", fmt.Errorf("write a savepoint to %s: object %s lies elsewhere", folder, elsewhere[0])
	}
	data, err := c.Encode()
	if err != nil {
		return "", err
	}
	key := folder + "/" + manifestName
	if err := store.PutIfAbsent(ctx, key, data); err != nil {
		return "", fmt.Errorf("write the manifest of a savepoint: %w", err)
	}
	return key, nil
}

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
