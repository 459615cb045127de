package stored

import (
	"context"
	"fmt"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
)

// Source gives the entries of one table of a checkpoint, over all subtasks. One goroutine at a time uses it.
type Source interface {
	// Each visits the entries of the key groups: group by group in ascending order, in no order within a group, each key
	// once. key and value are valid during the call. An error of visit ends it and is returned.
	Each(ctx context.Context, groups job.GroupRange, visit func(group int, key, value []byte) error) error
	// Get finds the value of a key of that group. It reads little more than what the group takes.
	Get(ctx context.Context, group int, key []byte) (value []byte, found bool, err error)
}

// An Opener makes the Sources of the keyed states of one operator, by the names of their tables. The handles are those of
// its kind that all subtasks have, one subtask behind the other, in the order in which the manifest has them. Each state is
// of K key groups in all.
type Opener func(ctx context.Context, r statebackend.Reader, k int, handles []job.StateHandle) (map[string]Source, error)

// Options say what a Snapshot can read.
type Options struct {
	// Openers are by the kind of handles: job.StateHandle.Kind. What backends on maps write (statebackend.KindKeyed) is known
	// anyway.
	Openers map[string]Opener
}

// layouts are how a table's keys and values are encoded.
type layouts struct {
	key, value *codec.Layout
}

// layoutsOf fails for codecs that are the user's own.
func layoutsOf(h job.StateHandle) (l layouts, err error) {
	if l.key, err = layoutOf(h.Key); err != nil {
		return l, fmt.Errorf("its keys cannot be read without the program: %w", err)
	}
	if l.value, err = layoutOf(h.Codec); err != nil {
		return l, fmt.Errorf("its values cannot be read without the program: %w", err)
	}
	return l, nil
}

func layoutOf(schema string) (*codec.Layout, error) {
	s, err := codec.ParseSchema(schema)
	if err != nil {
		return nil, err
	}
	return s.Layout()
}

// groupOf is the key group of an encoded key of a table.
func (l layouts) groupOf(key []byte, k int) (int, error) {
	n, err := l.key.UserLen(key)
	if err != nil {
		return 0, err
	}
	return job.GroupOf(codec.Hash(key[:n]), k), nil
}

func corrupt(format string, args ...any) error {
	return fmt.Errorf("%w: %s", statebackend.ErrCorrupt, fmt.Sprintf(format, args...))
}
