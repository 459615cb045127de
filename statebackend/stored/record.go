package stored

import (
	"errors"
	"fmt"

	"github.com/cairnstream/cairn/codec"
)

// Record is the entry for people: a Member for the operator, the state, the parts of its place and its value, decoded. What
// it is written as in JSON is what package snapshot/edit takes.
func (e *Entry) Record() (codec.Object, error) {
	st := e.State
	o := codec.Object{{Name: "operator", Value: st.Operator}, {Name: "state", Value: st.Name}}
	var failed error
	add := func(name string, l *codec.Layout, b []byte) {
		v, err := decode(l, b)
		if err != nil && failed == nil {
			failed = st.fail(fmt.Errorf("%s: %w", name, err))
		}
		o = append(o, codec.Member{Name: name, Value: v})
	}
	if st.Kind == OperatorList {
		o = append(o, codec.Member{Name: "subtask", Value: int64(e.Subtask)}, codec.Member{Name: "index", Value: int64(e.Index)})
	}
	if st.Key != nil {
		add("key", st.Key, e.Key)
	}
	switch st.Kind {
	case Map:
		add("map_key", st.MapKey, e.MapKey)
	case Broadcast:
		if st.MapKey != nil {
			add("map_key", st.MapKey, e.MapKey)
		}
	case Timers:
		o = append(o, codec.Member{Name: "time", Value: codec.MillisValue(e.Time)})
	case Windows:
		if st.Value.Is("session") {
			o = append(o, codec.Member{Name: "place", Value: e.Time})
		} else {
			o = append(o, codec.Member{Name: "window", Value: codec.MillisValue(e.Time)})
		}
	case List:
		if e.Time != 0 {
			o = append(o, codec.Member{Name: "list", Value: e.Time})
		}
		elem := st.mainLayout.value.Parts()[0]
		list := make([]any, len(e.Elems))
		for i, b := range e.Elems {
			var err error
			if list[i], err = decode(elem, b); err != nil && failed == nil {
				failed = st.fail(fmt.Errorf("element %d: %w", i, err))
			}
		}
		return append(o, codec.Member{Name: "value", Value: list}), failed
	}
	if st.TTL {
		o = append(o, codec.Member{Name: "written", Value: codec.MillisValue(e.Written)})
	}
	add("value", st.Value, e.Value)
	return o, failed
}

// decode gives bytes as they are where only the program knows what they are.
func decode(l *codec.Layout, b []byte) (any, error) {
	if l == nil {
		return b, nil
	}
	v, n, err := l.Decode(b)
	if err == nil && n != len(b) {
		err = errors.New("it has bytes left over")
	}
	if err != nil {
		return nil, corrupt("%v", err)
	}
	return v, nil
}
