package snapshot

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

const (
	objectMagic    = "CAIRNOBJ"
	objectMagicEnd = "CAIRNFIN"
	// ObjectVersion is of the format of objects.
	ObjectVersion = 1

	objectFixedLen   = len(objectMagic) + 1 + 4
	objectFooterLen  = 4 + 8 + len(objectMagicEnd)
	maxObjectTrailer = 16 << 20
)

// ObjectInfo says what an object is, for people and tools that have nothing but the object.
type ObjectInfo struct {
	Job        job.ID           `json:"job"`
	Checkpoint job.CheckpointID `json:"checkpoint"`
	Attempt    job.Attempt      `json:"attempt"`
	Epoch      job.Epoch        `json:"epoch"`
	Vertex     string           `json:"vertex"`
	Subtask    int              `json:"subtask"`
}

// Section is one state in an object.
type Section struct {
	Operator string `json:"operator"`
	State    string `json:"state"`
	Offset   int64  `json:"offset"`
	Length   int64  `json:"length"`
	Hash     string `json:"hash"` // xxh3-128, 32 hexadecimal digits.
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", statebackend.ErrCorrupt, fmt.Sprintf(format, args...))
}

func objectHeader(i ObjectInfo) ([]byte, error) {
	desc, err := json.Marshal(i)
	if err != nil {
		return nil, err
	}
	b := append([]byte(objectMagic), ObjectVersion)
	b = binary.LittleEndian.AppendUint32(b, uint32(len(desc)))
	b = append(b, desc...)
	return binary.LittleEndian.AppendUint64(b, xxh3.Hash(b)), nil
}

func objectTrailer(s []Section) ([]byte, error) {
	b, err := json.Marshal(s)
	if err != nil {
		return nil, err
	}
	n := len(b)
	b = binary.LittleEndian.AppendUint32(b, uint32(n))
	b = binary.LittleEndian.AppendUint64(b, xxh3.Hash(b[:n]))
	return append(b, objectMagicEnd...), nil
}

// ParseObject reads the header and the list of sections of an object that is whole in memory. The sections'
// own hashes are not looked at.
func ParseObject(data []byte) (ObjectInfo, []Section, error) {
	info, begin, err := parseObjectHead(data, int64(len(data)))
	if err != nil {
		return info, nil, err
	}
	sections, _, err := parseObjectTail(data, int64(len(data)), begin)
	return info, sections, err
}

// parseObjectHead reads the header at the front of an object of so many bytes. begin is where the sections begin.
func parseObjectHead(data []byte, size int64) (info ObjectInfo, begin int64, err error) {
	fail := func(format string, args ...any) (ObjectInfo, int64, error) {
		return ObjectInfo{}, 0, corrupt(format, args...)
	}
	if size < int64(objectFixedLen+8+objectFooterLen) || len(data) < objectFixedLen || string(data[:len(objectMagic)]) != objectMagic {
		return fail("it is no snapshot object")
	}
	if v := data[len(objectMagic)]; v != ObjectVersion {
		return ObjectInfo{}, 0, fmt.Errorf("snapshot object of version %d: this program reads version %d", v, ObjectVersion)
	}
	n := int64(binary.LittleEndian.Uint32(data[objectFixedLen-4:]))
	if n > size-int64(objectFixedLen+8+objectFooterLen) || n > int64(len(data)-objectFixedLen-8) {
		return fail("its header is cut short")
	}
	head := data[:objectFixedLen+int(n)]
	if xxh3.Hash(head) != binary.LittleEndian.Uint64(data[len(head):]) {
		return fail("the hash of its header does not agree")
	}
	if err := json.Unmarshal(head[objectFixedLen:], &info); err != nil {
		return fail("its header: %v", err)
	}
	return info, int64(len(head) + 8), nil
}

// parseObjectTail reads the list of sections from the last bytes of an object of size bytes, whose sections begin at begin.
// If tail does not hold all of the list, need is how many bytes are wanted.
func parseObjectTail(tail []byte, size, begin int64) (sections []Section, need int64, err error) {
	fail := func(format string, args ...any) ([]Section, int64, error) {
		return nil, 0, corrupt(format, args...)
	}
	footer := tail[len(tail)-objectFooterLen:]
	if string(footer[12:]) != objectMagicEnd {
		return fail("it does not end in %q", objectMagicEnd)
	}
	n := int64(binary.LittleEndian.Uint32(footer))
	end := size - int64(objectFooterLen) - n
	if n > maxObjectTrailer || end < begin {
		return fail("its list of sections has %d bytes", n)
	}
	if need = n + int64(objectFooterLen); need > int64(len(tail)) {
		return nil, need, nil
	}
	list := tail[int64(len(tail))-need : len(tail)-objectFooterLen]
	if xxh3.Hash(list) != binary.LittleEndian.Uint64(footer[4:]) {
		return fail("the hash of its list of sections does not agree")
	}
	if err := json.Unmarshal(list, &sections); err != nil {
		return fail("its list of sections: %v", err)
	}
	at := begin
	for _, s := range sections {
		if s.Offset != at || s.Length < 0 || s.Length > end-at {
			return fail("section %q of operator %q is said to be at %d with %d bytes", s.State, s.Operator, s.Offset, s.Length)
		}
		at += s.Length
	}
	if at != end {
		return fail("its sections end at byte %d, their list begins at %d", at, end)
	}
	return sections, 0, nil
}

const (
	// objectHeadGuess and objectTailGuess are what of an object's ends to fetch at first: they nearly always hold what is there.
	objectHeadGuess = 4 << 10
	objectTailGuess = 16 << 10
	// maxObjectHead bounds a header.
	maxObjectHead = 1 << 20
)

// ReadObject reads what a task's object of size bytes says of itself, and not the sections.
func ReadObject(ctx context.Context, store blob.Store, key string, size int64) (ObjectInfo, []Section, error) {
	read := func(off, n int64) ([]byte, error) {
		body, err := store.GetRange(ctx, key, off, n)
		if err != nil {
			return nil, err
		}
		data, err := io.ReadAll(body)
		return data, errors.Join(err, body.Close())
	}
	if size < int64(objectFixedLen+8+objectFooterLen) {
		return ObjectInfo{}, nil, corrupt("it is no snapshot object")
	}
	head, err := read(0, min(size, objectHeadGuess))
	if err != nil {
		return ObjectInfo{}, nil, err
	}
	if n := int64(objectFixedLen) + int64(binary.LittleEndian.Uint32(head[objectFixedLen-4:])) + 8; n > int64(len(head)) && n <= min(size, maxObjectHead) {
		if head, err = read(0, n); err != nil {
			return ObjectInfo{}, nil, err
		}
	}
	info, begin, err := parseObjectHead(head, size)
	if err != nil {
		return info, nil, err
	}
	for n := min(size, objectTailGuess); ; {
		tail := head
		if n > int64(len(head)) || size > int64(len(head)) {
			if tail, err = read(size-n, n); err != nil {
				return info, nil, err
			}
		}
		sections, need, err := parseObjectTail(tail, size, begin)
		if err != nil || need == 0 {
			return info, sections, err
		}
		n = need
	}
}
