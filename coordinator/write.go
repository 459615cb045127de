package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/metastore"
)

// putSubmission records a submission: a new job, or one that goes on. old is the submission that it
// takes the place of, if the job goes on; oldRequests are request ids that are not needed any more.
func (r records) putSubmission(ctx context.Context, id job.ID, s submission, spec job.Spec, goesOn bool, forget string) (bool, error) {
	pieces, err := encodeSpec(spec)
	if err != nil {
		return false, err
	}
	s.Epoch, s.Pieces = r.epoch(), len(pieces)
	record := r.job(id, "submission/"+number(s.N)+"/record")
	txn := metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent(record)},
		Puts: []metastore.Put{
			{Key: record, Value: mustJSON(s)},
			{Key: r.name(s.Name), Value: []byte(id)},
		},
	}
	for i, p := range pieces {
		txn.Puts = append(txn.Puts, metastore.Put{Key: r.job(id, "submission/"+number(s.N)+"/spec/"+number(i)), Value: p})
	}
	if s.Request != "" {
		txn.Puts = append(txn.Puts, metastore.Put{Key: r.request(s.Request), Value: []byte(id)})
	}
	if forget != "" && forget != s.Request {
		txn.Deletes = append(txn.Deletes, r.request(forget))
	}
	if f := s.From; f != nil && f.Pinned {
		txn.Puts = append(txn.Puts, metastore.Put{Key: r.pin(f, id), Value: mustJSON(s.Epoch)})
	}
	if goesOn {
		txn.DeletePrefixes = append(txn.DeletePrefixes, r.job(id, "submission/"+number(s.N-1)+"/"))
	}
	return r.settle(ctx, txn)
}

// putAttempt makes an attempt durable; former are those that it takes the place of.
func (r records) putAttempt(ctx context.Context, id job.ID, a attemptRecord, former []job.Attempt) error {
	a.Epoch = r.epoch()
	key := r.job(id, "attempt/"+number(a.Attempt))
	txn := metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent(key)},
		Puts:       []metastore.Put{{Key: key, Value: mustJSON(a)}},
	}
	for _, n := range former {
		txn.Deletes = append(txn.Deletes, r.job(id, "attempt/"+number(n)))
	}
	ok, err := r.settle(ctx, txn)
	if err == nil && !ok {
		err = fmt.Errorf("attempt %d is on record already", a.Attempt)
	}
	return err
}

// reserve makes the reservation of all ids below limit durable; former is the one before it.
func (r records) reserve(ctx context.Context, id job.ID, limit, former job.CheckpointID) error {
	key := r.job(id, "ids/"+number(limit))
	txn := metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent(key)},
		Puts:       []metastore.Put{{Key: key, Value: mustJSON(r.epoch())}},
	}
	if former > 1 {
		txn.Deletes = append(txn.Deletes, r.job(id, "ids/"+number(former)))
	}
	// That the key is there already is as good: only this leader writes, so this reservation is its own.
	_, err := r.settle(ctx, txn)
	return err
}

// publish is the commit point of a checkpoint, and of the savepoint that is taken with it. It is called
// again, with the same pointer, as long as the outcome is unknown.
func (r records) publish(ctx context.Context, id job.ID, n job.CheckpointID, p pointer, saved *savepointRecord) (bool, error) {
	key := r.job(id, "checkpoint/"+number(n))
	txn := metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent(key)},
		Puts:       []metastore.Put{{Key: key, Value: mustJSON(p)}},
	}
	if saved != nil {
		txn.Puts = append(txn.Puts, metastore.Put{Key: r.taken(saved.ID), Value: mustJSON(saved)})
		txn.Deletes = append(txn.Deletes, r.saving(saved.ID))
	}
	return r.settle(ctx, txn)
}

// putSaving notes that a savepoint is on its way.
func (r records) putSaving(ctx context.Context, s savepointRecord) error {
	return r.commit(ctx, metastore.Txn{Puts: []metastore.Put{{Key: r.saving(s.ID), Value: mustJSON(s)}}})
}

// dropSaving removes that note.
func (r records) dropSaving(ctx context.Context, id string) error {
	return r.commit(ctx, metastore.Txn{Deletes: []string{r.saving(id)}})
}

// beginDrop turns the record of a savepoint into the note that its deletion has begun.
func (r records) beginDrop(ctx context.Context, s savepointRecord) error {
	return r.commit(ctx, metastore.Txn{
		Puts:    []metastore.Put{{Key: r.saving(s.ID), Value: mustJSON(s)}},
		Deletes: []string{r.taken(s.ID)},
	})
}

// discard turns the pointer to a checkpoint into the note that its deletion has begun.
func (r records) discard(ctx context.Context, id job.ID, n job.CheckpointID, p pointer) error {
	return r.commit(ctx, metastore.Txn{
		Puts:    []metastore.Put{{Key: r.job(id, "discard/"+number(n)), Value: mustJSON(p)}},
		Deletes: []string{r.job(id, "checkpoint/"+number(n))},
	})
}

// forget removes that note.
func (r records) forget(ctx context.Context, id job.ID, n job.CheckpointID) error {
	return r.commit(ctx, metastore.Txn{Deletes: []string{r.job(id, "discard/"+number(n))}})
}

// unpin lets go of the checkpoint that a job has begun with.
func (r records) unpin(ctx context.Context, f *source, by job.ID) error {
	return r.commit(ctx, metastore.Txn{Deletes: []string{r.pin(f, by)}})
}

func (r records) pin(f *source, by job.ID) string {
	return r.job(f.Job, "pin/"+number(f.Checkpoint)+"/"+string(by))
}

// putClaimed records that the snapshot that a submission claimed is deleted.
func (r records) putClaimed(ctx context.Context, id job.ID, submission int) error {
	key := r.job(id, "submission/"+number(submission)+"/claimed")
	return r.commit(ctx, metastore.Txn{Puts: []metastore.Put{{Key: key, Value: mustJSON(r.epoch())}}})
}

// putCancel records that the end was asked for.
func (r records) putCancel(ctx context.Context, id job.ID, submission int) error {
	key := r.job(id, "submission/"+number(submission)+"/cancel")
	return r.commit(ctx, metastore.Txn{Puts: []metastore.Put{{Key: key, Value: mustJSON(r.epoch())}}})
}

// putTerminal records the end.
func (r records) putTerminal(ctx context.Context, id job.ID, submission int, t terminal) error {
	t.Epoch = r.epoch()
	key := r.job(id, "submission/"+number(submission)+"/terminal")
	ok, err := r.settle(ctx, metastore.Txn{
		Conditions: []metastore.Condition{metastore.Absent(key)},
		Puts:       []metastore.Put{{Key: key, Value: mustJSON(t)}},
	})
	if err == nil && !ok {
		err = errors.New("the end of the job is on record already")
	}
	return err
}
