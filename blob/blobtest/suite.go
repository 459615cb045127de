package blobtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/blob"
)

// bigSize is larger than every buffer on the way, and in blob/s3 with small parts a multipart upload.
const bigSize = 20 << 20

// Run proves that the stores that open makes follow the contract. open is called once per test and gives an empty
// store.
func Run(t *testing.T, open func(t *testing.T) blob.Store) {
	tests := []struct {
		name string
		test func(*testing.T, blob.Store)
	}{
		{"put and get", testPutGet},
		{"put replaces", testPutReplaces},
		{"bodies of all kinds", testBodies},
		{"short body leaves nothing", testShortBody},
		{"failing body leaves nothing", testFailingBody},
		{"body position", testBodyPosition},
		{"big object", testBig},
		{"ranges", testRanges},
		{"missing objects", testMissing},
		{"put if absent", testPutIfAbsent},
		{"put if absent has one winner", testOneWinner},
		{"objects appear whole", testAtomicVisibility},
		{"delete", testDelete},
		{"delete of many", testDeleteMany},
		{"delete races with put", testDeleteRace},
		{"list", testList},
		{"list of many", testListMany},
		{"list ends early", testListBreak},
		{"conflicting keys", testConflict},
		{"bad keys", testBadKeys},
		{"cancellation", testCancellation},
		{"read all has a limit", testReadAll},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) { tt.test(t, open(t)) })
	}
}

func content(seed uint64, size int) []byte {
	data := make([]byte, size)
	r := rand.NewPCG(seed, 1)
	for i := 0; i+8 <= size; i += 8 {
		v := r.Uint64()
		for j := range 8 {
			data[i+j] = byte(v >> (8 * j))
		}
	}
	return data
}

func put(t *testing.T, s blob.Store, key string, data []byte) {
	t.Helper()
	if err := blob.PutBytes(t.Context(), s, key, data); err != nil {
		t.Fatal(err)
	}
}

func get(t *testing.T, s blob.Store, key string) []byte {
	t.Helper()
	r, info, err := s.Get(t.Context(), key)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	data, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	if info.Key != key || info.Size != int64(len(data)) {
		t.Errorf("get %s: info is %v, read %d bytes", key, info, len(data))
	}
	return data
}

func want(t *testing.T, s blob.Store, key string, data []byte) {
	t.Helper()
	if got := get(t, s, key); !bytes.Equal(got, data) {
		t.Fatalf("%s: got %d bytes %.40q, want %d bytes %.40q", key, len(got), got, len(data), data)
	}
}

// wantError checks that an error is the one demanded, says what it is about, and is permanent.
func wantError(t *testing.T, err, target error, op, key string) {
	t.Helper()
	if !errors.Is(err, target) {
		t.Fatalf("%s %s: got error %v, want %v", op, key, err, target)
	}
	var be *blob.Error
	if !errors.As(err, &be) || be.Op != op || !strings.Contains(err.Error(), key) {
		t.Errorf("error %q does not name operation %s and key %s", err, op, key)
	}
	if blob.IsTransient(err) {
		t.Errorf("error %v counts as transient", err)
	}
}

func wantMissing(t *testing.T, s blob.Store, key string) {
	t.Helper()
	_, err := s.Stat(t.Context(), key)
	wantError(t, err, blob.ErrNotExist, "stat", key)
}

func list(t *testing.T, s blob.Store, prefix string) []string {
	t.Helper()
	keys := []string{}
	for info, err := range s.List(t.Context(), prefix) {
		if err != nil {
			t.Fatal(err)
		}
		keys = append(keys, info.Key)
	}
	return keys
}

func testPutGet(t *testing.T, s blob.Store) {
	for _, tt := range []struct {
		key  string
		data string
	}{
		{"a", "alpha"},
		{"dir/b", "beta"},
		{"dir/deep/er/c", "gamma"},
		{"dir/empty", ""},
		{"dir/odd name (1) + ü % 20 & = ~ ' #?", "odd"},
		{"shared/0123456789abcdef-7.12.3", "shared"},
	} {
		put(t, s, tt.key, []byte(tt.data))
		want(t, s, tt.key, []byte(tt.data))
		info, err := s.Stat(t.Context(), tt.key)
		if err != nil {
			t.Fatal(err)
		}
		if info.Key != tt.key || info.Size != int64(len(tt.data)) || info.Modified.IsZero() {
			t.Errorf("stat %s: %+v", tt.key, info)
		}
	}
}

