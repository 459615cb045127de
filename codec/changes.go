package codec

import (
	"fmt"
	"slices"
	"strings"
)

// Change is one difference between two schemas over which old values are carried.
type Change struct {
	Path string // Of the field, with [] for what a slice, array or map holds; empty for the whole.
	What string // In words: "added", "dropped", "renamed from Sum", "widened from int32 to int64".
}

func (c Change) String() string {
	if c.Path == "" {
		return "value " + c.What
	}
	return "field " + c.Path + " " + c.What
}

// differ compares an old type with a new one, by the rules of FORMAT.md. What it does not refuse,
// compiler.evolve compiles.
type differ struct {
	changes  []Change
	problems []Incompatibility
}

func (d *differ) change(path, format string, args ...any) {
	d.changes = append(d.changes, Change{path, fmt.Sprintf(format, args...)})
}

func (d *differ) refuse(path string, old, now *Type, why string) {
	do := "keep the old type"
	if path != "" {
		do += ", or give the new field another name, so that the old one is dropped"
	}
	d.problems = append(d.problems, Incompatibility{Path: path, Old: old.brief(), New: now.brief(), Why: why, Do: do})
}

// value compares what was old with what is now. key tells that both are in the key of a map.
func (d *differ) value(old, now *Type, path string, key bool) {
	switch {
	case now.like(old):
	case now.Kind == KindPointer && old.Kind == KindPointer:
		d.value(old.Elem, now.Elem, path, key)
	case now.Kind == KindPointer:
		d.change(path, "made a pointer")
		d.value(old, now.Elem, path, key)
	case old.Kind == KindPointer:
		d.refuse(path, old, now, "nil would be lost")
	case now.Kind == KindSlice && old.Kind == KindSlice:
		d.value(old.Elem, now.Elem, path+"[]", key)
	case now.Kind == KindSlice && old.Kind == KindBytes:
		d.value(&byteType, now.Elem, path+"[]", key)
	case now.Kind == KindArray && old.Kind == KindArray:
		if now.Len != old.Len {
			d.refuse(path, old, now, "the length of an array is fixed")
			return
		}
		d.value(old.Elem, now.Elem, path+"[]", key)
	case now.Kind == KindMap && old.Kind == KindMap:
		d.value(old.Key, now.Key, path+"[key]", true)
		d.value(old.Elem, now.Elem, path+"[]", key)
	case now.Kind == KindStruct && old.Kind == KindStruct:
		d.fields(old, now, path, key)
	case now.Kind == KindString && old.Kind == KindBytes:
		d.change(path, "made a string of bytes: nil becomes empty")
	case now.Kind == KindBytes && old.Kind == KindString:
		d.change(path, "made bytes of a string")
	case renames(old.Kind, now.Kind):
		d.change(path, "made %s of %s", now.Kind, old.Kind)
	case widens(old.Kind, now.Kind):
		d.change(path, "widened from %s to %s", old.Kind, now.Kind)
	default:
		d.refuse(path, old, now, whyNot(old.Kind, now.Kind))
	}
}

// byteType is that of the elements of bytes.
var byteType = Type{Kind: KindUint8}

func (d *differ) fields(old, now *Type, path string, key bool) {
	from, problems := origins(old.Fields, now.Fields)
	at := func(name string) string {
		if path == "" {
			return name
		}
		return path + "." + name
	}
	for _, p := range problems {
		p.Path = at(p.Path)
		d.problems = append(d.problems, p)
	}
	if len(problems) > 0 {
		return
	}
	kept := make([]bool, len(old.Fields))
	last, moved := -1, false
	for i, f := range now.Fields {
		o := from[i]
		if o < 0 {
			d.change(at(f.Name), "added")
			continue
		}
		kept[o], moved, last = true, moved || o < last, o
		if was := old.Fields[o]; was.Name != f.Name {
			d.change(at(f.Name), "renamed from %s", was.Name)
		}
		d.value(old.Fields[o].Type, f.Type, at(f.Name), key)
	}
	for o, f := range old.Fields {
		switch {
		case kept[o]:
		case key:
			d.problems = append(d.problems, Incompatibility{
				Path: at(f.Name), Old: f.Type.brief(), New: "not there",
				Why: "keys of a map that differ in it alone would become one", Do: "keep the field",
			})
		default:
			d.change(at(f.Name), "dropped")
		}
	}
	if moved {
		d.change(path, "with its fields in another order")
	}
}

