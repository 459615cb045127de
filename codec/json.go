package codec

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"sync"
)

// JSON returns the codec that encodes T as encoding/json does: the length as uvarint, then the
// text, compact, with the keys of maps sorted and without escapes for HTML. Fields that T does not
// have are ignored in what is decoded.
//
// Whatever T was when a value was encoded, the schema is the same: old values are decoded by the rules
// of encoding/json, by the names of fields. A value that does not fit is an error of Decode.
//
// Copy encodes and decodes, so that what JSON leaves out is left out of copies too. A value that
// cannot be encoded makes Copy panic with an error as its value.
func JSON[T any]() Codec[T] { return jsonCodec[T]{} }

type jsonCodec[T any] struct{}

var jsonBuffers = sync.Pool{New: func() any { return new(bytes.Buffer) }}

func (jsonCodec[T]) Schema() Schema { return Schema{Codec: "json", Version: 1} }

// marshal calls use with the text of *v, which is valid during the call.
func (jsonCodec[T]) marshal(v *T, use func(text []byte)) error {
	buf := jsonBuffers.Get().(*bytes.Buffer)
	buf.Reset()
	defer func() {
		if buf.Cap() <= keepScratch {
			jsonBuffers.Put(buf)
		}
	}()
	e := json.NewEncoder(buf)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return fmt.Errorf("encode %T as json: %w", *v, err)
	}
	text := bytes.TrimSuffix(buf.Bytes(), []byte("\n"))
	if len(text) > MaxValue-lenSize {
		return fmt.Errorf("encode %T as json: %w", *v, tooLarge(uint64(len(text))))
	}
	use(text)
	return nil
}

func (c jsonCodec[T]) Append(dst []byte, v *T) ([]byte, error) {
	err := c.marshal(v, func(text []byte) {
		dst = append(binary.AppendUvarint(dst, uint64(len(text))), text...)
	})
	return dst, err
}

func (c jsonCodec[T]) AppendPayload(dst []byte, v *T) ([]byte, error) {
	err := c.marshal(v, func(text []byte) { dst = append(dst, text...) })
	return dst, err
}

func (c jsonCodec[T]) Decode(src []byte, v *T) (int, error) {
	n, pos, err := readLen(src, 0)
	if err != nil {
		return 0, fmt.Errorf("decode %T: json: %w", *v, err)
	}
	if err := c.DecodePayload(src[pos:pos+n], v); err != nil {
		return 0, fmt.Errorf("in %d bytes at offset %d: %w", n, pos, err)
	}
	return pos + n, nil
}

func (jsonCodec[T]) DecodePayload(src []byte, v *T) error {
	var fresh T
	if err := json.Unmarshal(src, &fresh); err != nil {
		return fmt.Errorf("decode %T from json: %w", *v, err)
	}
	*v = fresh
	return nil
}

func (c jsonCodec[T]) Copy(dst, src *T) {
	var decode error
	err := c.marshal(src, func(text []byte) { decode = c.DecodePayload(text, dst) })
	if err == nil {
		err = decode
	}
	if err != nil {
		panic(fmt.Errorf("copy: %w", err))
	}
}
