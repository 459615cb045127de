package sealed

import (
	"bytes"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/cairnstream/cairn/blob"
)

const (
	magic      = "CRNSEAL1"
	headerSize = len(magic) + maxID + saltSize
	saltSize   = 16
	pieceSize  = 64 << 10 // Of content.
	tagSize    = 16
	info       = "cairn sealed object"
)

// ErrSealed is the error of an object that cannot be opened: it was not sealed, with a key that is not here, or its bytes are
// not those that were sealed. It is permanent.
var ErrSealed = errors.New("object cannot be decrypted")

func broken(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrSealed, fmt.Sprintf(format, args...))
}

// sealedSize is the size of a sealed object of n bytes.
func sealedSize(n int64) int64 {
	return int64(headerSize) + n + tagSize*max(1, (n+pieceSize-1)/pieceSize)
}

// openSize is the inverse of sealedSize.
func openSize(sealed int64) (int64, error) {
	body := sealed - int64(headerSize)
	pieces := (body + pieceSize + tagSize - 1) / (pieceSize + tagSize)
	n := body - pieces*tagSize
	if n < 0 || sealedSize(n) != sealed {
		return 0, broken("%d bytes are not the size of one that was encrypted", sealed)
	}
	return n, nil
}

// object seals and opens the pieces of one object.
type object struct {
	header [headerSize]byte
	aead   cipher.AEAD
	size   int64 // Of the content.
}

// newObject makes an object of size bytes, with a key of its own.
func (k *Key) newObject(size int64) (*object, error) {
	o := &object{size: size}
	copy(o.header[:], magic)
	copy(o.header[len(magic):], k.ID)
	if _, err := rand.Read(o.header[len(magic)+maxID:]); err != nil {
		return nil, err
	}
	return o, o.derive(k)
}

func (o *object) derive(k *Key) error {
	secret, err := hkdf.Key(sha256.New, k.Secret[:], o.header[len(magic)+maxID:], info, KeySize)
	if err != nil {
		return err
	}
	c, err := aes.NewCipher(secret)
	if err != nil {
		return err
	}
	o.aead, err = cipher.NewGCM(c)
	return err
}

// objectOf reads the header of a sealed object.
func (keys Keys) objectOf(header []byte, sealed int64) (*object, error) {
	if len(header) != headerSize || string(header[:len(magic)]) != magic {
		return nil, broken("it is not encrypted: a store with keys holds nothing else; begin with a savepoint in a store without")
	}
	size, err := openSize(sealed)
	if err != nil {
		return nil, err
	}
	o := &object{size: size, header: [headerSize]byte(header)}
	id := string(bytes.TrimRight(header[len(magic):len(magic)+maxID], "\x00"))
	for i := range keys {
		if keys[i].ID == id {
			return o, o.derive(&keys[i])
		}
	}
	return nil, broken("it is encrypted with key %.16q, which is not among those given", id)
}

// pieces is how many there are.
func (o *object) pieces() int64 { return max(1, (o.size+pieceSize-1)/pieceSize) }

// content is how many bytes of content piece i has.
func (o *object) content(i int64) int64 { return min(pieceSize, o.size-i*pieceSize) }

func (o *object) nonce(i int64) []byte {
	var n [12]byte
	if i == o.pieces()-1 {
		n[0] = 1
	}
	binary.BigEndian.PutUint64(n[4:], uint64(i))
	return n[:]
}

// seal appends piece i to dst.
func (o *object) seal(dst, content []byte, i int64) []byte {
	return o.aead.Seal(dst, o.nonce(i), content, o.header[:])
}

// open decrypts piece i in place.
func (o *object) open(piece []byte, i int64) ([]byte, error) {
	out, err := o.aead.Open(piece[:0], o.nonce(i), piece, o.header[:])
	if err != nil {
		return nil, broken("piece %d of %d is not as it was written", i, o.pieces())
	}
	return out, nil
}

// sealing reads a body as it is stored, from the beginning to the end.
type sealing struct {
	o    *object
	body io.Reader
	next int64  // The piece to seal.
	buf  []byte // What was sealed and not read.
	room []byte
	err  error
}

func newSealing(o *object, body io.Reader) *sealing {
	return &sealing{o: o, body: body, buf: o.header[:], room: make([]byte, 0, pieceSize+tagSize)}
}

func (s *sealing) Read(p []byte) (int, error) {
	if len(s.buf) == 0 {
		if s.err != nil {
			return 0, s.err
		}
		if s.next == s.o.pieces() {
			return 0, io.EOF
		}
		content := s.room[:s.o.content(s.next)]
		if n, err := io.ReadFull(s.body, content); err != nil {
			if err == io.EOF || err == io.ErrUnexpectedEOF {
				err = &blob.ShortBodyError{Got: s.next*pieceSize + int64(n), Want: s.o.size}
			}
			s.err = err
			return 0, err
		}
		s.buf = s.o.seal(s.room[:0], content, s.next)
		s.next++
	}
	n := copy(p, s.buf)
	s.buf = s.buf[n:]
	return n, nil
}

// randomBody is what a body is that may be read by several goroutines.
type randomBody interface {
	io.Reader
	io.ReaderAt
	io.Seeker
}

// sealingAt is sealing for a body that can be read anywhere. What it gives for a place is always the same.
type sealingAt struct {
	o    *object
	body io.ReaderAt
	base int64 // Where the content begins in the body.
}

// ReadAt implements io.ReaderAt.
func (s sealingAt) ReadAt(p []byte, off int64) (int, error) {
	done := 0
	if off < int64(headerSize) {
		done = copy(p, s.o.header[off:])
	}
	var piece []byte
	for done < len(p) {
		at := off + int64(done) - int64(headerSize)
		i := at / (pieceSize + tagSize)
		if i >= s.o.pieces() {
			return done, io.EOF
		}
		if piece == nil {
			piece = make([]byte, 0, pieceSize+tagSize)
		}
		content := piece[:s.o.content(i)]
		if n, err := s.body.ReadAt(content, s.base+i*pieceSize); n < len(content) {
			if err == nil || err == io.EOF {
				err = &blob.ShortBodyError{Got: i*pieceSize + int64(n), Want: s.o.size}
			}
			return done, err
		}
		sealed := s.o.seal(piece[:0], content, i)
		from := at - i*(pieceSize+tagSize)
		if from >= int64(len(sealed)) {
			return done, io.EOF
		}
		done += copy(p[done:], sealed[from:])
	}
	return done, nil
}