// origins says for each field of now which of old it was, or -1: the one of the same name, else the
// one whose name is among its aliases.
func origins(old, now []Field) (from []int, problems []Incompatibility) {
	index := make(map[string]int, len(old))
	for i, f := range old {
		if _, twice := index[f.Name]; twice {
			problems = append(problems, Incompatibility{
				Path: f.Name, Old: "there twice", New: "unclear", Why: "the old schema is damaged", Do: "restore another checkpoint",
			})
		}
		index[f.Name] = i
	}
	from = make([]int, len(now))
	claimed := make(map[int]string, len(now))
	for i, f := range now {
		from[i] = -1
		if o, ok := index[f.Name]; ok {
			from[i], claimed[o] = o, f.Name
		}
	}
	ambiguous := func(f Field, was, why, do string) {
		problems = append(problems, Incompatibility{Path: f.Name, Old: was, New: f.Type.brief(), Why: why, Do: do})
	}
	for i, f := range now {
		if from[i] >= 0 {
			continue
		}
		var found []int
		for _, a := range f.Aliases {
			if o, ok := index[a]; ok && !slices.Contains(found, o) {
				found = append(found, o)
			}
		}
		switch {
		case len(found) > 1:
			var names []string
			for _, o := range found {
				names = append(names, old[o].Name)
			}
			ambiguous(f, strings.Join(names, " and "), "more than one of its aliases was a field", "remove the alias of all but one")
		case len(found) == 1:
			o := found[0]
			if other, taken := claimed[o]; taken {
				ambiguous(f, old[o].Name, "field "+other+" was that one too", "remove the alias of one of them")
				continue
			}
			from[i], claimed[o] = o, f.Name
		}
	}
	return from, problems
}

// like tells whether values of t and o have the same encoding and mean the same: all but aliases agree.
func (t *Type) like(o *Type) bool {
	if t.Kind != o.Kind || t.Len != o.Len || len(t.Fields) != len(o.Fields) ||
		t.Elem != nil && !t.Elem.like(o.Elem) || t.Key != nil && !t.Key.like(o.Key) {
		return false
	}
	for i := range t.Fields {
		if t.Fields[i].Name != o.Fields[i].Name || !t.Fields[i].Type.like(o.Fields[i].Type) {
			return false
		}
	}
	return true
}

// brief is t for an error message, much as in Go.
func (t *Type) brief() string {
	switch t.Kind {
	case KindPointer:
		return "*" + t.Elem.brief()
	case KindSlice:
		return "[]" + t.Elem.brief()
	case KindArray:
		return fmt.Sprintf("[%d]%s", t.Len, t.Elem.brief())
	case KindMap:
		return fmt.Sprintf("map[%s]%s", t.Key.brief(), t.Elem.brief())
	case KindStruct:
		const most = 5
		var names []string
		for i, f := range t.Fields {
			if i == most {
				names = append(names, "...")
				break
			}
			names = append(names, f.Name)
		}
		return "struct{" + strings.Join(names, ", ") + "}"
	}
	return string(t.Kind)
}

// renames tells whether the two kinds have the same values and bytes.
func renames(old, now Kind) bool {
	return old == KindDuration && now == KindInt64 || old == KindInt64 && now == KindDuration
}

// integers gives the bits of each kind of integers that a positive number may have; those of a kind with a sign
// are odd.
var integers = map[Kind]int{
	KindInt8: 7, KindInt16: 15, KindInt32: 31, KindInt64: 63, KindUint8: 8, KindUint16: 16, KindUint32: 32, KindUint64: 64,
}

// widens tells whether every number of kind old is one of kind now, without loss.
func widens(old, now Kind) bool {
	a, b := integers[old], integers[now]
	switch {
	case a > 0 && b > 0:
		return a < b && (a%2 == 0 || b%2 == 1)
	case old == KindFloat32:
		return now == KindFloat64
	case old == KindComplex64:
		return now == KindComplex128
	}
	return false
}

// whyNot says why values of kind old cannot be read as now.
func whyNot(old, now Kind) string {
	floats := []Kind{KindFloat32, KindFloat64}
	switch {
	case integers[old] > 0 && integers[now] > 0, slices.Contains(floats, old) && slices.Contains(floats, now), old == KindComplex128 && now == KindComplex64:
		return fmt.Sprintf("%s does not hold every %s", now, old)
	case integers[old] > 0 && slices.Contains(floats, now):
		return "a whole number does not turn into a float by itself"
	}
	return "they are of different sorts"
}

// Changes lists what differs between an old schema and the present one, in so far as old values are
// carried over it. The error, an *IncompatibleError, says why they cannot be. Of a codec from outside of this
// package it knows only that there is a change: whether the codec reads the old schema, its Migrate says.
func Changes(old, now Schema) ([]Change, error) {
	if old.equal(now) {
		return nil, nil
	}
	switch now.Codec {
	case "json":
		return nil, codecsDiffer(old, now)
	case "proto":
		return protoChanges(old, now)
	}
	if _, err := now.Type(); err != nil && old.Codec == now.Codec && old.version() <= now.version() {
		what := "read by the codec's Migrate"
		if old.version() < now.version() {
			what = fmt.Sprintf("%s: version %d was %d", what, now.version(), old.version())
		}
		return []Change{{What: what}}, nil
	}
	was, is, err := types(old, now)
	if err != nil {
		return nil, err
	}
	var d differ
	if d.value(was, is, "", false); len(d.problems) > 0 {
		return nil, &IncompatibleError{d.problems}
	}
	return d.changes, nil
}
