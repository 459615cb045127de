package statebackend_test

import (
	"sync"
	"testing"

	"github.com/cairnstream/cairn/statebackend"
)

func TestBudgetIsShared(t *testing.T) {
	b := statebackend.NewBudget(1000)
	want := func(share int64) {
		t.Helper()
		if got := b.Share(); got != share || b.Bytes() != 1000 {
			t.Errorf("a share is %d of %d, want %d of 1000", got, b.Bytes(), share)
		}
	}
	want(1000) // For whoever asks before it joins.
	first := b.Join()
	want(1000)
	second, third := b.Join(), b.Join()
	want(333)
	second()
	second() // Once is enough.
	want(500)
	first()
	third()
	want(1000)

	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				leave := b.Join()
				if s := b.Share(); s < 1000/8 || s > 1000 {
					t.Errorf("a share is %d", s)
				}
				leave()
			}
		})
	}
	wg.Wait()
	want(1000)
}

func TestBudgetOfNothing(t *testing.T) {
	var none *statebackend.Budget
	none.Join()()
	for name, b := range map[string]*statebackend.Budget{"nil": none, "0 bytes": statebackend.NewBudget(0)} {
		if b.Share() != statebackend.DefaultBudget || b.Bytes() != statebackend.DefaultBudget {
			t.Errorf("%s: %d of %d", name, b.Share(), b.Bytes())
		}
	}
}
