package pebble_test

import (
	"context"
	"strings"
	"testing"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/pebble"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

// grumpy panics with a value of 13.
type grumpy struct{ codec.Codec[int64] }

func (g grumpy) Append(dst []byte, v *int64) ([]byte, error) {
	if *v == 13 {
		panic("it is 13")
	}
	return g.Codec.Append(dst, v)
}

// A codec that panics fails the snapshot and not the process, and the next one when its value is gone is whole.
func TestCodecPanics(t *testing.T) {
	b, err := (&pebble.Factory{}).New(context.Background(), statebackend.Params{
		Operator: "sum", K: 16, Groups: job.GroupsOf(0, 16, 1), Dir: t.TempDir(),
	})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	c := counter{b, opened(t, b, statebackend.ValueDesc[int64, int64]{
		Name: "counts", Key: codec.Int64(), Value: codec.Codec[int64](grumpy{codec.Int64()}), Hash: func(k *int64) (uint64, uint64) { return at(*k) },
	})}
	c.set(1, 13)
	c.set(2, 2)
	o := statetest.NewObjects()
	if _, err = c.snapshot(1, o); err == nil || !strings.Contains(err.Error(), `state "counts": encode an entry: `) || !strings.Contains(err.Error(), "it is 13") {
		t.Fatalf("the snapshot's error is %v", err)
	}
	c.set(1, 14)
	handles, err := c.snapshot(2, o)
	if err != nil {
		t.Fatal(err)
	}
	if got := restored(t, o, handles); len(got) != 2 || got[1] != 14 || got[2] != 2 {
		t.Errorf("restored: %v", got)
	}
}
