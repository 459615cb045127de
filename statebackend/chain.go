package statebackend

import (
	"fmt"

	"github.com/cairnstream/cairn/job"
)

// Chain is the handles of one state of one subtask: the first holds the state as of some checkpoint, and each other one
// what changed since the one before it.
type Chain []job.StateHandle

// Newest is the handle that tells how many entries the state has.
func (c Chain) Newest() job.StateHandle { return c[len(c)-1] }

// Changes is the sum of the bytes of all handles but the first.
func (c Chain) Changes() (n int64) {
	for _, h := range c[1:] {
		n += h.Length
	}
	return n
}

// Chains puts together the handles that belong together, in their order. Handles of other kinds than KindKeyed are passed
// over. It refuses changes that do not come right after what they change.
func Chains(handles []job.StateHandle) ([]Chain, error) {
	var out []Chain
	for i, h := range handles {
		if h.Base == "" {
			if h.Kind == KindKeyed {
				out = append(out, handles[i:i+1:i+1])
			}
			continue
		}
		bad := func(format string, args ...any) ([]Chain, error) {
			return nil, fmt.Errorf("%w: state %q of key groups %v: %s", ErrCorrupt, h.Name, h.Groups, fmt.Sprintf(format, args...))
		}
		if i == 0 {
			return bad("it begins with changes to %s, which is not there", h.Base)
		}
		switch b := handles[i-1]; {
		case h.Kind != KindKeyed:
			return bad("a state of kind %q has no changes", h.Kind)
		case b.Name != h.Name || b.Kind != h.Kind:
			return bad("changes to %s come after a handle of state %q", h.Base, b.Name)
		case b.Index != h.Base:
			return bad("changes to %s come after %s", h.Base, b.Index)
		case b.Groups != h.Groups || b.Key != h.Key || b.Codec != h.Codec:
			return bad("changes of other key groups or another schema than what they change")
		}
		last := &out[len(out)-1]
		*last = handles[i-len(*last) : i+1 : i+1]
	}
	return out, nil
}
