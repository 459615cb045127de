package blobtest

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/blob"
)

func testDelete(t *testing.T, s blob.Store) {
	ctx := t.Context()
	put(t, s, "dir/a", []byte("a"))
	put(t, s, "dir/b", []byte("b"))
	for range 2 { // the second time it is not there: no error either
		if err := s.Delete(ctx, "dir/a"); err != nil {
			t.Fatal(err)
		}
	}
	wantMissing(t, s, "dir/a")
	want(t, s, "dir/b", []byte("b"))
	for _, key := range []string{"none/at/all", "dir", "dir/b/below"} {
		if err := s.Delete(ctx, key); err != nil {
			t.Errorf("delete of what is not an object: %v", err)
		}
	}
	if err := s.Delete(ctx); err != nil {
		t.Error(err)
	}
	want(t, s, "dir/b", []byte("b"))
	if err := s.Delete(ctx, "dir/b"); err != nil {
		t.Fatal(err)
	}
	// Nothing of the directory is left that would be in the way.
	put(t, s, "dir", []byte("now an object"))
	want(t, s, "dir", []byte("now an object"))
}

func testDeleteMany(t *testing.T, s blob.Store) {
	var keys []string
	for i := range 40 {
		key := fmt.Sprintf("many/%02d", i)
		if i%4 != 0 {
			put(t, s, key, []byte("x"))
		}
		keys = append(keys, key)
	}
	put(t, s, "many/kept", []byte("x"))
	if err := s.Delete(t.Context(), keys...); err != nil {
		t.Fatal(err)
	}
	if got := list(t, s, ""); !slices.Equal(got, []string{"many/kept"}) {
		t.Errorf("left: %q", got)
	}
}

func testList(t *testing.T, s blob.Store) {
	keys := []string{"a", "a-b/x", "a.b", "b/1", "b/10", "b/2", "b/c/d/e", "b/c/d/f", "b/c0", "bb/1", "ü"}
	for i, key := range keys {
		put(t, s, key, content(uint64(i), i))
	}
	for _, prefix := range []string{"", "a", "a-", "b", "b/", "b/1", "b/c", "b/c/", "b/c/d/e", "b/c/d/e/", "bb/", "none", "none/", "none/x", "a/", "ü", "/", "b//", "..", "../"} {
		var expect []string
		for _, key := range keys {
			if strings.HasPrefix(key, prefix) {
				expect = append(expect, key)
			}
		}
		slices.Sort(expect)
		if got := list(t, s, prefix); !slices.Equal(got, expect) {
			t.Errorf("list %q: got %q, want %q", prefix, got, expect)
		}
	}
	for info, err := range s.List(t.Context(), "") {
		if err != nil {
			t.Fatal(err)
		}
		if i := slices.Index(keys, info.Key); info.Size != int64(i) || info.Modified.IsZero() {
			t.Errorf("%+v, want size %d", info, i)
		}
	}
}

func testListMany(t *testing.T, s blob.Store) {
	const n = 1100 // more than a page of S3
	var expect []string
	for i := range n {
		key := fmt.Sprintf("page/%04d", i)
		expect = append(expect, key)
		put(t, s, key, nil)
	}
	if got := list(t, s, "page/"); !slices.Equal(got, expect) {
		t.Errorf("got %d keys, want %d", len(got), n)
	}
}

func testListBreak(t *testing.T, s blob.Store) {
	for i := range 10 {
		put(t, s, fmt.Sprintf("k/%d/x", i), nil)
	}
	seen := 0
	for _, err := range s.List(t.Context(), "k/") {
		if err != nil {
			t.Fatal(err)
		}
		if seen++; seen == 3 {
			break
		}
	}
	if seen != 3 {
		t.Errorf("saw %d", seen)
	}
}

// testConflict: S3 itself allows both keys, others refuse the second with ErrConflict. Either way the first stays whole.
func testConflict(t *testing.T, s blob.Store) {
	for _, pair := range [][2]string{{"x", "x/child"}, {"y/child/deep", "y"}, {"z/child/deep", "z/child"}} {
		put(t, s, pair[0], []byte("first"))
		for _, err := range []error{
			blob.PutBytes(t.Context(), s, pair[1], []byte("second")),
			s.PutIfAbsent(t.Context(), pair[1], []byte("second")),
		} {
			if err != nil && !errors.Is(err, blob.ErrConflict) && !errors.Is(err, blob.ErrExists) {
				t.Errorf("put of %s beside %s: %v", pair[1], pair[0], err)
			}
			if blob.IsTransient(err) {
				t.Errorf("counts as transient: %v", err)
			}
		}
		want(t, s, pair[0], []byte("first"))
	}
}

func testBadKeys(t *testing.T, s blob.Store) {
	ctx := t.Context()
	for _, key := range BadKeys() {
		_, statErr := s.Stat(ctx, key)
		_, _, getErr := s.Get(ctx, key)
		_, rangeErr := s.GetRange(ctx, key, 0, 0)
		for op, err := range map[string]error{
			"put":           blob.PutBytes(ctx, s, key, []byte("x")),
			"put-if-absent": s.PutIfAbsent(ctx, key, []byte("x")),
			"get":           getErr,
			"get-range":     rangeErr,
			"stat":          statErr,
			"delete":        s.Delete(ctx, "fine", key),
		} {
			if !errors.Is(err, blob.ErrBadKey) || blob.IsTransient(err) {
				t.Errorf("%s %.50q: %v", op, key, err)
			}
		}
	}
}

// BadKeys are keys that every store refuses.
func BadKeys() []string {
	return []string{
		"", "/", "/a", "a/", "a//b", ".", "..", "../a", "a/../b", "a/./b", "a/.hidden", ".tmp-1", "a\\b", "a\x00b", "a\nb", "a\xffb",
		strings.Repeat("a/", blob.MaxKeyLen/2) + "a", strings.Repeat("s", blob.MaxSegmentLen+1),
	}
}
