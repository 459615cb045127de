package spelling

import "testing"

func TestDistance(t *testing.T) {
	for pair, want := range map[[2]string]int{
		{"", ""}: 0, {"", "abc"}: 3, {"sums", "sums"}: 0, {"sums", "sum"}: 1, {"totals", "total"}: 1, {"kitten", "sitting"}: 3, {"ab", "ba"}: 2,
	} {
		if got := Distance(pair[0], pair[1]); got != want {
			t.Errorf("%q and %q: %d, want %d", pair[0], pair[1], got, want)
		}
		if got := Distance(pair[1], pair[0]); got != want {
			t.Errorf("%q and %q: %d, want %d", pair[1], pair[0], got, want)
		}
	}
}
