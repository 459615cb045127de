package task

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/cairnstream/cairn/job"
)

// An upload waits until it is known where its savepoint goes, and no longer than until that has ended.
func TestSavepointTargets(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var s savepoints
		type answer struct {
			target job.SavepointTarget
			err    error
		}
		ask := func(ctx context.Context, id job.CheckpointID) chan answer {
			got := make(chan answer, 1)
			go func() {
				to, err := s.target(ctx, id)
				got <- answer{to, err}
			}()
			synctest.Wait()
			return got
		}
		early := ask(t.Context(), 5)
		if len(early) > 0 {
			t.Fatal("answered before it is known")
		}
		s.announce(job.Trigger{Checkpoint: 4}) // Without a savepoint.
		s.announce(job.Trigger{Checkpoint: 5, Savepoint: &job.SavepointTarget{Folder: "sp"}})
		if a := <-early; a.err != nil || a.target.Folder != "sp" {
			t.Errorf("%+v", a)
		}
		if a := <-ask(t.Context(), 5); a.err != nil || a.target.Folder != "sp" {
			t.Errorf("%+v", a)
		}
		late := ask(t.Context(), 6)
		s.forget(6)
		if a := <-late; a.err == nil {
			t.Errorf("one that has ended: %+v", a)
		}
		if a := <-ask(t.Context(), 5); a.err == nil {
			t.Errorf("one before it: %+v", a)
		}
		ctx, cancel := context.WithCancel(t.Context())
		given := ask(ctx, 7)
		cancel()
		if a := <-given; a.err == nil {
			t.Errorf("given up: %+v", a)
		}
	})
}
