package collect

import (
	"context"
	"slices"
	"testing"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/record"
)

var (
	_ operator.Sink[int] = (*Sink[int])(nil)
	_ operator.Sink[int] = (*Discard[int])(nil)
)

// What is prepared is visible after the commit, once, however often it is committed, and what a dead attempt had
// prepared stays invisible.
func TestSink(t *testing.T) {
	ctx := context.Background()
	s := New[int]()
	open := func(attempt job.Attempt) (operator.Writer[int], operator.Committer) {
		c := operator.SinkContext{Run: job.Run{Job: "j", Attempt: attempt}, Name: "out", Parallelism: 1}
		w, err := s.Writer(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		m, err := s.Committer(ctx, c)
		if err != nil {
			t.Fatal(err)
		}
		return w, m
	}
	write := func(w operator.Writer[int], sel []int32, v ...int) {
		if err := w.Write(&record.Batch[int]{Rows: v, Sel: sel}); err != nil {
			t.Fatal(err)
		}
	}
	prepare := func(w operator.Writer[int], id job.CheckpointID) [][]byte {
		list, err := w.Prepare(id)
		if err != nil {
			t.Fatal(err)
		}
		return list
	}

	w, m := open(1)
	write(w, nil, 1, 2)
	write(w, []int32{0, 2}, 3, 0, 4)
	first := prepare(w, 1)
	if len(prepare(w, 2)) != 0 {
		t.Error("a committable without rows")
	}
	if s.Len() != 0 || s.Prepared() != 4 {
		t.Errorf("%d committed, %d prepared", s.Len(), s.Prepared())
	}
	for range 2 {
		if err := m.Commit(ctx, first); err != nil {
			t.Fatal(err)
		}
	}
	write(w, nil, 5)
	prepare(w, 3) // Lost with the attempt.
	w.Close()

	w, m = open(2)
	if err := m.Commit(ctx, first); err != nil {
		t.Fatal(err)
	}
	write(w, nil, 5, 6)
	if err := m.Commit(ctx, prepare(w, 4)); err != nil {
		t.Fatal(err)
	}
	if got := s.Rows(); !slices.Equal(got, []int{1, 2, 3, 4, 5, 6}) {
		t.Errorf("rows are %v", got)
	}
	if s.Commits() != 2 {
		t.Errorf("%d commits", s.Commits())
	}
	for _, bad := range []string{"", "x", `{"v":2,"rows":"a"}`, `{"v":1,"rows":"a"}`} {
		if err := m.Commit(ctx, [][]byte{[]byte(bad)}); job.FailureOf("", "", err).Class != job.ClassRefused {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestDiscard(t *testing.T) {
	sum := 0
	d := &Discard[int]{Each: func(v *int) { sum += *v }}
	w, err := d.Writer(context.Background(), operator.SinkContext{})
	if err != nil {
		t.Fatal(err)
	}
	w.Write(&record.Batch[int]{Rows: []int{1, 2, 3}})
	w.Write(&record.Batch[int]{Rows: []int{4, 5, 6}, Sel: []int32{1}})
	if d.Count() != 4 || sum != 11 {
		t.Errorf("%d records, sum %d", d.Count(), sum)
	}
	if list, err := w.Prepare(1); list != nil || err != nil {
		t.Error(list, err)
	}
}
