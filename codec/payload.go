package codec

import "fmt"

// Payload is implemented by codecs whose values need no length where the transport delimits them:
// the value of a Kafka message, a line of a file. JSON, Proto, String and Bytes have it.
type Payload[T any] interface {
	// AppendPayload appends the encoding of *v without a length in front.
	AppendPayload(dst []byte, v *T) ([]byte, error)
	// DecodePayload reads *v from all of src. The promises of Codec.Decode hold.
	DecodePayload(src []byte, v *T) error
}

// AppendPayload encodes *v as the whole content of a message: without a length in front if c is a
// Payload, else as c.Append does.
func AppendPayload[T any](c Codec[T], dst []byte, v *T) ([]byte, error) {
	if p, ok := c.(Payload[T]); ok {
		return p.AppendPayload(dst, v)
	}
	return c.Append(dst, v)
}

// DecodePayload is the inverse of AppendPayload. Bytes left over are an error.
func DecodePayload[T any](c Codec[T], src []byte, v *T) error {
	if p, ok := c.(Payload[T]); ok {
		return p.DecodePayload(src, v)
	}
	n, err := c.Decode(src, v)
	if err == nil && n != len(src) {
		err = leftOver(c.Schema().Codec, len(src)-n, n)
	}
	return err
}

func leftOver(codec string, bytes, at int) error {
	return fmt.Errorf("decode %s: %d bytes left over at offset %d", codec, bytes, at)
}
