package codec

import "strconv"

// Codec turns values of T into bytes and back. Implementations are safe for concurrent use and
// hold no state of a call.
type Codec[T any] interface {
	// Append appends the encoding of *v to dst and returns the longer slice. An encoding is
	// self-delimiting: Decode finds its end without help. Equal values of a comparable T have
	// equal encodings, since keys are compared and hashed as bytes.
	Append(dst []byte, v *T) ([]byte, error)
	// Decode reads one value from the front of src into *v and returns how many bytes it took.
	// *v keeps nothing of src: what is not a plain number is copied out. It never panics; an
	// error names what is wrong and at which offset.
	Decode(src []byte, v *T) (int, error)
	// Copy makes *dst a value equal to *src that shares no memory with it.
	Copy(dst, src *T)
	// Schema describes the encoding. It goes into graphs, frames and snapshots.
	Schema() Schema
}

// Bulk is implemented by codecs that are faster over many values at once.
type Bulk[T any] interface {
	// AppendAll appends the encodings of vs, one behind the other.
	AppendAll(dst []byte, vs []T) ([]byte, error)
	// DecodeAll fills all of vs from the front of src and returns the bytes taken.
	DecodeAll(src []byte, vs []T) (int, error)
}

// Sharing is c's Copy for values that live as long as their copies or longer: strings, which nobody
// changes, may have their memory in common.
func Sharing[T any](c Codec[T]) func(dst, src *T) {
	if s, ok := c.(interface{ share(dst, src *T) }); ok {
		return s.share
	}
	return c.Copy
}

// Schema names an encoding and describes its shape.
type Schema struct {
	Codec   string // Name of the codec: struct, json, proto, string, int64, bytes, ...
	Version int    // Of the codec's own format.
	Shape   string // Machine-readable description of the type, codec-specific, canonical.
}

// String is the canonical text of s: equal schemas have equal texts. It is the codec's name, a
// slash and the version if that is not 1, and a colon and the shape if there is one. What the name has
// of characters with a meaning is written as % and two hexadecimal digits. ParseSchema reads it.
func (s Schema) String() string {
	text := escapeName(s.Codec)
	if s.Version > 1 {
		text += "/" + strconv.Itoa(s.Version)
	}
	if s.Shape != "" {
		text += ":" + s.Shape
	}
	return text
}
