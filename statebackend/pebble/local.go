package pebble

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// local keeps the files of the newest snapshots on this machine, for a restore that need not fetch them. They are copies: found by
// hash and verified, dropped when damaged, and never what a checkpoint relies on. Several processes may use the folder at a
// time: each subtask has a folder of its own to write to, and all are read.
type local struct {
	dir string // Of this subtask; empty for none.
	all string // The folder of the operator: one for each subtask, with one for each snapshot.
}

func newLocal(p statebackend.Params) *local {
	if p.Local == "" {
		return &local{}
	}
	op := fmt.Sprintf("%016x", xxh3.HashString(p.Operator))
	base := filepath.Join(p.Local, string(p.Job), op)
	return &local{dir: filepath.Join(base, strconv.Itoa(p.Task.Subtask)), all: base}
}

// indexName is the file that says which hash the files of a snapshot have.
const indexName = "index.json"

// keep takes over the folder of a snapshot's files. Those of snapshots before base go.
func (l *local) keep(id, base job.CheckpointID, link string, s *stored) {
	if l.dir == "" {
		return
	}
	hashes := map[string]string{}
	for name, h := range s.files {
		if isTable(name) {
			hashes[h.Hash] = name
		}
	}
	text, err := json.Marshal(hashes)
	if err != nil {
		return
	}
	// Whatever fails here only makes a later restore slower.
	to := filepath.Join(l.dir, strconv.FormatUint(uint64(id), 10))
	_ = os.RemoveAll(to)
	if os.MkdirAll(l.dir, 0o755) != nil || os.Rename(link, to) != nil {
		return
	}
	_ = os.WriteFile(filepath.Join(to, indexName), text, 0o644)
	entries, _ := os.ReadDir(l.dir)
	for _, e := range entries {
		if n, err := strconv.ParseUint(e.Name(), 10, 64); err == nil && n < uint64(base) {
			_ = os.RemoveAll(filepath.Join(l.dir, e.Name()))
		}
	}
}

// index finds the copies that there are, by hash.
func (l *local) index() map[string]string {
	out := map[string]string{}
	if l.dir == "" {
		return out
	}
	subtasks, _ := os.ReadDir(l.all)
	for _, s := range subtasks {
		snapshots, _ := os.ReadDir(filepath.Join(l.all, s.Name()))
		for _, c := range snapshots {
			addIndex(out, filepath.Join(l.all, s.Name(), c.Name()))
		}
	}
	return out
}

// addIndex adds the copies of one snapshot.
func addIndex(to map[string]string, dir string) {
	data, err := os.ReadFile(filepath.Join(dir, indexName))
	if err != nil {
		return
	}
	var hashes map[string]string
	if json.Unmarshal(data, &hashes) != nil {
		return
	}
	for hash, name := range hashes {
		if isTable(name) && name == filepath.Base(name) {
			to[hash] = filepath.Join(dir, name)
		}
	}
}
