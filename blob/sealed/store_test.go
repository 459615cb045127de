package sealed_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/blobtest"
	"github.com/cairnstream/cairn/blob/mem"
	"github.com/cairnstream/cairn/blob/sealed"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func key(t testing.TB, id string) sealed.Key {
	t.Helper()
	k, err := sealed.NewKey(id)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func open(t testing.TB, inner blob.Store, keys ...sealed.Key) *sealed.Store {
	t.Helper()
	s, err := sealed.New(inner, keys)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestConformance(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return open(t, mem.New("test"), key(t, "k1")) })
}

const piece = 64 << 10

// Objects of all sizes around those of pieces come back whole and by ranges, and the store below sees nothing of them.
func TestSizes(t *testing.T) {
	inner := mem.New("inner")
	s := open(t, inner, key(t, "k1"))
	for _, n := range []int{0, 1, 15, 16, 17, piece - 1, piece, piece + 1, 2*piece - 1, 2 * piece, 3*piece + 7} {
		data := bytes.Repeat([]byte("a text to be hidden;"), n/20+1)[:n]
		for what, body := range map[string]io.Reader{"anywhere": bytes.NewReader(data), "in order": struct{ io.Reader }{bytes.NewReader(data)}} {
			if err := s.Put(t.Context(), "k", body, int64(n)); err != nil {
				t.Fatal(err)
			}
			got, err := blob.ReadAll(t.Context(), s, "k", 1<<20)
			if err != nil || !bytes.Equal(got, data) {
				t.Fatalf("%d bytes, written %s: %v, %d bytes", n, what, err, len(got))
			}
			raw, err := blob.ReadAll(t.Context(), inner, "k", 1<<20)
			if err != nil || bytes.Contains(raw, []byte("hidden")) {
				t.Fatalf("%d bytes: %v, and the store sees the content", n, err)
			}
			if info, err := s.Stat(t.Context(), "k"); err != nil || info.Size != int64(n) {
				t.Fatalf("%d bytes: %v, %v", n, info, err)
			}
		}
		for range 30 {
			off := rand.IntN(n + 1)
			m := rand.IntN(n - off + 1)
			r, err := s.GetRange(t.Context(), "k", int64(off), int64(m))
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(r)
			if err = errors.Join(err, r.Close()); err != nil || !bytes.Equal(got, data[off:off+m]) {
				t.Fatalf("%d bytes from %d of %d: %v", m, off, n, err)
			}
		}
	}
}

// Whatever is changed in an object is found, before any of the piece is given out.
func TestDamage(t *testing.T) {
	inner := mem.New("inner")
	s := open(t, inner, key(t, "k1"))
	data := bytes.Repeat([]byte{7}, 2*piece+100)
	if err := blob.PutBytes(t.Context(), s, "k", data); err != nil {
		t.Fatal(err)
	}
	raw, err := blob.ReadAll(t.Context(), inner, "k", 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	damaged := map[string][]byte{
		"empty": {}, "a byte": raw[:1], "the header alone": raw[:40], "without the last piece": raw[:40+2*(piece+16)], "without the last byte": raw[:len(raw)-1],
		"with a byte more": append(bytes.Clone(raw), 0), "not encrypted": data,
		"pieces that change places": bytes.Join([][]byte{raw[:40], raw[40+piece+16 : 40+2*(piece+16)], raw[40 : 40+piece+16], raw[40+2*(piece+16):]}, nil),
	}
	for _, at := range []int{0, 8, 24, 39, 40, 40 + piece, len(raw) - 1} {
		b := bytes.Clone(raw)
		b[at] ^= 1
		damaged[fmt.Sprintf("flipped at %d", at)] = b
	}
	for what, b := range damaged {
		if err := blob.PutBytes(t.Context(), inner, "k", b); err != nil {
			t.Fatal(err)
		}
		fresh := open(t, inner, s.KeysForTest()...)
		for _, s := range []*sealed.Store{s, fresh} { // One that knows the header from before, and one that does not.
			if got, err := blob.ReadAll(t.Context(), s, "k", 1<<20); err == nil {
				t.Errorf("%s: %d bytes are read", what, len(got))
			} else if !errors.Is(err, sealed.ErrSealed) && !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("%s: %v", what, err)
			}
		}
	}
}

