package segment

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/statebackend"
)

const (
	magic    = "CAIRNSEG"
	magicEnd = "CAIRNEND"
	// Version is of a segment that holds all of a state, VersionChanges of one that holds what changed since another. A
	// reader refuses others.
	Version        = 1
	VersionChanges = 2

	headLen   = len(magic) + 1
	footerLen = 4 + 16 + len(magicEnd)

	// blockTarget is how many bytes of entries a block holds before compression, about: large enough to
	// compress well, small enough that who needs one group reads little else.
	blockTarget = 128 << 10
	// MaxBlock bounds the bytes of a block before compression, and with it the size of one entry.
	MaxBlock = 64 << 20
	// maxRunHead bounds the bytes before the entries of a run.
	maxRunHead = 4 * binary.MaxVarintLen64
	// maxTrailer bounds the bytes of a trailer.
	maxTrailer = 256 << 20
)

// Descriptor says what a segment holds.
type Descriptor struct {
	Operator string `json:"operator"`
	Subtask  int    `json:"subtask"`
	State    string `json:"state"`
	Key      string `json:"key"`   // Schemas.
	Value    string `json:"value"` //
	K        int    `json:"k"`     // Number of key groups in all.
	First    int    `json:"first"` // Those that the segment covers.
	Last     int    `json:"last"`
	// Checkpoint is the one that it was written for.
	Checkpoint uint64 `json:"checkpoint"`
	// Base makes a segment one of changes: it is the Summary.Index of the segment that they change. Restored one after the
	// other, the two give the state. Version 1 has none.
	Base string `json:"base,omitempty"`
	// Total is the number of entries of the state with the changes. Only of segments with a Base.
	Total int64 `json:"total,omitempty"`
	// Version is the segment's, as its first bytes have it, for who reads but its end. The writer sets it; 0 is 1.
	Version int `json:"version,omitempty"`
	// Sorted says that the entries of a key group are in the order of their encoded keys, cut into runs as SortedWriter does.
	Sorted bool `json:"sorted,omitempty"`
	// Compression is for the writer. Each block says for itself whether it is compressed, so that a reader need not know.
	Compression statebackend.Compression `json:"-"`
}

// Block is a run of the segment's bytes that is compressed and checked by itself.
type Block struct {
	First, Last int // Key groups of its entries.
	Entries     int64
	Removed     int64 // Keys that are gone, in a segment of changes.
	Offset      int64 // From the segment's start.
	Stored      int64 // Bytes.
	Raw         int64 // Bytes of the first part before compression.
	Plain       int64 // Bytes of the second part, which is not compressed.
	Zstd        bool  // Else the first part is stored as it is, too.
	Hash        uint64
	Changes     bool // Of a segment of changes: its runs say whether their keys are gone.
}

// Run is a sequence of entries, or of keys that are gone, of one key group.
type Run struct {
	Group   int
	Removed bool
	Entries int64 // Or keys.
	Data    []byte
}

// Summary is what the writer of a segment keeps of it.
type Summary struct {
	Entries int64
	Removed int64
	Length  int64
	Index   string // Hash of the trailer: 32 hexadecimal digits.
}

// HashText is xxh3-128 of data in the notation of handles.
func HashText(data []byte) string {
	h := xxh3.Hash128(data).Bytes()
	return hex.EncodeToString(h[:])
}

// ErrTooLarge says that an entry does not fit into a block.
var ErrTooLarge = errors.New("state entry is too large")

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", statebackend.ErrCorrupt, fmt.Sprintf(format, args...))
}
