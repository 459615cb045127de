package operator

import (
	"encoding/binary"
	"fmt"

	"github.com/cairnstream/cairn/codec"
)

// SplitMessage is the record on the edge from an enumerator to its readers.
type SplitMessage struct {
	Reader int64 // Subtask that it is for.
	NoMore bool  // Every split has been given out; ID and Body are empty.
	ID     string
	Body   []byte
}

// NewSplitCodec returns the codec of that edge.
func NewSplitCodec() (codec.Codec[SplitMessage], error) { return codec.Default[SplitMessage]() }

// Mail between readers and enumerator is one of these bytes.
const mailRequestSplit = 'r'

// Encoding of a split in list state, version 1: byte version, uvarint length of the id, id, body.
const splitVersion = 1

func encodeSplit(s Split) []byte {
	b := append([]byte{splitVersion}, binary.AppendUvarint(nil, uint64(len(s.ID)))...)
	b = append(b, s.ID...)
	return append(b, s.Body...)
}

func decodeSplit(b []byte) (Split, error) {
	if len(b) == 0 || b[0] != splitVersion {
		return Split{}, fmt.Errorf("split in state: not of version %d", splitVersion)
	}
	n, w := binary.Uvarint(b[1:])
	if w <= 0 || n > uint64(len(b)-1-w) {
		return Split{}, fmt.Errorf("split in state: truncated")
	}
	b = b[1+w:]
	return Split{ID: string(b[:n]), Body: append([]byte(nil), b[n:]...)}, nil
}
