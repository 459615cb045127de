package s3

import "testing"

// SmallPages has lists of uploads come in pages of n until the test ends.
func SmallPages(t *testing.T, n int) {
	was := uploadsPage
	uploadsPage = n
	t.Cleanup(func() { uploadsPage = was })
}
