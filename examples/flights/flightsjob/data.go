package flightsjob

import (
	"bufio"
	"bytes"
	"compress/gzip"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
)

// Input is 20,000 flights inside the United States in the first quarter of 2001, one JSON object a line in the order
// of departure, compressed with gzip.
//
//go:embed data/flights-20k.ndjson.gz
var Input []byte

// Expected is the job's answer for Input, as CSV.
//
//go:embed data/flights-20k.expected-daily.csv
var Expected []byte

// Lines is the number of records of Input.
const Lines = 20_000

// Write writes Input into dir and returns the file's path.
func Write(dir string) (string, error) {
	path := filepath.Join(dir, "flights-20k.ndjson.gz")
	if err := os.WriteFile(path, Input, 0o666); err != nil {
		return "", fmt.Errorf("write the input: %w", err)
	}
	return path, nil
}

// Deal deals Input out line by line, in turn, to n plain files flights-1.ndjson, flights-2.ndjson, ... in dir, and
// returns their paths.
func Deal(dir string, n int) ([]string, error) {
	if n < 1 {
		return nil, fmt.Errorf("deal flights to %d files", n)
	}
	in, err := gzip.NewReader(bytes.NewReader(Input))
	if err != nil {
		return nil, fmt.Errorf("embedded flights: %w", err)
	}
	hands := make([]bytes.Buffer, n)
	lines := bufio.NewScanner(in)
	for i := 0; lines.Scan(); i++ {
		h := &hands[i%n]
		h.Write(lines.Bytes())
		h.WriteByte('\n')
	}
	if err := lines.Err(); err != nil {
		return nil, fmt.Errorf("embedded flights: %w", err)
	}
	paths := make([]string, n)
	for i := range hands {
		paths[i] = filepath.Join(dir, fmt.Sprintf("flights-%d.ndjson", i+1))
		if err := os.WriteFile(paths[i], hands[i].Bytes(), 0o666); err != nil {
			return nil, fmt.Errorf("deal flights: %w", err)
		}
	}
	return paths, nil
}
