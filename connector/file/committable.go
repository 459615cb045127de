package file

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/cairnstream/cairn/job"
)

// committable is a part that is durable under its hidden name and waits for its checkpoint. FORMAT.md describes it.
type committable struct {
	V       int    `json:"v"`
	Kind    string `json:"kind"`
	Dir     string `json:"dir"`
	From    string `json:"from"` // The hidden name.
	To      string `json:"to"`   // The final name.
	Size    int64  `json:"size"`
	Hash    string `json:"xxh3"` // Of the content, 16 hexadecimal digits.
	Rows    int64  `json:"rows"`
	attempt job.Attempt
}

// state is what a writer leaves in a checkpoint beside committables: which parts are known to it.
type state struct {
	V     int     `json:"v"`
	Sink  string  `json:"sink"`
	Known []bound `json:"known"` // The job's ancestors first, the job itself last.
}

// bound says that the parts of a job up to a checkpoint are the output up to this state.
type bound struct {
	Job        job.ID           `json:"job"`
	Checkpoint job.CheckpointID `json:"checkpoint"`
}

const (
	sinkVersion     = 1
	committableKind = "file-part"
)

func encode(v any) ([]byte, error) {
	raw, err := json.Marshal(v)
	if err != nil {
		return nil, job.Errorf(job.ClassInternal, "%w", err)
	}
	return raw, nil
}

func decodeStrictly(raw []byte, v any) error {
	d := json.NewDecoder(bytes.NewReader(raw))
	d.DisallowUnknownFields()
	return d.Decode(v)
}

func decodeCommittable(raw []byte) (c committable, err error) {
	if err = decodeStrictly(raw, &c); err == nil {
		err = c.validate()
	}
	if err != nil {
		return c, job.Errorf(job.ClassRefused, "committable %s: %w", quoteBytes(raw), err)
	}
	return c, nil
}

func (c *committable) validate() error {
	from, ok := parseHidden(c.From)
	_, ok2 := parseFinal(c.To)
	switch {
	case c.V != sinkVersion || c.Kind != committableKind:
		return fmt.Errorf("kind %q, version %d is unknown here, where it is %q, version %d", c.Kind, c.V, committableKind, sinkVersion)
	case !ok || !ok2 || strings.ContainsAny(c.From+c.To, `/\`):
		return errors.New("names that are not those of a part")
	case !filepath.IsAbs(c.Dir) || c.Size < 0 || len(c.Hash) != 16:
		return errors.New("values out of range")
	}
	c.attempt = from.run.Attempt
	return nil
}

func decodeState(raw []byte) (s state, err error) {
	if err = decodeStrictly(raw, &s); err == nil {
		switch {
		case s.V != sinkVersion:
			err = fmt.Errorf("version %d is unknown here, where it is %d", s.V, sinkVersion)
		case len(s.Known) == 0:
			err = errors.New("it names no job")
		}
	}
	if err != nil {
		return s, job.Errorf(job.ClassRefused, "state of a file sink %s: %w", quoteBytes(raw), err)
	}
	return s, nil
}

// mergeStates joins the states of all subtasks: they agree on the jobs, and the newest checkpoint counts, since a
// subtask that had ended has an older one.
func mergeStates(list [][]byte) (state, error) {
	var merged state
	for _, raw := range list {
		if raw == nil {
			continue
		}
		s, err := decodeState(raw)
		if err != nil {
			return merged, err
		}
		if merged.V == 0 {
			merged = s
			continue
		}
		if s.Known[0].Job != merged.Known[0].Job {
			return merged, job.Errorf(job.ClassInternal, "states of one sink begin with different jobs, %s and %s", merged.Known[0].Job, s.Known[0].Job)
		}
		for _, b := range s.Known {
			merged.Known = raise(merged.Known, b)
		}
	}
	return merged, nil
}

// raise sets the bound of a job, if it is higher than the one that is there.
func raise(list []bound, b bound) []bound {
	for i := range list {
		if list[i].Job == b.Job {
			list[i].Checkpoint = max(list[i].Checkpoint, b.Checkpoint)
			return list
		}
	}
	return append(list, b)
}

// knows tells whether a visible part belongs to the output up to this state.
func (s *state) knows(p part) bool {
	for _, b := range s.Known {
		if b.Job == p.run.Job {
			return p.checkpoint <= b.Checkpoint
		}
	}
	return false
}

func (s *state) has(id job.ID) bool {
	for _, b := range s.Known {
		if b.Job == id {
			return true
		}
	}
	return false
}
