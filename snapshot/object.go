package snapshot

import (
	"encoding/binary"
	"encoding/json"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

const (
	objectMagic    = "CAIRNOBJ"
	objectMagicEnd = "CAIRNFIN"
	// ObjectVersion is of the format of objects.
	ObjectVersion = 1

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
	var info ObjectInfo
	fail := func(format string, args ...any) (ObjectInfo, []Section, error) {
		return ObjectInfo{}, nil, corrupt(format, args...)
	}
	const fixed = len(objectMagic) + 1 + 4
	if len(data) < fixed+8+objectFooterLen || string(data[:len(objectMagic)]) != objectMagic {
		return fail("it is no snapshot object")
	}
	if v := data[len(objectMagic)]; v != ObjectVersion {
		return ObjectInfo{}, nil, fmt.Errorf("snapshot object of version %d: this program reads version %d", v, ObjectVersion)
	}
	n := int64(binary.LittleEndian.Uint32(data[fixed-4:]))
	if n > int64(len(data)-fixed-8-objectFooterLen) {
		return fail("its header is cut short")
	}
	head := data[:fixed+int(n)]
	if xxh3.Hash(head) != binary.LittleEndian.Uint64(data[len(head):]) {
		return fail("the hash of its header does not agree")
	}
	if err := json.Unmarshal(head[fixed:], &info); err != nil {
		return fail("its header: %v", err)
	}
	footer := data[len(data)-objectFooterLen:]
	if string(footer[12:]) != objectMagicEnd {
		return fail("it does not end in %q", objectMagicEnd)
	}
	begin := int64(len(head) + 8)
	n = int64(binary.LittleEndian.Uint32(footer))
	end := int64(len(data)-objectFooterLen) - n
	if n > maxObjectTrailer || end < begin {
		return fail("its list of sections has %d bytes", n)
	}
	list := data[end : end+n]
	if xxh3.Hash(list) != binary.LittleEndian.Uint64(footer[4:]) {
		return fail("the hash of its list of sections does not agree")
	}
	var sections []Section
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
	return info, sections, nil
}
