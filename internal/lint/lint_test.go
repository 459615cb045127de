package lint

import (
	"bytes"
	"encoding/json"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"testing"
)

const root = "../.."

type pkg struct {
	ImportPath, Dir, Name string
	Imports, GoFiles      []string
}

// packages lists the module, end-to-end tests included; a package that does not compile yet is listed as well.
var packages = sync.OnceValues(func() (all []pkg, err error) {
	cmd := exec.Command("go", "list", "-e", "-tags", "e2e", "-json=ImportPath,Dir,Name,Imports,GoFiles", "./...")
	cmd.Dir = root
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return nil, fmt.Errorf("list packages: %w", err)
	}
	for d := json.NewDecoder(bytes.NewReader(out)); d.More(); {
		var p pkg
		if err := d.Decode(&p); err != nil {
			return nil, fmt.Errorf("list packages: %w", err)
		}
		all = append(all, p)
	}
	return all, nil
})

func load(t *testing.T) []pkg {
	all, err := packages()
	if err != nil {
		t.Fatal(err)
	}
	if len(all) < 3 {
		t.Fatalf("go list found only %d packages", len(all))
	}
	return all
}

// short is the path below the module, and whether the package is ours.
func short(importPath string) (string, bool) {
	if importPath == module {
		return "", true
	}
	return strings.CutPrefix(importPath, module+"/")
}

// matches tells whether a path is the pattern, or below x for "x/...".
func matches(pattern, p string) bool {
	if above, ok := strings.CutSuffix(pattern, "/..."); ok {
		return strings.HasPrefix(p, above+"/")
	}
	return p == pattern
}

func matchesAny(patterns []string, p string) bool {
	return slices.ContainsFunc(patterns, func(pattern string) bool { return matches(pattern, p) })
}

// place finds the most specific row of a package.
func place(p string) (found row, ok bool) {
	for _, r := range layers {
		if matches(r.path, p) && (!ok || len(r.path) > len(found.path)) {
			found, ok = r, true
		}
	}
	return found, ok
}

// importProblems says which imports of a package breach layers, doors and purity.
func importProblems(p pkg) (problems []string) {
	say := func(format string, args ...any) { problems = append(problems, fmt.Sprintf(format, args...)) }
	from, _ := short(p.ImportPath)
	here, known := place(from)
	if !known {
		say("%s has no row in internal/lint/table.go: add it with its level", p.ImportPath)
		return problems
	}
	allowed, isPure := pure[from]
	for _, imported := range p.Imports {
		to, ours := short(imported)
		if ours {
			there, ok := place(to)
			nested := from == to || strings.HasPrefix(from, to+"/") && to != ""
			switch {
			case !ok:
				say("%s imports %s, which has no row in internal/lint/table.go", p.ImportPath, imported)
			case there.level < here.level:
			case there.level == here.level && (nested || matchesAny(here.also, to)):
			case there.level == here.level:
				say("%s imports its sibling %s (both level %d)", p.ImportPath, imported, here.level)
			default:
				say("%s (level %d) imports %s (level %d)", p.ImportPath, here.level, imported, there.level)
			}
		}
		for _, d := range doors {
			if (imported == d.what || strings.HasPrefix(imported, d.what+"/")) && !inside(from, d) {
				say("%s imports %s; only %q may: %s", p.ImportPath, imported, d.from, d.why)
			}
		}
		if isPure && allowed[imported] == "" && !isPureImport(imported, to, ours) {
			say("%s is pure and imports %s", p.ImportPath, imported)
		}
	}
	return problems
}

// inside tells whether a package is behind a door: named by it, or part of what it guards.
func inside(from string, d door) bool {
	if guarded, ours := short(d.what); ours && (from == guarded || strings.HasPrefix(from, guarded+"/")) {
		return true
	}
	return slices.ContainsFunc(d.from, func(pattern string) bool {
		return matches(pattern, from) || pattern != "" && strings.HasPrefix(from, pattern+"/")
	})
}

func isPureImport(imported, to string, ours bool) bool {
	if ours {
		_, ok := pure[to]
		return ok || to == "internal/invariant"
	}
	if strings.Contains(strings.Split(imported, "/")[0], ".") { // not of the standard library
		return slices.ContainsFunc(pureModules, func(m string) bool { return imported == m || strings.HasPrefix(imported, m+"/") })
	}
	return !slices.ContainsFunc(impure, func(pattern string) bool {
		return matches(pattern, imported) || imported == strings.TrimSuffix(pattern, "/...")
	})
}

