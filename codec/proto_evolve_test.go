package codec

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/known/structpb"
	"google.golang.org/protobuf/types/known/timestamppb"
)

// protoSchema is the schema of a message with such fields, "label type name number" each. It also may hold
// itself, an enum, and a message with one field, named inner.
func protoSchema(t *testing.T, message string, inner string, fields ...string) Schema {
	t.Helper()
	field := func(text string) *descriptorpb.FieldDescriptorProto {
		var label, typ, name string
		var number int32
		if _, err := fmt.Sscan(text, &label, &typ, &name, &number); err != nil {
			t.Fatal(err)
		}
		f := &descriptorpb.FieldDescriptorProto{Name: &name, Number: &number,
			Label: descriptorpb.FieldDescriptorProto_Label(descriptorpb.FieldDescriptorProto_Label_value["LABEL_"+strings.ToUpper(label)]).Enum()}
		switch typ {
		case "self", "Inner":
			f.Type = descriptorpb.FieldDescriptorProto_TYPE_MESSAGE.Enum()
			f.TypeName = proto.String(map[string]string{"self": ".test." + message, "Inner": ".test.Inner"}[typ])
		case "E":
			f.Type, f.TypeName = descriptorpb.FieldDescriptorProto_TYPE_ENUM.Enum(), proto.String(".test.E")
		default:
			f.Type = descriptorpb.FieldDescriptorProto_Type(descriptorpb.FieldDescriptorProto_Type_value["TYPE_"+strings.ToUpper(typ)]).Enum()
		}
		return f
	}
	m := &descriptorpb.DescriptorProto{Name: &message}
	for _, f := range fields {
		m.Field = append(m.Field, field(f))
	}
	file, err := protodesc.NewFile(&descriptorpb.FileDescriptorProto{
		Name: proto.String("test.proto"), Package: proto.String("test"), Syntax: proto.String("proto3"),
		MessageType: []*descriptorpb.DescriptorProto{m, {Name: proto.String("Inner"), Field: []*descriptorpb.FieldDescriptorProto{field(inner)}}},
		EnumType:    []*descriptorpb.EnumDescriptorProto{{Name: proto.String("E"), Value: []*descriptorpb.EnumValueDescriptorProto{{Name: proto.String("ZERO"), Number: proto.Int32(0)}}}},
	}, nil)
	if err != nil {
		t.Fatal(err)
	}
	return Schema{Codec: "proto", Version: 1, Shape: protoShape(file.Messages().ByName(protoreflect.Name(message)))}
}

func TestEvolveProto(t *testing.T) {
	const inner = "optional int32 x 1"
	old := protoSchema(t, "Order", inner, "optional int32 count 1", "optional string text 2", "repeated string list 3", "optional Inner inner 4",
		"optional self next 5", "optional E kind 6", "optional uint32 size 7", "optional sint32 zig 8", "optional bool flag 9", "optional string one 10")
	same := []string{"optional int32 count 1", "optional string text 2", "repeated string list 3", "optional Inner inner 4",
		"optional self next 5", "optional E kind 6", "optional uint32 size 7", "optional sint32 zig 8", "optional bool flag 9", "optional string one 10"}
	with := func(i int, field string) Schema {
		fields := append([]string(nil), same...)
		fields[i] = field
		return protoSchema(t, "Order", inner, fields...)
	}
	for _, c := range []struct {
		now    Schema
		change string // Else refused with:
		word   string
	}{
		{now: protoSchema(t, "Order", inner, append(same, "optional bytes more 11")...), change: "field more added"},
		{now: protoSchema(t, "Order", inner, same[:9]...), change: "field one dropped"},
		{now: with(0, "optional int32 amount 1"), change: "field amount renamed from count"},
		{now: with(0, "optional int64 count 1"), change: "field count read as int64, was int32"},
		{now: with(6, "optional int64 size 7"), change: "field size read as int64, was uint32"},
		{now: with(6, "optional uint64 size 7"), change: "field size read as uint64, was uint32"},
		{now: with(8, "optional uint32 flag 9"), change: "field flag read as uint32, was bool"},
		{now: with(7, "optional sint64 zig 8"), change: "field zig read as sint64, was sint32"},
		{now: with(5, "optional int32 kind 6"), change: "field kind read as int32, was enum"},
		{now: with(1, "optional bytes text 2"), change: "field text read as bytes, was string"},
		{now: with(9, "repeated string one 10"), change: "field one read as repeated string, was string"},
		{now: protoSchema(t, "Order", "optional int64 x 1", same...), change: "field inner.x read as int64, was int32"},
		{now: with(0, "optional sint32 count 1"), word: "field count was int32 and is sint32: the bytes have another meaning: keep the type of number 1"},
		{now: with(0, "optional string count 1"), word: "another meaning"},
		{now: with(0, "optional uint64 count 1"), word: "another meaning"},
		{now: with(0, "optional bool count 1"), word: "not every value fits"},
		{now: with(0, "optional E count 1"), word: "enum"},
		{now: with(2, "optional string list 3"), word: "all values but the last"},
		{now: with(3, "optional string inner 4"), word: "another meaning"},
		{now: protoSchema(t, "Order", "optional string x 1", same...), word: "field inner.x"},
		{now: protoSchema(t, "Bill", inner, "optional int32 count 1"), word: "was test.Order and is test.Bill: they are different messages"},
	} {
		changes, err := Changes(old, c.now)
		if c.word != "" {
			var e *IncompatibleError
			if !errors.As(err, &e) || !strings.Contains(err.Error(), c.word) {
				t.Errorf("%v, want %q", err, c.word)
			}
			continue
		}
		if err != nil || len(changes) != 1 || changes[0].String() != c.change {
			t.Errorf("%v, %v, want %q", changes, err, c.change)
		}
	}
	c := Proto[structpb.Struct]()
	shape := c.Schema()
	shape.Shape += " " // Another text of the same.
	if got, err := Evolve(c, shape); err != nil || got != c {
		t.Errorf("the same message: %v", err)
	}
	for _, s := range []Schema{Proto[timestamppb.Timestamp]().Schema(), {Codec: "proto", Version: 2}, {Codec: "proto", Shape: "{}"}, {Codec: "json"}} {
		if _, err := Evolve(c, s); err == nil {
			t.Errorf("%v is read as %v", s, c.Schema())
		}
	}
}
