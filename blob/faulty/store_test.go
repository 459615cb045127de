package faulty_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math/bits"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/blobtest"
	"github.com/cairnstream/cairn/blob/faulty"
	"github.com/cairnstream/cairn/blob/mem"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// Without rules it is the store that it wraps.
func TestConformance(t *testing.T) {
	blobtest.Run(t, func(*testing.T) blob.Store { return faulty.Wrap(mem.New("test"), 1) })
}

func TestRules(t *testing.T) {
	ctx := t.Context()
	s := faulty.Wrap(mem.New("test"), 1)
	s.Set(faulty.Rule{Op: "put", Contains: "_metadata", Skip: 1, Times: 2})
	var got []bool
	for range 5 {
		err := blob.PutBytes(ctx, s, "1/_metadata", nil)
		if err != nil && !blob.IsTransient(err) {
			t.Errorf("not transient: %v", err)
		}
		got = append(got, err != nil)
	}
	for i, want := range []bool{false, true, true, false, false} {
		if got[i] != want {
			t.Errorf("put %d failed: %v", i, got[i])
		}
	}
	if err := blob.PutBytes(ctx, s, "1/data", nil); err != nil {
		t.Error(err)
	}
	if s.Hits() != 2 || s.Calls("put") != 6 {
		t.Errorf("%d hits of %d calls", s.Hits(), s.Calls("put"))
	}
	full := errors.New("quota")
	s.Set(faulty.Rule{Op: "put-if-absent", AfterEffect: true, Err: full})
	if err := s.PutIfAbsent(ctx, "k", nil); !errors.Is(err, full) || blob.IsTransient(err) {
		t.Errorf("got %v", err)
	}
	s.Set()
	if err := s.PutIfAbsent(ctx, "k", nil); !errors.Is(err, blob.ErrExists) {
		t.Errorf("the put that failed after its effect had none: %v", err)
	}
}

func TestChanceIsSeeded(t *testing.T) {
	run := func(seed uint64) (failed []bool) {
		s := faulty.Wrap(mem.New("test"), seed)
		s.Set(faulty.Rule{Chance: 0.5})
		for range 64 {
			failed = append(failed, s.Delete(t.Context(), "k") != nil)
		}
		return failed
	}
	same := func(a, b []bool) bool {
		for i := range a {
			if a[i] != b[i] {
				return false
			}
		}
		return true
	}
	if !same(run(7), run(7)) || same(run(7), run(8)) {
		t.Error("chance does not follow the seed")
	}
}

func TestLatency(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := faulty.Wrap(mem.New("test"), 1)
		s.Set(faulty.Rule{Latency: time.Minute})
		begin := time.Now()
		if err := blob.PutBytes(t.Context(), s, "k", nil); err != nil || time.Since(begin) != time.Minute {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if _, err := s.Stat(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) || time.Since(begin) != 61*time.Second {
			t.Errorf("%v after %v", err, time.Since(begin))
		}
	})
}

func TestDamage(t *testing.T) {
	ctx := t.Context()
	s := faulty.Wrap(mem.New("test"), 3)
	data := bytes.Repeat([]byte{0xAA}, 100_000)
	if err := blob.PutBytes(ctx, s, "k", data); err != nil {
		t.Fatal(err)
	}
	s.Set(faulty.Rule{Op: "get", Damage: faulty.Flip})
	got, err := blob.ReadAll(ctx, s, "k", 1<<20)
	flipped := 0
	for i := range got {
		flipped += bits.OnesCount8(got[i] ^ data[i])
	}
	if err != nil || len(got) != len(data) || flipped != 1 {
		t.Errorf("%d bits of %d bytes flipped, %v", flipped, len(got), err)
	}
	s.Set(faulty.Rule{Damage: faulty.Truncate})
	if got, err := blob.ReadAll(ctx, s, "k", 1<<20); err != nil || len(got) >= len(data) || !bytes.HasPrefix(data, got) {
		t.Errorf("truncated to %d bytes, %v", len(got), err)
	}
	s.Set(faulty.Rule{Damage: faulty.Break})
	r, err := s.GetRange(ctx, "k", 0, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); len(got) != 500 || !blob.IsTransient(err) {
		t.Errorf("broke after %d bytes, %v", len(got), err)
	}
}
