package streamtest

import (
	"bytes"
	"fmt"

	"github.com/cairnstream/cairn/statebackend/segment"
)

// What the process makes once and keeps, such as compressors with channels in them, must not belong
// to the bubble of the test that happens to use it first.
func init() {
	if err := warm(); err != nil {
		panic(fmt.Sprintf("streamtest: %v", err)) // In memory: cannot fail.
	}
}

func warm() error {
	var b bytes.Buffer
	w := segment.NewWriter(&b, segment.Descriptor{K: 1})
	if err := w.Add(0, 1, make([]byte, 4096)); err != nil {
		return err
	}
	if _, err := w.Finish(); err != nil {
		return err
	}
	ix, _, err := segment.ParseTail(b.Bytes(), int64(b.Len()))
	if err != nil {
		return err
	}
	block := ix.Blocks[0]
	_, err = block.Decode(b.Bytes()[block.Offset:block.Offset+block.Stored], new([]byte))
	return err
}