// A new key is put in front: it seals, and the old ones open what they sealed. An object of a key that is not here names it.
func TestRotation(t *testing.T) {
	inner := mem.New("inner")
	k1, k2 := key(t, "2025"), key(t, "2026")
	if err := blob.PutBytes(t.Context(), open(t, inner, k1), "old", []byte("old")); err != nil {
		t.Fatal(err)
	}
	both := open(t, inner, k2, k1)
	if err := blob.PutBytes(t.Context(), both, "new", []byte("new")); err != nil {
		t.Fatal(err)
	}
	for _, k := range []string{"old", "new"} {
		if got, err := blob.ReadAll(t.Context(), both, k, 10); err != nil || string(got) != k {
			t.Errorf("%q, %v", got, err)
		}
	}
	if _, err := blob.ReadAll(t.Context(), open(t, inner, k2), "old", 10); !errors.Is(err, sealed.ErrSealed) || !strings.Contains(err.Error(), `"2025"`) {
		t.Errorf("of a key that is not here: %v", err)
	}
	same := k1
	same.Secret[0] ^= 1
	if _, err := blob.ReadAll(t.Context(), open(t, inner, same), "old", 10); !errors.Is(err, sealed.ErrSealed) {
		t.Errorf("with another key of that id: %v", err)
	}
}

// An object that was replaced is not read with the header of the one before.
func TestReplaced(t *testing.T) {
	inner := mem.New("inner")
	k := key(t, "k1")
	s, other := open(t, inner, k), open(t, inner, k)
	for i, text := range []string{"the first", "another", "a longer one than those before"} {
		if err := blob.PutBytes(t.Context(), other, "k", []byte(text)); err != nil {
			t.Fatal(err)
		}
		r, err := s.GetRange(t.Context(), "k", 2, int64(len(text)-2))
		if err != nil {
			t.Fatalf("%d: %v", i, err)
		}
		got, err := io.ReadAll(r)
		if err = errors.Join(err, r.Close()); err != nil || string(got) != text[2:] {
			t.Errorf("%d: %q, %v", i, got, err)
		}
	}
}

func TestParseKeys(t *testing.T) {
	a, b := key(t, "a"), key(t, "b-2")
	keys, err := sealed.ParseKeys("# of the cluster\n\n" + a.Line() + "\n  " + b.Line() + "  \n")
	if err != nil || len(keys) != 2 || keys[0] != a || keys[1] != b {
		t.Fatalf("%v, %v", keys, err)
	}
	for text, want := range map[string]string{
		"":                                 "there is no key",
		"a":                                "line 1: want the id",
		"A " + strings.Fields(a.Line())[1]: `line 1: the id "A"`,
		"a c2VjcmV0":                       `line 1: key "a" is not 32 bytes`,
		a.Line() + "\n" + a.Line():         `line 2: there is a key "a" already`,
		strings.Repeat("x", 17) + " " + strings.Fields(a.Line())[1]: "17 bytes",
	} {
		_, err := sealed.ParseKeys(text)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%.20q: %v, want %q", text, err, want)
		}
		if err != nil && (strings.Contains(err.Error(), strings.Fields(a.Line())[1]) || strings.Contains(err.Error(), "c2VjcmV0")) {
			t.Errorf("the secret is in the error: %v", err)
		}
	}
	if strings.Contains(a.String(), strings.Fields(a.Line())[1]) {
		t.Error("a key prints its secret")
	}
}

func BenchmarkGet(b *testing.B) {
	s := open(b, mem.New("inner"), key(b, "k1"))
	data := make([]byte, 8<<20)
	if err := blob.PutBytes(b.Context(), s, "k", data); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(data)))
	for b.Loop() {
		r, _, err := s.Get(b.Context(), "k")
		if err != nil {
			b.Fatal(err)
		}
		if _, err := io.Copy(io.Discard, r); err != nil {
			b.Fatal(err)
		}
		_ = r.Close()
	}
}
