package operator

import (
	"testing"
	"time"

	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// many is a split of any number of records.
type many struct {
	batches []int
}

func (m *many) Read(b *record.Batch[int64], limit int) (ReadStatus, error) {
	for range limit {
		b.Append(1, 1)
	}
	m.batches = append(m.batches, limit)
	return ReadMore, nil
}
func (m *many) Position() Split { return Split{} }
func (m *many) Close() error    { return nil }

// A batch is as many records as take a moment: one where each takes ten seconds, all that a batch may
// hold where they take none, and what follows is found again when that changes.
func TestBatchSize(t *testing.T) {
	each := time.Duration(0) // What a record takes.
	out := &slow{}
	s := surround(out)
	src := &many{}
	r := Reader(newFeed(0), timeOf, watermark.Monotonous()).(*reader[int64])
	if err := r.Open(s.c); err != nil {
		t.Fatal(err)
	}
	r.started, r.noMore = true, true
	r.active = []*activeSplit[int64]{{r: src, gen: r.Strategy.NewGenerator()}}
	out.takes = func() { s.now = s.now.Add(each * time.Duration(src.batches[len(src.batches)-1])) }
	for _, x := range []struct {
		each        time.Duration
		least, most int
	}{
		{0, r.rows, r.rows}, {10 * time.Second, 1, 1}, {time.Millisecond, 16, 100}, {10 * time.Microsecond, 1024, r.rows},
		{time.Second, 1, 1}, {0, r.rows, r.rows},
	} {
		each = x.each
		for range 20 {
			if _, err := r.Poll(); err != nil {
				t.Fatal(err)
			}
		}
		if n := src.batches[len(src.batches)-1]; n < min(x.least, r.rows) || n > x.most {
			t.Errorf("batches of %d where each record takes %v, want %d to %d", n, each, x.least, x.most)
		}
	}
	// The first record is not part of a large batch.
	if n := src.batches[0]; n != 1 {
		t.Errorf("the first batch has %d records", n)
	}
}