func testPutReplaces(t *testing.T, s blob.Store) {
	put(t, s, "k", content(1, 5000))
	put(t, s, "k", content(2, 100))
	want(t, s, "k", content(2, 100))
}

// onlyReader hides all methods but Read and gives few bytes at a time.
type onlyReader struct{ r io.Reader }

func (o onlyReader) Read(p []byte) (int, error) { return o.r.Read(p[:min(len(p), 1000)]) }

func testBodies(t *testing.T, s blob.Store) {
	data := content(3, 100_000)
	for name, body := range map[string]io.Reader{
		"bytes":   bytes.NewReader(data),
		"buffer":  bytes.NewBuffer(slices.Clone(data)),
		"section": io.NewSectionReader(bytes.NewReader(append([]byte("head"), data...)), 4, int64(len(data))),
		"stream":  onlyReader{bytes.NewReader(data)},
		"longer":  onlyReader{bytes.NewReader(append(slices.Clone(data), "tail"...))},
		"seeker":  bytes.NewReader(append(slices.Clone(data), "tail"...)),
	} {
		if err := s.Put(t.Context(), "body/"+name, body, int64(len(data))); err != nil {
			t.Fatal(err)
		}
		want(t, s, "body/"+name, data)
	}
	if err := s.Put(t.Context(), "body/negative", bytes.NewReader(data), -1); err == nil {
		t.Error("a size of -1 was accepted")
	}
	if err := s.Put(t.Context(), "body/none", onlyReader{strings.NewReader("")}, 0); err != nil {
		t.Error(err)
	}
}

func testShortBody(t *testing.T, s blob.Store) {
	put(t, s, "old", []byte("old"))
	for _, size := range []int{0, 10, 300_000} {
		for _, body := range []io.Reader{bytes.NewReader(content(4, size)), onlyReader{bytes.NewReader(content(4, size))}} {
			err := s.Put(t.Context(), "new", body, int64(size)+1)
			wantError(t, err, io.ErrUnexpectedEOF, "put", "new")
			wantMissing(t, s, "new")
			err = s.Put(t.Context(), "old", bytes.NewReader(content(4, size)), int64(size)+1)
			wantError(t, err, io.ErrUnexpectedEOF, "put", "old")
			want(t, s, "old", []byte("old"))
		}
	}
	big := content(4, bigSize)
	wantError(t, s.Put(t.Context(), "big", onlyReader{bytes.NewReader(big)}, bigSize+1), io.ErrUnexpectedEOF, "put", "big")
	wantError(t, s.Put(t.Context(), "big", bytes.NewReader(big), bigSize+1), io.ErrUnexpectedEOF, "put", "big")
	wantMissing(t, s, "big")
	if got := list(t, s, ""); !slices.Equal(got, []string{"old"}) {
		t.Errorf("left over: %q", got)
	}
}

func testFailingBody(t *testing.T, s blob.Store) {
	broken := errors.New("disk on fire")
	for _, size := range []int{0, 1000, 300_000} {
		body := io.MultiReader(bytes.NewReader(content(5, size)), failingReader{broken})
		wantError(t, s.Put(t.Context(), "k", body, int64(size)+1), broken, "put", "k")
		wantMissing(t, s, "k")
	}
}

type failingReader struct{ err error }

func (f failingReader) Read([]byte) (int, error) { return 0, f.err }

func testBodyPosition(t *testing.T, s blob.Store) {
	body := bytes.NewReader([]byte("head-tail"))
	if _, err := body.Seek(5, io.SeekStart); err != nil {
		t.Fatal(err)
	}
	if err := s.Put(t.Context(), "k", body, 4); err != nil {
		t.Fatal(err)
	}
	want(t, s, "k", []byte("tail"))
}

