package operator

import (
	"context"
	"testing"

	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/watermark"
)

// marked is a script in which a negative time is a watermark of the source's own.
type marked struct{ script }

func (s *marked) Open(ctx context.Context, c SourceContext, sp Split) (SplitReader[int64], error) {
	r, err := s.script.Open(ctx, c, sp)
	return &markedReader{r.(*scriptReader)}, err
}

type markedReader struct{ *scriptReader }

func (r *markedReader) Read(b *record.Batch[int64], limit int) (ReadStatus, error) {
	rows := r.s.splits[r.i]
	for range min(limit, 4) {
		if r.at == len(rows) {
			return ReadEnd, nil
		}
		if v := rows[r.at]; v < 0 {
			b.Mark(record.Watermark, -v)
		} else {
			b.Append(v, v)
		}
		r.at++
	}
	return ReadMore, nil
}

// Watermarks that a source puts into its batches are those of the split; the reader's stand in their places.
func TestReaderMarksOfSource(t *testing.T) {
	start := func(st watermark.Strategy, splits ...[]int64) *readerTest {
		src := &marked{script{splits: splits}}
		r := &readerTest{t: t, src: &src.script, out: &recorder[int64]{}}
		r.s = surround(r.out)
		r.s.c.Watermark = record.MinTime
		r.r = Reader[int64](src, nil, st).(*reader[int64])
		if err := r.r.Open(r.s.c); err != nil {
			t.Fatal(err)
		}
		r.r.size.limit = r.r.rows // Batches are as the script has them.
		if err := r.r.Start(); err != nil {
			t.Fatal(err)
		}
		for i := range splits {
			r.split(i)
		}
		r.noMore()
		return r
	}
	// One split: in the middle of a batch, and not back.
	r := start(watermark.None(), []int64{5, -5, 7, -6, -4, 8})
	r.drain()
	r.got("[5@5 W5 7@7 W6 8@8]")
	// Of two splits the lower one counts, and is read next.
	r = start(watermark.None(), []int64{5, -5, 7, -7, 9, -9}, []int64{4, -3, 6, -6, 8, -8})
	r.poll()
	r.got("[5@5 7@7]")
	r.poll()
	r.got("[4@4 W3 6@6 W6]")
	r.poll()
	r.got("[8@8 W7]")
	// The higher one of the source's and the strategy's.
	r = start(watermark.Monotonous(), []int64{5, -7, 8, 9, -7, 10})
	r.poll()
	r.got("[5@5 W7 8@8 9@9 W8]")
}
