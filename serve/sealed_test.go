package serve

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/sealed"
	"github.com/cairnstream/cairn/connector/collect"
	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/snapshot"
)

// keysFile makes a file of keys and returns its path.
func keysFile(t *testing.T, ids ...string) string {
	t.Helper()
	var lines []string
	for _, id := range ids {
		k, err := sealed.NewKey(id)
		if err != nil {
			t.Fatal(err)
		}
		lines = append(lines, k.Line())
	}
	path := filepath.Join(t.TempDir(), "keys")
	if err := os.WriteFile(path, []byte(strings.Join(lines, "\n")), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// A cluster whose blob URL names keys writes nothing that can be read without them.
func TestSealedStore(t *testing.T) {
	prog := &numbers{sink: collect.New[int64](), n: 5000}
	dir := t.TempDir()
	url := "file://" + filepath.ToSlash(filepath.Join(dir, "blob")) + "?keys=" + keysFile(t, "k1")
	jm := startJM(t, "embedded:"+filepath.Join(dir, "metadata"), url)
	p := jm.ports()
	tm := startTM(t, prog, p["listen"])
	tm.ports()
	jobs := api(t, p["listen"])
	sub, err := jobs.Submit(t.Context(), coordinator.Submission{Spec: prog.spec(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := jobs.Watch(t.Context(), string(sub.Job.ID), func(coordinator.JobDetail) error { return nil }); err != nil {
		t.Fatal(err)
	}
	prog.check(t)
	list, err := jobs.ListCheckpoints(t.Context(), string(sub.Job.ID))
	if err != nil || len(list) == 0 {
		t.Fatalf("checkpoints: %d, %v", len(list), err)
	}
	files := 0
	err = filepath.WalkDir(filepath.Join(dir, "blob"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files++
		if !bytes.HasPrefix(data, []byte("CRNSEAL1")) {
			t.Errorf("%s is not encrypted", path)
		}
		return err
	})
	if err != nil || files == 0 {
		t.Fatalf("%d objects, %v", files, err)
	}

	manifest := list[0].Manifest
	open := func(url string) error {
		loc, err := blob.ParseLocation(url)
		if err != nil {
			t.Fatal(err)
		}
		store, done, err := OpenBlob(t.Context(), loc, true)
		if err != nil {
			return err
		}
		defer done()
		_, err = snapshot.LoadManifest(t.Context(), store, manifest)
		return err
	}
	if err := open(url); err != nil {
		t.Errorf("with the keys: %v", err)
	}
	plain, _, _ := strings.Cut(url, "?")
	if err := open(plain); err == nil {
		t.Error("the manifest can be read without keys")
	}
	if err := open(plain + "?keys=" + keysFile(t, "k2")); err == nil || !strings.Contains(err.Error(), `"k1"`) {
		t.Errorf("with other keys: %v", err)
	}
	if err := open(plain + "?keys=/nowhere/keys"); err == nil || !strings.Contains(err.Error(), "/nowhere/keys") {
		t.Errorf("without the file of keys: %v", err)
	}
}
