package blob_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/blobtest"
	"github.com/cairnstream/cairn/blob/mem"
)

func TestLimitedIsAStore(t *testing.T) {
	blobtest.Run(t, func(t *testing.T) blob.Store { return blob.Limited(mem.New("test"), 1<<40) })
}

// Uploads take as long as the rate says, alone and together, whatever kind of body they have.
func TestLimitedRate(t *testing.T) {
	const rate, size = 1 << 20, 4 << 20
	data := bytes.Repeat([]byte("x"), size)
	bodies := map[string]func() io.Reader{
		"random": func() io.Reader { return bytes.NewReader(data) },
		"stream": func() io.Reader { return io.MultiReader(bytes.NewReader(data)) },
	}
	for name, body := range bodies {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := blob.Limited(mem.New("test"), rate)
				start := time.Now()
				var wg sync.WaitGroup
				for i := range 3 {
					wg.Go(func() {
						if err := s.Put(t.Context(), string(rune('a'+i)), body(), size); err != nil {
							t.Error(err)
						}
					})
				}
				wg.Wait()
				want := 3 * size * time.Second / rate
				if took := time.Since(start); took < want*95/100 || took > want*105/100 {
					t.Errorf("three of %d bytes take %v at %d bytes a second, want %v", size, took, rate, want)
				}
				r, info, err := s.Get(t.Context(), "b")
				if err != nil || info.Size != size {
					t.Fatalf("%v, %v", info, err)
				}
				got, err := io.ReadAll(r)
				if err != nil || !bytes.Equal(got, data) {
					t.Errorf("%d bytes come back, %v", len(got), err)
				}
				_ = r.Close()
				// After a pause a little goes at once, and no more than that.
				time.Sleep(time.Hour)
				start = time.Now()
				if err := blob.PutBytes(t.Context(), s, "small", data[:1000]); err != nil || time.Since(start) > 0 {
					t.Errorf("a small one takes %v, %v", time.Since(start), err)
				}
				if err := s.Put(t.Context(), "large", body(), size); err != nil || time.Since(start) < 3700*time.Millisecond {
					t.Errorf("a large one takes %v, %v", time.Since(start), err)
				}
			})
		})
	}
}

func TestLimitedEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := blob.Limited(mem.New("test"), 1000)
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		start := time.Now()
		err := s.Put(ctx, "a", strings.NewReader(strings.Repeat("x", 1<<20)), 1<<20)
		if !errors.Is(err, context.DeadlineExceeded) || time.Since(start) != time.Second {
			t.Errorf("after %v: %v", time.Since(start), err)
		}
		if _, err := s.Stat(t.Context(), "a"); !errors.Is(err, blob.ErrNotExist) {
			t.Errorf("a part of it is there: %v", err)
		}
	})
}

func TestNotLimited(t *testing.T) {
	if s := mem.New("test"); blob.Limited(s, 0) != blob.Store(s) {
		t.Error("a rate of 0 is a limit")
	}
}
