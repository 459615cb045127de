package codec

import (
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestHasher(t *testing.T) {
	type pair struct{ A, B int32 }
	type wide struct {
		A int64
		B [3]int64
	}
	type named struct {
		A string
		B int64
	}
	for n := range 300 {
		s := make([]byte, n)
		for i := range s {
			s[i] = byte(i*7 + n)
		}
		hashes(t, String(), string(s), true)
	}
	hashes(t, Int64(), -7, true)
	hashes(t, Uint64(), 1<<63, true)
	hashes(t, Int(), 1<<40+3, true)
	hashes(t, Uint32(), 9, true)
	hashes(t, Int16(), -9, true)
	hashes(t, Uint8(), 200, true)
	hashes(t, Bool(), true, true)
	hashes(t, MustStruct[pair](), pair{1, -2}, littleEndian)
	hashes(t, MustStruct[wide](), wide{1, [3]int64{2, 3, 4}}, littleEndian)
	hashes(t, MustStruct[[16]byte](), [16]byte{1: 1}, true)
	hashes(t, MustStruct[struct{}](), struct{}{}, true)
	hashes(t, MustStruct[named](), named{"x", 1}, false)
	hashes(t, Time(), time.Unix(3, 4), false)
	c, err := Default[customerID]()
	if err != nil {
		t.Fatal(err)
	}
	hashes(t, c, customerID("c-17"), true)
}

func TestHasherEqualsHashOfEncoding(t *testing.T) {
	ints, strs := NewHasher(Int64()), NewHasher(String())
	rapid.Check(t, func(t *rapid.T) {
		i := rapid.Int64().Draw(t, "int")
		if got, want := ints(&i), slowHasher(Int64())(&i); got != want {
			t.Fatalf("%d: %#x, slowly %#x", i, got, want)
		}
		s := rapid.StringN(0, 300, 300).Draw(t, "string")
		if got, want := strs(&s), slowHasher(String())(&s); got != want {
			t.Fatalf("%q: %#x, slowly %#x", s, got, want)
		}
	})
}

// The hash decides which subtask owns a key's state: it never changes.
func TestHashIsFixed(t *testing.T) {
	for _, x := range []struct {
		got, want uint64
	}{
		{Hash(nil), 0x2d06800538d394c2},
		{hash8(0), Hash(make([]byte, 8))},
		{hash8(0), 0xc77b3abb6f87acd9},
		{hash8(1), Hash([]byte{1, 0, 0, 0, 0, 0, 0, 0})},
		{hash8(1), 0x2fbc593564db792e},
		{NewHasher(String())(new(string)), 0xc44bdff4074eecdb},
	} {
		if x.got != x.want {
			t.Errorf("got %#x, want %#x", x.got, x.want)
		}
	}
}

func TestHasherPanicsOnBadKeys(t *testing.T) {
	defer func() {
		if err, ok := recover().(error); !ok || !strings.Contains(err.Error(), "hash key") {
			t.Errorf("recovered %v", err)
		}
	}()
	big := make([]byte, MaxValue+1)
	NewHasher(Bytes())(&big)
}