func testBig(t *testing.T, s blob.Store) {
	data := content(6, bigSize)
	put(t, s, "big/seekable", data)
	want(t, s, "big/seekable", data)
	if err := s.Put(t.Context(), "big/stream", onlyReader{bytes.NewReader(data)}, bigSize); err != nil {
		t.Fatal(err)
	}
	want(t, s, "big/stream", data)
	r, err := s.GetRange(t.Context(), "big/stream", bigSize/2-7, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	got, err := io.ReadAll(r)
	if err != nil || !bytes.Equal(got, data[bigSize/2-7:][:1<<20]) {
		t.Errorf("range of a big object: %d bytes, %v", len(got), err)
	}
}

func testRanges(t *testing.T, s blob.Store) {
	put(t, s, "k", []byte("0123456789"))
	put(t, s, "empty", nil)
	for _, tt := range []struct {
		key    string
		off, n int64
		want   string
		ok     bool
	}{
		{"k", 0, 10, "0123456789", true},
		{"k", 3, 4, "3456", true},
		{"k", 9, 1, "9", true},
		{"k", 0, 0, "", true},
		{"k", 10, 0, "", true},
		{"empty", 0, 0, "", true},
		{"k", 0, 11, "", false},
		{"k", 9, 2, "", false},
		{"k", 10, 1, "", false},
		{"k", 11, 0, "", false},
		{"k", 50, 5, "", false},
		{"k", -1, 2, "", false},
		{"k", 2, -1, "", false},
		{"k", 5, 1<<63 - 1, "", false},
		{"empty", 0, 1, "", false},
	} {
		name := fmt.Sprintf("%s[%d,+%d]", tt.key, tt.off, tt.n)
		r, err := s.GetRange(t.Context(), tt.key, tt.off, tt.n)
		if !tt.ok {
			if err == nil {
				r.Close()
				t.Errorf("%s: no error", name)
				continue
			}
			wantError(t, err, blob.ErrRange, "get-range", tt.key)
			continue
		}
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		got, err := io.ReadAll(r)
		r.Close()
		if err != nil || string(got) != tt.want {
			t.Errorf("%s: got %q, %v", name, got, err)
		}
	}
}

func testMissing(t *testing.T, s blob.Store) {
	ctx := t.Context()
	put(t, s, "dir/there", []byte("x"))
	for _, key := range []string{"none", "dir", "dir/none", "dir/there/below"} {
		_, _, err := s.Get(ctx, key)
		wantError(t, err, blob.ErrNotExist, "get", key)
		_, err = s.GetRange(ctx, key, 0, 1)
		wantError(t, err, blob.ErrNotExist, "get-range", key)
		_, err = s.GetRange(ctx, key, 0, 0)
		wantError(t, err, blob.ErrNotExist, "get-range", key)
		wantMissing(t, s, key)
	}
}

func testReadAll(t *testing.T, s blob.Store) {
	put(t, s, "k", []byte("0123456789"))
	if data, err := blob.ReadAll(t.Context(), s, "k", 10); err != nil || string(data) != "0123456789" {
		t.Errorf("got %q, %v", data, err)
	}
	_, err := blob.ReadAll(t.Context(), s, "k", 9)
	wantError(t, err, blob.ErrTooLarge, "get", "k")
}

func testCancellation(t *testing.T, s blob.Store) {
	put(t, s, "k", content(7, 1<<20))
	r, _, err := s.Get(t.Context(), "k")
	if err != nil {
		t.Fatal(err)
	}
	r.Close()

	ctx, cancel := context.WithCancel(t.Context())
	open, _, err := s.Get(ctx, "k")
	if err != nil {
		t.Fatal(err)
	}
	defer open.Close()
	cancel()
	if _, err := io.ReadAll(open); !errors.Is(err, context.Canceled) {
		t.Errorf("read after cancellation: %v", err)
	}
	check := func(op string, err error) {
		t.Helper()
		wantError(t, err, context.Canceled, op, "k")
	}
	check("put", blob.PutBytes(ctx, s, "k", []byte("new")))
	check("put-if-absent", s.PutIfAbsent(ctx, "k2", []byte("new")))
	_, _, err = s.Get(ctx, "k")
	check("get", err)
	_, err = s.GetRange(ctx, "k", 0, 1)
	check("get-range", err)
	_, err = s.Stat(ctx, "k")
	check("stat", err)
	check("delete", s.Delete(ctx, "k"))
	err = nil
	for _, err = range s.List(ctx, "k") {
		if err != nil {
			break
		}
	}
	check("list", err)

	// A body that cancels half-way leaves nothing.
	ctx, cancel = context.WithCancel(t.Context())
	defer cancel()
	body := io.MultiReader(bytes.NewReader(content(8, bigSize/2)), cancelReader{cancel}, bytes.NewReader(content(8, bigSize/2)))
	if err := s.Put(ctx, "half", onlyReader{body}, bigSize); !errors.Is(err, context.Canceled) {
		t.Errorf("put cancelled half-way: %v", err)
	}
	wantMissing(t, s, "half")
	want(t, s, "k", content(7, 1<<20))
	wantMissing(t, s, "k2")
}

// cancelReader cancels when it is reached.
type cancelReader struct{ cancel func() }

func (c cancelReader) Read([]byte) (int, error) {
	c.cancel()
	return 0, io.EOF
}
