package invariant

import (
	"fmt"
	"testing"
)

func TestCheck(t *testing.T) {
	broken := func() (v any) {
		defer func() { v = recover() }()
		Check(true, "holds")
		Check(false, "batch %d is used after its release", 7)
		return nil
	}()
	want := "<nil>"
	if Enabled {
		want = "invariant broken: batch 7 is used after its release"
	}
	if got := fmt.Sprint(broken); got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}
