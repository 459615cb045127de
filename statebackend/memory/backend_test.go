package memory_test

import (
	"context"
	"errors"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/statebackend"
	"github.com/cairnstream/cairn/statebackend/memory"
	"github.com/cairnstream/cairn/statebackend/statetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func TestBackend(t *testing.T) { statetest.Run(t, memory.Factory{}) }

func TestModel(t *testing.T) { statetest.Model(t, memory.Factory{}) }

func hash(k *int64) (uint64, uint64) {
	h := uint64(*k) * 0x9E3779B97F4A7C15
	return h, h
}

func TestLimit(t *testing.T) {
	b, err := memory.New(memory.Config{Operator: "sum", Groups: job.GroupsOf(0, 10, 1), K: 10, Limit: 1000})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	v, err := statebackend.OpenValue(b, statebackend.ValueDesc[int64, int64]{Name: "counts", Key: codec.Int64(), Value: codec.Int64(), Hash: hash})
	if err != nil {
		t.Fatal(err)
	}
	write := func(id job.CheckpointID) ([]job.StateHandle, error) {
		snap, err := b.Freeze(id)
		if err != nil {
			t.Fatal(err)
		}
		defer snap.Release()
		return snap.Write(context.Background(), nil)
	}
	add := func(from, to int64) {
		for k := from; k < to; k++ {
			g, s := hash(&k)
			x, _ := v.Upsert(g, s, &k)
			*x = k * 0x5DEECE66D % 1_000_003
		}
	}
	add(0, 10)
	handles, err := write(1)
	if err != nil || len(handles) != 1 || len(handles[0].Inline) == 0 || handles[0].Object != "" {
		t.Fatalf("small state: %v, %v", handles, err)
	}
	add(10, 1000)
	_, err = write(2)
	var le *statebackend.LimitError
	if !errors.As(err, &le) || le.Size <= 1000 || le.Limit != 1000 {
		t.Fatalf("large state: %v", err)
	}
	for _, want := range []string{`"sum"`, `"counts"`, "1000", "state.backend=fs", "c2"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("error %v does not say %q", err, want)
		}
	}
	// A savepoint is not kept inline.
	snap, err := b.Freeze(3)
	if err != nil {
		t.Fatal(err)
	}
	defer snap.Release()
	handles, err = snap.WriteCanonical(context.Background(), statetest.NewObjects())
	if err != nil || len(handles) != 1 || handles[0].Object == "" || handles[0].Length <= 1000 {
		t.Fatalf("savepoint of a large state: %v, %v", handles, err)
	}
}
