package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"

	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/dynamicpb"
)

// Proto returns the codec of the Protobuf message M: the length as uvarint, then the message,
// marshalled deterministically. P is inferred: codec.Proto[pb.Order]().
//
// The shape is JSON with the message's full name and the base64 of a FileDescriptorSet of its file
// and all that this imports.
func Proto[M any, P interface {
	*M
	proto.Message
}]() Codec[M] {
	return &protoCodec[M, P]{Schema{Codec: "proto", Version: 1, Shape: protoShape(P(new(M)).ProtoReflect().Descriptor())}}
}

type protoCodec[M any, P interface {
	*M
	proto.Message
}] struct{ schema Schema }

func (c *protoCodec[M, P]) Schema() Schema { return c.schema }

// Evolve reads what an older or newer version of the message was written as, by the rules of Protobuf:
// fields by number, those that M does not have kept as unknown. Refused is what would lose data in
// silence: another message, and a number that has another type now.
func (c *protoCodec[M, P]) Evolve(old Schema) (Codec[M], error) {
	if _, err := protoChanges(old, c.schema); err != nil {
		return nil, err
	}
	return c, nil
}

var marshalProto = proto.MarshalOptions{Deterministic: true}

func (c *protoCodec[M, P]) Append(dst []byte, v *M) ([]byte, error) {
	n := marshalProto.Size(P(v))
	if n > MaxValue-lenSize {
		return dst, fmt.Errorf("encode %T: %w", *v, tooLarge(uint64(n)))
	}
	start := len(dst)
	out, err := c.AppendPayload(binary.AppendUvarint(dst, uint64(n)), v)
	if err != nil {
		return dst, err
	}
	if got := len(out) - start - len(binary.AppendUvarint(nil, uint64(n))); got != n {
		return dst, fmt.Errorf("encode %T: %d bytes instead of %d: was it changed meanwhile?", *v, got, n)
	}
	return out, nil
}

func (c *protoCodec[M, P]) AppendPayload(dst []byte, v *M) ([]byte, error) {
	out, err := marshalProto.MarshalAppend(dst, P(v))
	if err != nil {
		return dst, fmt.Errorf("encode %T: %w", *v, err)
	}
	return out, nil
}

func (c *protoCodec[M, P]) Decode(src []byte, v *M) (int, error) {
	n, pos, err := readLen(src, 0)
	if err != nil {
		return 0, fmt.Errorf("decode %T: %w", v, err)
	}
	if err := c.DecodePayload(src[pos:pos+n], v); err != nil {
		return 0, fmt.Errorf("in %d bytes at offset %d: %w", n, pos, err)
	}
	return pos + n, nil
}

func (c *protoCodec[M, P]) DecodePayload(src []byte, v *M) error {
	if err := proto.Unmarshal(src, P(v)); err != nil { // Resets *v.
		return fmt.Errorf("decode %T: %w", v, err)
	}
	return nil
}

func (c *protoCodec[M, P]) Copy(dst, src *M) {
	proto.Reset(P(dst))
	proto.Merge(P(dst), P(src))
}

// protoDescription is the shape of a Proto codec.
type protoDescription struct {
	Message string `json:"message"`
	Files   []byte `json:"files"`
}

func protoShape(d protoreflect.MessageDescriptor) string {
	set := new(descriptorpb.FileDescriptorSet)
	seen := map[string]bool{}
	var add func(protoreflect.FileDescriptor)
	add = func(f protoreflect.FileDescriptor) {
		if seen[f.Path()] {
			return
		}
		seen[f.Path()] = true
		for i := range f.Imports().Len() {
			add(f.Imports().Get(i).FileDescriptor)
		}
		set.File = append(set.File, protodesc.ToFileDescriptorProto(f))
	}
	add(d.ParentFile())
	files, err := marshalProto.Marshal(set)
	if err == nil {
		var shape []byte
		if shape, err = json.Marshal(protoDescription{string(d.FullName()), files}); err == nil {
			return string(shape)
		}
	}
	panic(fmt.Sprintf("marshal descriptor of %s: %v", d.FullName(), err)) // Of generated code: cannot fail.
}

// protoMessage is the message that a shape describes, with all of its files.
func protoMessage(shape string) (protoreflect.MessageDescriptor, *protoregistry.Files, error) {
	var d protoDescription
	set := new(descriptorpb.FileDescriptorSet)
	if err := json.Unmarshal([]byte(shape), &d); err != nil {
		return nil, nil, err
	}
	if err := proto.Unmarshal(d.Files, set); err != nil {
		return nil, nil, err
	}
	files, err := protodesc.NewFiles(set)
	if err != nil {
		return nil, nil, err
	}
	found, err := files.FindDescriptorByName(protoreflect.FullName(d.Message))
	if err != nil {
		return nil, nil, err
	}
	desc, ok := found.(protoreflect.MessageDescriptor)
	if !ok {
		return nil, nil, fmt.Errorf("%s is not a message", d.Message)
	}
	return desc, files, nil
}

// protoLayout decodes messages that a shape describes into JSON, and encodes them from it.
type protoLayout struct {
	desc  protoreflect.MessageDescriptor
	types *dynamicpb.Types
}

func newProtoLayout(shape string) (*protoLayout, error) {
	desc, files, err := protoMessage(shape)
	if err != nil {
		return nil, err
	}
	return &protoLayout{desc, dynamicpb.NewTypes(files)}, nil
}

func (l *protoLayout) decode(src []byte) (any, int, error) {
	n, pos, err := readLen(src, 0)
	if err != nil {
		return nil, 0, err
	}
	m := dynamicpb.NewMessage(l.desc)
	if err := proto.Unmarshal(src[pos:pos+n], m); err != nil {
		return nil, 0, err
	}
	text, err := protojson.MarshalOptions{Resolver: l.types}.Marshal(m)
	if err != nil {
		return nil, 0, err
	}
	var compact bytes.Buffer // protojson varies its white space on purpose.
	if err := json.Compact(&compact, text); err != nil {
		return nil, 0, err
	}
	return json.RawMessage(compact.Bytes()), pos + n, nil
}

// encode appends the message that text is the JSON of. Fields that the message does not have are refused.
func (l *protoLayout) encode(dst, text []byte) ([]byte, error) {
	m := dynamicpb.NewMessage(l.desc)
	if err := (protojson.UnmarshalOptions{Resolver: l.types}).Unmarshal(text, m); err != nil {
		return dst, err
	}
	b, err := marshalProto.Marshal(m)
	if err != nil {
		return dst, err
	}
	return append(binary.AppendUvarint(dst, uint64(len(b))), b...), nil
}
