package servers

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
)

// ErrNoBinary: a server's program has not been built.
var ErrNoBinary = errors.New("server binary is missing")

// Binary finds a server's program.
func Binary(name string) (string, error) {
	dir := os.Getenv("CAIRN_TOOLS_BIN")
	if dir == "" {
		root, err := moduleRoot()
		if err != nil {
			return "", err
		}
		dir = filepath.Join(root, ".tools", "bin")
	}
	path := filepath.Join(dir, name)
	if fi, err := os.Stat(path); err != nil || fi.IsDir() {
		return "", fmt.Errorf("%w: %s: build it with `make tools`, or set CAIRN_TOOLS_BIN", ErrNoBinary, path)
	}
	return path, nil
}

func moduleRoot() (string, error) {
	start, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for dir := start; ; dir = filepath.Dir(dir) {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir, nil
		}
		if dir == filepath.Dir(dir) {
			return "", fmt.Errorf("%w: no go.mod above %s: set CAIRN_TOOLS_BIN", ErrNoBinary, start)
		}
	}
}

// require ends the test if a server could not be started: quietly if it is only not built.
func require(t testing.TB, err error) {
	t.Helper()
	if errors.Is(err, ErrNoBinary) && os.Getenv("CAIRN_REQUIRE_SERVERS") != "1" {
		t.Skip(err)
	}
	if err != nil {
		t.Fatal(err)
	}
}
