package operator

import (
	"encoding/binary"
	"fmt"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/record"
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

// mailRequestSplit is the mail, of one byte, with which a reader asks for a split.
const mailRequestSplit = 'r'

// heldSplit is a split with the watermark that its reader has come to.
type heldSplit struct {
	Split
	mark int64
}

// Encoding of a split in list state: byte version, uvarint length of the id, id, then the body in
// version 1; in version 2 a varint, the watermark, comes before the body. Version 1 is written for a
// split without a watermark.
const (
	splitVersion = 1
	splitMarked  = 2
)

func encodeSplit(s Split) []byte { return heldSplit{s, record.MinTime}.encode() }

func (s heldSplit) encode() []byte {
	version := byte(splitVersion)
	if s.mark != record.MinTime {
		version = splitMarked
	}
	b := binary.AppendUvarint([]byte{version}, uint64(len(s.ID)))
	b = append(b, s.ID...)
	if version == splitMarked {
		b = binary.AppendVarint(b, s.mark)
	}
	return append(b, s.Body...)
}

func decodeSplit(b []byte) (heldSplit, error) {
	if len(b) == 0 || b[0] != splitVersion && b[0] != splitMarked {
		return heldSplit{}, fmt.Errorf("split in state: not of version %d or %d", splitVersion, splitMarked)
	}
	marked := b[0] == splitMarked
	n, w := binary.Uvarint(b[1:])
	if w <= 0 || n > uint64(len(b)-1-w) {
		return heldSplit{}, fmt.Errorf("split in state: truncated")
	}
	b = b[1+w:]
	s := heldSplit{Split: Split{ID: string(b[:n])}, mark: record.MinTime}
	b = b[n:]
	if marked {
		var w int
		if s.mark, w = binary.Varint(b); w <= 0 {
			return heldSplit{}, fmt.Errorf("split in state: truncated")
		}
		b = b[w:]
	}
	s.Body = append([]byte(nil), b...)
	return s, nil
}
