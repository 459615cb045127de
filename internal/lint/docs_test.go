package lint

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// named finds what a page sets in code and what looks like a place in the tree.
var named = regexp.MustCompile("`([a-z0-9_/.-]+/[A-Za-z0-9_/.-]+)`")

// What the pages say about files is true: each file and package that they name exists.
func TestDocsNameWhatExists(t *testing.T) {
	for _, page := range []string{"README.md", "docs/ARCHITECTURE.md", "CONTRIBUTING.md"} {
		text, err := os.ReadFile(filepath.Join("../..", page))
		if err != nil {
			t.Fatal(err)
		}
		for _, m := range named.FindAllStringSubmatch(string(text), -1) {
			path := m[1]
			if strings.HasPrefix(path, ".") || strings.HasPrefix(path, "/") || strings.HasPrefix(path, "bin/") || strings.HasPrefix(path, "testing/") {
				continue // What a run makes, or the standard library's.
			}
			if _, err := os.Stat(filepath.Join("../..", path)); err != nil {
				t.Errorf("%s names %s, which does not exist", page, path)
			}
		}
	}
}
