package nexmark

import (
	"embed"
	"fmt"
	"strconv"
	"strings"
)

// The answers of the reference, a slow and readable program in another language. Columns: answer, events, rows, sha256.
//
//go:embed expected/*.tsv
var expectedFiles embed.FS

// tables are the files and the parameters of their runs; all others have their defaults.
var tables = []struct {
	file   string
	seed   uint64
	jitter int64
}{
	{"seed1-200k.tsv", 1, 0},
	{"seed1-2m.tsv", 1, 0},
	{"seed1-jitter700-200k.tsv", 1, 700},
}

// Expected is the reference's answer; ok tells whether there is one for these parameters.
func Expected(query string, events int64, seed uint64, jitter int64) (a Answer, ok bool, err error) {
	for _, t := range tables {
		if t.seed != seed || t.jitter != jitter {
			continue
		}
		data, err := expectedFiles.ReadFile("expected/" + t.file)
		if err != nil {
			return a, false, err
		}
		for i, line := range strings.Split(strings.TrimSpace(string(data)), "\n") {
			f := strings.Split(line, "\t")
			if len(f) != 4 {
				return a, false, fmt.Errorf("%s:%d: %d fields", t.file, i+1, len(f))
			}
			if f[0] == query && f[1] == strconv.FormatInt(events, 10) {
				rows, err := strconv.ParseInt(f[2], 10, 64)
				if err != nil {
					return a, false, fmt.Errorf("%s:%d: %w", t.file, i+1, err)
				}
				return Answer{rows, f[3]}, true, nil
			}
		}
	}
	return a, false, nil
}

// Known calls f with the parameters of each answer that the reference has of a query.
func Known(query string, f func(events int64, seed uint64, jitter int64)) error {
	for _, t := range tables {
		data, err := expectedFiles.ReadFile("expected/" + t.file)
		if err != nil {
			return err
		}
		for line := range strings.Lines(string(data)) {
			if name, rest, _ := strings.Cut(line, "\t"); name == query {
				events, _, _ := strings.Cut(rest, "\t")
				n, err := strconv.ParseInt(events, 10, 64)
				if err != nil {
					return fmt.Errorf("%s: %w", t.file, err)
				}
				f(n, t.seed, t.jitter)
			}
		}
	}
	return nil
}
