package codec

import (
	"fmt"
	"strings"
	"unsafe"
)

// Evolver is implemented by codecs that read what was written under another schema than theirs.
type Evolver[T any] interface {
	// Evolve returns a codec that decodes what was written under old, and is otherwise like this one:
	// it encodes in, and bears, the present schema. The decision falls here and not in Decode: an error has an
	// *IncompatibleError in its chain.
	Evolve(old Schema) (Codec[T], error)
}

// Migrator is implemented by codecs of a format of their own, whose Schema counts its versions. Evolve
// calls it with schemas of the same name and of the same or an older version.
type Migrator[T any] interface {
	// Migrate returns what decodes values that were written under from, with the promises of
	// Codec.Decode. The error says why there is no way.
	Migrate(from Schema) (decode func(src []byte, v *T) (int, error), err error)
}

// Evolve returns the codec that decodes what was written under old and encodes as c does: c itself
// if old is its schema. An error has an *IncompatibleError in its chain.
//
// It is for values. Keys are placed by their bytes, so that none of their codec may change.
func Evolve[T any](c Codec[T], old Schema) (Codec[T], error) {
	now := c.Schema()
	if old.equal(now) {
		return c, nil
	}
	if e, ok := c.(Evolver[T]); ok {
		return e.Evolve(old)
	}
	if old.Codec != now.Codec {
		return nil, codecsDiffer(old, now)
	}
	if old.version() > now.version() {
		return nil, newer(old, now)
	}
	m, ok := c.(Migrator[T])
	if !ok {
		return nil, incompatible(old, now, "the codec reads its present schema only", "have it implement codec.Migrator or codec.Evolver")
	}
	decode, err := m.Migrate(old)
	if err != nil {
		return nil, incompatible(old, now, err.Error(), "have its Migrate read that version")
	}
	return &migratedCodec[T]{c, decode}, nil
}

// migratedCodec decodes what a Migrator reads.
type migratedCodec[T any] struct {
	Codec[T] // Of the present schema.
	decode   func(src []byte, v *T) (int, error)
}

func (c *migratedCodec[T]) Decode(src []byte, v *T) (int, error) { return c.decode(src, v) }

// evolvedCodec decodes by a program that reads an old type into T.
type evolvedCodec[T any] struct {
	Codec[T] // Of the present schema.
	old      *program
}

func (c *evolvedCodec[T]) Decode(src []byte, v *T) (int, error) {
	return c.old.decodeOne(src, unsafe.Pointer(v))
}

func (c *evolvedCodec[T]) share(dst, src *T) { Sharing(c.Codec)(dst, src) }

// Evolve is that of the present codec.
func (c *evolvedCodec[T]) Evolve(old Schema) (Codec[T], error) { return Evolve(c.Codec, old) }

// Incompatibility is one reason why old values cannot be read.
type Incompatibility struct {
	Path     string // Of the field, with [] for what a slice, array or map holds; empty for the whole.
	Old, New string // Its type then and now.
	Why      string
	Do       string // What to do.
}

func (p Incompatibility) String() string {
	var b strings.Builder
	if p.Path != "" {
		fmt.Fprintf(&b, "field %s ", p.Path)
	}
	fmt.Fprintf(&b, "was %s and is %s: %s: %s", p.Old, p.New, p.Why, p.Do)
	return b.String()
}

// IncompatibleError says why what was written under one schema cannot be read under another.
type IncompatibleError struct{ Problems []Incompatibility }

func (e *IncompatibleError) Error() string {
	texts := make([]string, len(e.Problems))
	for i, p := range e.Problems {
		texts[i] = p.String()
	}
	return strings.Join(texts, "; ")
}

// incompatible is the error about two schemas as wholes.
func incompatible(old, now Schema, why, do string) error {
	return &IncompatibleError{[]Incompatibility{{Old: short(old.String()), New: short(now.String()), Why: why, Do: do}}}
}

// codecsDiffer is the error about two schemas of different codecs.
func codecsDiffer(old, now Schema) error {
	const withTTL = "aged" // The codec of a state's values with the times of their changes.
	switch {
	case old.Codec == withTTL:
		return incompatible(old, now, "the state had a TTL and has none", "give it the TTL again")
	case now.Codec == withTTL:
		return incompatible(old, now, "the state had no TTL and has one", "take the TTL away")
	}
	return incompatible(old, now, "the codecs differ", "go back to the old codec")
}

func newer(old, now Schema) error {
	return incompatible(old, now, fmt.Sprintf("version %d of the codec is newer than the program's, %d", old.version(), now.version()),
		"run a program that has the newer version")
}

// shortText bounds what an error repeats of a schema: that of a Protobuf message has kilobytes.
const shortText = 300

func short(s string) string {
	if len(s) > shortText {
		return strings.ToValidUTF8(s[:shortText], "") + "..."
	}
	return s
}

func (s Schema) version() int { return max(s.Version, 1) }

// equal tells whether s and o are the same schema: versions below 1 mean 1.
func (s Schema) equal(o Schema) bool {
	return s.Codec == o.Codec && s.version() == o.version() && s.Shape == o.Shape
}
