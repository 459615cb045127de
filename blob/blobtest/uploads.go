package blobtest

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/cairnstream/cairn/blob"
)

// RunUploads proves that uploads which were left behind are found and taken back. open gives an empty store; begin begins an
// upload in it, with a part, as a process does that dies then, and returns its id.
func RunUploads(t *testing.T, open func(t *testing.T) blob.Store, begin func(t *testing.T, s blob.Store, key string) (id string)) {
	all := func(t *testing.T, u blob.Uploads, prefix string) (out []blob.Upload) {
		t.Helper()
		for x, err := range u.Uploads(t.Context(), prefix) {
			if err != nil {
				t.Fatal(err)
			}
			out = append(out, x)
		}
		return out
	}
	uploads := func(t *testing.T, s blob.Store) blob.Uploads {
		t.Helper()
		u, ok := blob.UploadsOf(s)
		if !ok {
			t.Fatalf("%T has no uploads", s)
		}
		return u
	}
	t.Run("found and taken back", func(t *testing.T) {
		s := open(t)
		u := uploads(t, s)
		if got := all(t, u, ""); len(got) != 0 {
			t.Fatalf("an empty store has %v", got)
		}
		put(t, s, "a/1", []byte("there"))
		want := map[string]string{}
		for _, key := range []string{"a/1", "a/2", "ab/3", "b"} {
			want[key] = begin(t, s, key)
		}
		got := all(t, u, "")
		var keys []string
		for _, x := range got {
			keys = append(keys, x.Key)
			if x.ID != want[x.Key] || time.Since(x.Begun).Abs() > time.Hour {
				t.Errorf("%+v, want the id %s", x, want[x.Key])
			}
		}
		if !slices.Equal(keys, []string{"a/1", "a/2", "ab/3", "b"}) {
			t.Fatalf("uploads of %q", keys)
		}
		if n := len(all(t, u, "a/")); n != 2 {
			t.Errorf("%d uploads below a/", n)
		}
		if n := len(all(t, u, "a")); n != 3 {
			t.Errorf("%d uploads that begin with a", n)
		}
		if got := list(t, s, ""); !slices.Equal(got, []string{"a/1"}) {
			t.Errorf("listed as objects: %q", got)
		}
		for range 2 { // Again is no error.
			for _, x := range got[:2] {
				if err := u.AbortUpload(t.Context(), x); err != nil {
					t.Fatal(err)
				}
			}
		}
		if left := all(t, u, ""); len(left) != 2 || left[0].Key != "ab/3" {
			t.Errorf("left: %v", left)
		}
		if data := get(t, s, "a/1"); string(data) != "there" {
			t.Errorf("the object became %q", data)
		}
	})
	t.Run("several of a key, and many", func(t *testing.T) {
		s := open(t)
		u := uploads(t, s)
		begin(t, s, "k")
		begin(t, s, "k")
		for i := range 12 {
			begin(t, s, fmt.Sprintf("many/%02d", i))
		}
		if got := all(t, u, "k"); len(got) != 2 || got[0].ID == got[1].ID {
			t.Errorf("two of a key: %v", got)
		}
		got := all(t, u, "many/")
		if len(got) != 12 {
			t.Errorf("%d of 12", len(got))
		}
		for _, err := range u.Uploads(t.Context(), "many/") {
			if err != nil {
				t.Error(err)
			}
			break
		}
	})
	t.Run("what is complete is none", func(t *testing.T) {
		s := open(t)
		put(t, s, "big", content(9, bigSize))
		if got := all(t, uploads(t, s), ""); len(got) != 0 {
			t.Errorf("left behind: %v", got)
		}
	})
	t.Run("cancellation", func(t *testing.T) {
		s := open(t)
		u := uploads(t, s)
		id := begin(t, s, "k")
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		for _, err := range u.Uploads(ctx, "") {
			if !errors.Is(err, context.Canceled) {
				t.Errorf("list after cancellation: %v", err)
			}
		}
		wantError(t, u.AbortUpload(ctx, blob.Upload{Key: "k", ID: id}), context.Canceled, "abort-upload", "k")
	})
}
