package snapshot_test

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"os"
	"testing"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/snapshot"
)

func addFile(f *testing.F, name string) []byte {
	f.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(data)
	return data
}

// FuzzManifest feeds bytes, and bytes behind a header that is right for them, to the decoder of manifests. What
// it accepts it must encode again.
func FuzzManifest(f *testing.F) {
	data := addFile(f, goldenManifest)
	f.Add(data[33:])
	f.Add(addFile(f, goldenChain)[33:])
	f.Add([]byte(`{"Job":"a","Checkpoint":1,"K":720,"Hash":"xxh3-64","Operators":{"a":{"Parallelism":1,"Subtasks":[{"States":[{"Length":9223372036854775807,"Offset":1,"Object":"x"}]}]}}}`))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = snapshot.DecodeManifest(data)
		framed := append([]byte("CAIRNMAN\x01"), binary.LittleEndian.AppendUint64(nil, uint64(len(data)))...)
		sum := xxh3.Hash128(data).Bytes()
		framed = append(append(framed, sum[:]...), data...)
		m, err := snapshot.DecodeManifest(framed)
		if err != nil {
			return
		}
		_ = snapshot.ObjectsOf(m)
		for _, op := range m.Operators {
			for i := range 3 {
				_, _ = snapshot.Redistribute(op, "splits", i, 3)
			}
		}
		if _, err := m.Encode(); err != nil {
			t.Errorf("an accepted manifest cannot be encoded: %v", err)
		}
	})
}

func FuzzObject(f *testing.F) {
	addFile(f, goldenObject)
	addFile(f, fmt.Sprintf(goldenLinks, 1))
	f.Fuzz(func(t *testing.T, data []byte) {
		_, sections, err := snapshot.ParseObject(data)
		for _, s := range sections {
			if err == nil && s.Offset+s.Length > int64(len(data)) {
				t.Errorf("section %+v of an object of %d bytes", s, len(data))
			}
		}
	})
}

func FuzzList(f *testing.F) {
	f.Add(snapshot.EncodeList([][]byte{[]byte("a"), nil}))
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = snapshot.DecodeList(data)
		framed := append([]byte("CAIRNLST\x01"), data...)
		framed = binary.LittleEndian.AppendUint64(framed, xxh3.Hash(framed))
		items, err := snapshot.DecodeList(framed)
		if err != nil {
			return
		}
		again, err := snapshot.DecodeList(snapshot.EncodeList(items))
		if err != nil || len(again) != len(items) {
			t.Fatalf("%d items, encoded again %d: %v", len(items), len(again), err)
		}
		for i := range items {
			if !bytes.Equal(items[i], again[i]) {
				t.Errorf("item %d is %q, then %q", i, items[i], again[i])
			}
		}
	})
}