func TestLayers(t *testing.T) {
	for _, p := range load(t) {
		if p.Name == "" {
			continue
		}
		for _, problem := range importProblems(p) {
			t.Error(problem)
		}
	}
}

func TestPackageNames(t *testing.T) {
	for _, p := range load(t) {
		for _, name := range []string{p.Name, path.Base(p.ImportPath)} {
			if forbidden[name] {
				t.Errorf("%s: %q does not say what the package provides", p.ImportPath, name)
			}
		}
	}
}

// impureCode says which statements of a file start goroutines or read the clock.
func impureCode(fset *token.FileSet, file *ast.File) (problems []string) {
	timeName := ""
	for _, i := range file.Imports {
		if i.Path.Value == `"time"` {
			if timeName = "time"; i.Name != nil {
				timeName = i.Name.Name
			}
		}
	}
	ast.Inspect(file, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.GoStmt:
			problems = append(problems, fmt.Sprintf("%s: goroutine in a pure package", fset.Position(n.Pos())))
		case *ast.SelectorExpr:
			if x, ok := n.X.(*ast.Ident); ok && timeName != "" && x.Name == timeName && clock[n.Sel.Name] {
				problems = append(problems, fmt.Sprintf("%s: time.%s in a pure package", fset.Position(n.Pos()), n.Sel.Name))
			}
		}
		return true
	})
	return problems
}

func TestPurity(t *testing.T) {
	fset := token.NewFileSet()
	for _, p := range load(t) {
		name, _ := short(p.ImportPath)
		if _, ok := pure[name]; !ok {
			continue
		}
		for _, f := range p.GoFiles {
			file, err := parser.ParseFile(fset, filepath.Join(p.Dir, f), nil, parser.SkipObjectResolution)
			if err != nil {
				t.Error(err)
				continue
			}
			for _, problem := range impureCode(fset, file) {
				t.Error(problem)
			}
		}
	}
}

// machinePath finds absolute paths that exist on one machine only, with what may stand before a path.
var machinePath = regexp.MustCompile("(?m)(?:^|[\\s\"'`=(\\[{,:]|file://)(/(?:work|root|farm|Users/[a-z]+|home/[a-z]+)/[^\\s\"'`]*)")

// portable are paths inside of images and manifests, where they are the same everywhere.
var portable = []string{"/home/nonroot/"}

func machinePaths(text []byte) (found []string) {
	for _, m := range machinePath.FindAllSubmatch(text, -1) {
		p := string(m[1])
		if !slices.ContainsFunc(portable, func(prefix string) bool { return strings.HasPrefix(p, prefix) }) {
			found = append(found, p)
		}
	}
	return found
}

