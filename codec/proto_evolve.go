package codec

import (
	"fmt"

	"google.golang.org/protobuf/reflect/protoreflect"
)

// protoChanges compares two schemas of the codec proto.
func protoChanges(old, now Schema) ([]Change, error) {
	switch {
	case old.Codec != now.Codec:
		return nil, codecsDiffer(old, now)
	case old.version() > now.version():
		return nil, newer(old, now)
	}
	was, _, err := protoMessage(old.Shape)
	if err != nil {
		return nil, incompatible(old, now, fmt.Sprintf("the old descriptor: %v", err), "restore another checkpoint")
	}
	is, _, err := protoMessage(now.Shape)
	if err != nil {
		return nil, incompatible(old, now, fmt.Sprintf("the new descriptor: %v", err), "generate its code anew")
	}
	if was.FullName() != is.FullName() {
		return nil, &IncompatibleError{[]Incompatibility{{
			Old: string(was.FullName()), New: string(is.FullName()), Why: "they are different messages", Do: "keep the name of the message and of its package",
		}}}
	}
	d := protoDiffer{seen: map[[2]protoreflect.FullName]bool{}}
	d.message(was, is, "")
	if len(d.problems) > 0 {
		return nil, &IncompatibleError{d.problems}
	}
	return d.changes, nil
}

// protoDiffer compares messages field by field, by their numbers.
type protoDiffer struct {
	differ
	seen map[[2]protoreflect.FullName]bool // Messages may hold themselves.
}

func (d *protoDiffer) message(old, now protoreflect.MessageDescriptor, path string) {
	pair := [2]protoreflect.FullName{old.FullName(), now.FullName()}
	if d.seen[pair] {
		return
	}
	d.seen[pair] = true
	for i := range now.Fields().Len() {
		f := now.Fields().Get(i)
		if old.Fields().ByNumber(f.Number()) == nil {
			d.change(path+string(f.Name()), "added")
		}
	}
	for i := range old.Fields().Len() {
		was := old.Fields().Get(i)
		is := now.Fields().ByNumber(was.Number())
		if is == nil {
			d.change(path+string(was.Name()), "dropped")
			continue
		}
		at := path + string(is.Name())
		if was.Name() != is.Name() {
			d.change(at, "renamed from %s", was.Name())
		}
		if why := protoProblem(was, is); why != "" {
			d.problems = append(d.problems, Incompatibility{
				Path: at, Old: protoType(was), New: protoType(is), Why: why,
				Do: fmt.Sprintf("keep the type of number %d, or give the new field another number", was.Number()),
			})
			continue
		}
		if protoType(was) != protoType(is) {
			d.change(at, "read as %s, was %s", protoType(is), protoType(was))
		}
		if is.Message() != nil {
			d.message(was.Message(), is.Message(), at+".")
		}
	}
}

// protoSort groups the kinds with the same bytes on the wire, each with its width: a number of a kind
// is read rightly as one of the same sort that is as wide.
var protoSort = map[protoreflect.Kind]struct {
	sort  string
	width int
}{
	protoreflect.BoolKind: {"varint", 1}, protoreflect.EnumKind: {"varint", 32}, protoreflect.Int32Kind: {"varint", 32},
	protoreflect.Int64Kind: {"varint", 64}, protoreflect.Uint32Kind: {"unsigned", 32}, protoreflect.Uint64Kind: {"unsigned", 64},
	protoreflect.Sint32Kind: {"zigzag", 32}, protoreflect.Sint64Kind: {"zigzag", 64},
	protoreflect.Fixed32Kind: {"fixed32", 32}, protoreflect.Sfixed32Kind: {"sfixed32", 32}, protoreflect.FloatKind: {"float", 32},
	protoreflect.Fixed64Kind: {"fixed64", 64}, protoreflect.Sfixed64Kind: {"sfixed64", 64}, protoreflect.DoubleKind: {"double", 64},
	protoreflect.StringKind: {"string", 0}, protoreflect.BytesKind: {"string", 1},
	protoreflect.MessageKind: {"message", 0}, protoreflect.GroupKind: {"group", 0},
}

// protoProblem says why what was written as was cannot be read as is.
func protoProblem(was, is protoreflect.FieldDescriptor) string {
	a, b := protoSort[was.Kind()], protoSort[is.Kind()]
	switch {
	case was.IsMap() != is.IsMap():
		return "only one of them is a map"
	case was.Cardinality() == protoreflect.Repeated && is.Cardinality() != protoreflect.Repeated:
		return "all values but the last would be lost"
	case a.sort == "unsigned" && b.sort == "varint" && a.width < b.width:
	case was.Kind() == protoreflect.BoolKind && b.sort == "unsigned":
	case a.sort != b.sort:
		return "the bytes have another meaning"
	case a.width > b.width:
		return "not every value fits"
	case is.Kind() == protoreflect.EnumKind && was.Kind() != protoreflect.EnumKind:
		return "not every number is one of the enum"
	case is.Cardinality() == protoreflect.Required && was.Cardinality() != protoreflect.Required:
		return "a value need not have it"
	}
	return ""
}

func protoType(f protoreflect.FieldDescriptor) string {
	text := f.Kind().String()
	switch {
	case f.IsMap():
		return fmt.Sprintf("map<%s, %s>", protoType(f.MapKey()), protoType(f.MapValue()))
	case f.Message() != nil:
		text = "message"
	case f.Enum() != nil:
		text = "enum"
	}
	if f.Cardinality() == protoreflect.Repeated {
		text = "repeated " + text
	}
	return text
}
