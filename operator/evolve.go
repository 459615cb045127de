package operator

import (
	"strings"

	"github.com/cairnstream/cairn/codec"
)

// holders are the codecs of states' values that are made of those of what users store: of keys (k), which other
// entries refer to, so that they may not change, and of values (v). They evolve as their values do.
var holders = map[string]string{
	"aged": "v", "list-head": "v", "list-part": "v", "map-head": "k", "map-entry": "kv",
	"session": "v", "firing": "v", "panes": "v", "list": "v", "item": "v", "entry": "kv", "call": "v",
}

// holding returns the old and the new schemas that a holder is made of. Of keys there is only one.
func holding(old, now codec.Schema) (kinds string, was, is []codec.Schema, err error) {
	kinds = holders[now.Codec]
	if now.Codec == "panes" && old.Codec == now.Codec {
		before, shape, _ := strings.Cut(old.Shape, ":")
		present, rest, _ := strings.Cut(now.Shape, ":")
		if before != present {
			return "", nil, nil, &codec.IncompatibleError{Problems: []codec.Incompatibility{{
				Old: "panes of " + before, New: "of " + present, Why: "the windows of the state are cut into other panes", Do: "keep the size and the slide of the windows",
			}}}
		}
		old.Shape, now.Shape = shape, rest
	}
	if was, err = codec.PartsOf(old, now, len(kinds)); err != nil {
		return "", nil, nil, err
	}
	if is, err = codec.PartsOf(now, now, len(kinds)); err != nil {
		return "", nil, nil, err
	}
	for i, kind := range kinds {
		if kind == 'k' {
			if err := codec.Unchanged("[key]", was[i], is[i]); err != nil {
				return "", nil, nil, err
			}
		}
	}
	return kinds, was, is, nil
}

// evolvePart evolves c, the last codec of those that one with the schema now is made of.
func evolvePart[V any](c codec.Codec[V], old, now codec.Schema) (codec.Codec[V], error) {
	_, was, _, err := holding(old, now)
	if err != nil {
		return nil, err
	}
	return codec.Evolve(c, was[len(was)-1])
}

// Changes is codec.Changes for the values of states, whose schemas may be made of those of users' values.
func Changes(old, now codec.Schema) ([]codec.Change, error) {
	if holders[now.Codec] == "" || old.Codec != now.Codec {
		return codec.Changes(old, now)
	}
	kinds, was, is, err := holding(old, now)
	if err != nil {
		return nil, err
	}
	var list []codec.Change
	for i, kind := range kinds {
		if kind == 'v' {
			changes, err := Changes(was[i], is[i])
			if err != nil {
				return nil, err
			}
			list = append(list, changes...)
		}
	}
	return list, nil
}
