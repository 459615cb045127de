package operator

import (
	"bytes"
	"testing"

	"github.com/cairnstream/cairn/codec"
)

// The codecs of states write what their schemas alone let a tool read and write: package codec knows the same encodings
// without the types.
func TestLayoutsOfStates(t *testing.T) {
	str, num := codec.String(), codec.Int64()
	check(t, agedCodec[int64]{num}, aged[int64]{from: 5, val: 7})
	check(t, timerCodec[string]{str}, timerKey[string]{"k", -1})
	check(t, mapKeyCodec[string, int64]{str, num}, mapKey[string, int64]{"k", 3})
	check(t, mapHeadCodec[string]{str}, mapHead[string]{"first", 2})
	for _, prev := range []bool{false, true} {
		for _, next := range []bool{false, true} {
			check(t, mapEntryCodec[string, int64]{str, num}, mapEntry[string, int64]{5, "p", "n", prev, next})
		}
	}
	for first := range int64(10) {
		for next := first + 1; next < 12; next++ {
			check(t, headCodec[string]{str}, listHead[string]{first: first, next: next, tail: [partLen]string{"a", "b", "", "c"}})
		}
	}
	for gone := range int8(partLen) {
		check(t, partCodec[string]{str}, listPart[string]{gone, [partLen]string{"a", "b", "", "c"}})
	}
	check(t, itemCodec[string]{str}, itemKey[string]{"k", -5, 300})
	check(t, sessionCodec[int64]{num}, session[int64]{First: 100, Last: 100, Next: -1, More: 3, Acc: 9})
	check(t, sessionCodec[int64]{num}, session[int64]{First: -100, Last: 1000, Fired: true})
	for has := uint8(1); has != 0; has++ {
		check(t, paneCodec[int64, [8]int64]{num, 60}, chunkOf[[8]int64]{Has: has, Acc: [8]int64{1, 2, 3, 4, 5, 6, 7, 8}})
	}
	check(t, paneCodec[int64, [1]int64]{num, 60}, chunkOf[[1]int64]{Has: 1})
	for flags := range 4 {
		check(t, firingCodec[int64]{num}, firing[int64]{Count: 1, Last: 2, Next: -3, Fired: flags&1 != 0, Has: flags&2 != 0, Acc: 4})
	}
	check(t, partialCodec[string, int64]{str, num}, partial[string, int64]{Key: "k", Span: 300, Count: 2, Acc: 5})
}

func check[T any](t *testing.T, c codec.Codec[T], v T) {
	t.Helper()
	b, err := c.Append(nil, &v)
	if err != nil {
		t.Fatal(err)
	}
	l, err := c.Schema().Layout()
	if err != nil {
		t.Fatal(err)
	}
	dyn, n, err := l.Decode(append(b[:len(b):len(b)], 1, 2, 3))
	if err != nil || n != len(b) {
		t.Fatalf("%+v: took %d of %d bytes: %v", v, n, len(b), err)
	}
	text, err := codec.AppendJSON(nil, dyn)
	if err != nil {
		t.Fatal(err)
	}
	if again, err := l.Encode(nil, text); err != nil || !bytes.Equal(again, b) {
		t.Errorf("%+v: %x is %s, which is %x: %v", v, b, text, again, err)
	}
	var p codec.Parts
	if _, err := l.Split(b, &p); err != nil {
		t.Fatal(err)
	}
	if again, err := l.Join(nil, p); err != nil || !bytes.Equal(again, b) {
		t.Errorf("%+v: %x joins to %x: %v", v, b, again, err)
	}
}