// Reading every file also tells the go command what this test depends on, so that its cached result is not
// used after a change anywhere in the tree.
func TestNoMachinePaths(t *testing.T) {
	skip := map[string]bool{".git": true, ".tools": true, "bin": true, "demo-out": true, "node_modules": true}
	err := filepath.WalkDir(root, func(file string, entry fs.DirEntry, err error) error {
		if err != nil {
			if os.IsNotExist(err) { // removed while we walked: tests next door make files
				return nil
			}
			return err
		}
		if entry.IsDir() {
			if skip[entry.Name()] {
				return fs.SkipDir
			}
			return nil
		}
		// In a worktree .git is a file.
		if !entry.Type().IsRegular() || entry.Name() == ".git" || strings.HasSuffix(file, "go.sum") {
			return nil
		}
		if info, err := entry.Info(); err != nil || info.Size() > 1<<20 {
			return nil
		}
		text, err := os.ReadFile(file)
		if os.IsNotExist(err) {
			return nil
		}
		if err != nil {
			return err
		}
		if bytes.IndexByte(text, 0) >= 0 {
			return nil
		}
		for _, p := range machinePaths(text) {
			t.Errorf("%s names %s, a path of one machine", strings.TrimPrefix(file, root+"/"), p)
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// The rules themselves: what each of them refuses and lets pass.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		from, imports, want string // want: part of the problem, or "" for none
	}{
		{"job", "time", ""},
		{"job", "os", "is pure"},
		{"job", "net/http", "is pure"},
		{"job", "sync/atomic", "is pure"},
		{"job", "math/rand/v2", "is pure"},
		{"job", "math/bits", ""},
		{"job", "github.com/zeebo/xxh3", ""},
		{"job", "go.uber.org/zap", "is pure"},
		{"record", "sync", ""},
		{"record", module + "/codec", ""},
		{"codec", module + "/record", "sibling"},
		{"coordinator/checkpoint", module + "/job", ""},
		{"coordinator/checkpoint", module + "/coordinator/lifecycle", "sibling"},
		{"coordinator/checkpoint", module + "/blob", "is pure"},
		{"coordinator", module + "/coordinator/checkpoint", ""},
		{"coordinator", module + "/task", "sibling"},
		{"coordinator", module + "/rpc", "(level 4) imports"},
		{"coordinator", module + "/blob/mem", "only"},
		{"coordinator", "google.golang.org/grpc/codes", "only"},
		{"coordinator", "testing", "only"},
		{"blob/blobtest", module + "/blob", ""},
		{"blob/blobtest", "testing", ""},
		{"blob", module + "/blob/blobtest", "sibling"},
		{"blob", module + "/metastore", "sibling"},
		{"blob/s3", module + "/blob", ""},
		{"blob/s3", module + "/blob/local", "sibling"},
		{"blob/s3", "github.com/minio/minio-go/v7", ""},
		{"snapshot", "github.com/minio/minio-go/v7/pkg/credentials", "only"},
		{"snapshot", module + "/proto/cairn/v1", ""},
		{"scheduler", module + "/proto/cairn/v1", "only"},
		{"metastore/etcd", "go.etcd.io/etcd/client/v3", ""},
		{"serve", "go.etcd.io/etcd/server/v3/embed", "only"},
		{"serve", module + "/metastore/etcd", ""},
		{"serve", module + "/pipeline", "sibling"},
		{"operator/window", module + "/operator", ""},
		{"operator", module + "/operator/window", "sibling"},
		{"", module + "/stream", ""},
		{"", module + "/blob/s3", "only"},
		{"pipeline", module + "/connector/file", ""},
		{"cli", module + "/connector/file", "only"},
		{"examples/flights", module, ""},
		{"examples/flights", module + "/connector/datagen", ""},
		{"examples/flights", module + "/examples/orders", "sibling"},
		{"cmd/cairn", module, ""},
		{"bench/bars", module + "/bench/load", ""},
		{"serve", module + "/test/servers", "(level 6)|only"},
		{"test/servers", "testing", ""},
		{"plumbing", "fmt", "no row"},
		{"job", module + "/plumbing", "no row"},
	} {
		importPath := strings.TrimSuffix(module+"/"+c.from, "/")
		got := strings.Join(importProblems(pkg{ImportPath: importPath, Imports: []string{c.imports}}), "; ")
		if ok := got == ""; c.want == "" && !ok || c.want != "" && !regexp.MustCompile(quoteAlternatives(c.want)).MatchString(got) {
			t.Errorf("%s imports %s: got %q, want %q", importPath, c.imports, got, c.want)
		}
	}
}

func quoteAlternatives(want string) string {
	parts := strings.Split(want, "|")
	for i := range parts {
		parts[i] = regexp.QuoteMeta(parts[i])
	}
	return strings.Join(parts, "|")
}

func TestImpureCode(t *testing.T) {
	const src = `package p
import clock "time"
func f(t clock.Time) {
	go f(clock.Now())
	_ = clock.Since(t)
	_ = t.After(t)
	_ = clock.Duration(3)
}`
	fset := token.NewFileSet()
	file, err := parser.ParseFile(fset, "p.go", src, 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := impureCode(fset, file); len(got) != 3 {
		t.Errorf("got %q, want the goroutine, Now and Since", got)
	}
}

func TestMachinePathPattern(t *testing.T) {
	for text, want := range map[string]bool{
		"dir = \"" + "/ro" + "ot/x\"":            true,
		"see file://" + "/wo" + "rk/main/go.mod": true,
		"/wo" + "rk/main":                        true,
		"https://example.com/work/item":          false,
		"frame/work/x":                           false,
		"$DIR/root/x":                            false,
		"/workspace/x":                           false,
		"/home/nonroot/state":                    false,
	} {
		if got := len(machinePaths([]byte(text))) > 0; got != want {
			t.Errorf("%q: found %v, want %v", text, got, want)
		}
	}
}

// No package is listed twice, and doors and pure packages are in the table.
func TestTable(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range layers {
		if seen[r.path] {
			t.Errorf("%q has two rows", r.path)
		}
		seen[r.path] = true
	}
	for p := range pure {
		if !seen[p] {
			t.Errorf("pure package %q has no row", p)
		}
	}
	for _, d := range doors {
		for _, p := range d.from {
			above, wide := strings.CutSuffix(p, "...")
			known := func(r row) bool { return r.path == p || wide && strings.HasPrefix(r.path, above) }
			if !slices.ContainsFunc(layers, known) {
				t.Errorf("the door of %s names %q, which has no row", d.what, p)
			}
		}
	}
}
