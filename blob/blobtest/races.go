package blobtest

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"sync"
	"testing"

	"github.com/cairnstream/cairn/blob"
)

func testPutIfAbsent(t *testing.T, s blob.Store) {
	ctx := t.Context()
	if err := s.PutIfAbsent(ctx, "dir/k", []byte("first")); err != nil {
		t.Fatal(err)
	}
	wantError(t, s.PutIfAbsent(ctx, "dir/k", []byte("second")), blob.ErrExists, "put-if-absent", "dir/k")
	wantError(t, s.PutIfAbsent(ctx, "dir/k", []byte("first")), blob.ErrExists, "put-if-absent", "dir/k")
	want(t, s, "dir/k", []byte("first"))
	if err := s.Delete(ctx, "dir/k"); err != nil {
		t.Fatal(err)
	}
	if err := s.PutIfAbsent(ctx, "dir/k", nil); err != nil {
		t.Fatal(err)
	}
	want(t, s, "dir/k", nil)

	data := []byte("mine")
	if err := s.PutIfAbsent(ctx, "copied", data); err != nil {
		t.Fatal(err)
	}
	copy(data, "your")
	want(t, s, "copied", []byte("mine"))
}

func testOneWinner(t *testing.T, s blob.Store) {
	const rivals = 16
	for round := range 5 {
		key := fmt.Sprintf("race/%d", round)
		errs := make([]error, rivals)
		var start, done sync.WaitGroup
		start.Add(1)
		for i := range rivals {
			done.Go(func() {
				start.Wait()
				errs[i] = s.PutIfAbsent(t.Context(), key, fmt.Appendf(nil, "rival %d", i))
			})
		}
		start.Done()
		done.Wait()
		winner := -1
		for i, err := range errs {
			switch {
			case err == nil && winner >= 0:
				t.Fatalf("round %d: %d and %d both won", round, winner, i)
			case err == nil:
				winner = i
			case !errors.Is(err, blob.ErrExists):
				t.Errorf("round %d: rival %d: %v", round, i, err)
			}
		}
		if winner < 0 {
			t.Fatalf("round %d: nobody won", round)
		}
		want(t, s, key, fmt.Appendf(nil, "rival %d", winner))
	}
}

// testAtomicVisibility replaces an object by versions of different length while readers look: each sees one version,
// whole.
func testAtomicVisibility(t *testing.T, s blob.Store) {
	versions := [][]byte{content(10, 300_000), content(11, 150_000), content(12, 450_000)}
	known := func(data []byte) bool {
		for _, v := range versions {
			if bytes.Equal(v, data) {
				return true
			}
		}
		return false
	}
	stop := make(chan struct{})
	var readers, writers sync.WaitGroup
	for range 2 {
		writers.Go(func() {
			for i := range 12 {
				v := versions[i%len(versions)]
				// A stream, slowly: a store that shows what has arrived so far is found out.
				if err := s.Put(t.Context(), "k", onlyReader{bytes.NewReader(v)}, int64(len(v))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	for range 4 {
		readers.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				r, info, err := s.Get(t.Context(), "k")
				if errors.Is(err, blob.ErrNotExist) {
					continue
				}
				if err != nil {
					t.Error(err)
					return
				}
				data, err := io.ReadAll(r)
				r.Close()
				if err != nil || !known(data) || info.Size != int64(len(data)) {
					t.Errorf("read %d of %d bytes, error %v: no version that was ever put", len(data), info.Size, err)
					return
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	readers.Wait()
}

// testDeleteRace: taking away what a directory holds is not in the way of a Put into it.
func testDeleteRace(t *testing.T, s blob.Store) {
	var wg sync.WaitGroup
	for i := range 4 {
		wg.Go(func() {
			key := fmt.Sprintf("dir/sub/%d", i)
			for round := range 25 {
				data := fmt.Appendf(nil, "%d.%d", i, round)
				if err := blob.PutBytes(t.Context(), s, key, data); err != nil {
					t.Error(err)
					return
				}
				if got, err := blob.ReadAll(t.Context(), s, key, 100); err != nil || !bytes.Equal(got, data) {
					t.Errorf("%s: got %q, %v", key, got, err)
					return
				}
				if err := s.Delete(t.Context(), key); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	if got := list(t, s, ""); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}
