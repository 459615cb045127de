package operator

import "time"

// batchTime is how long a batch of a reader may keep its task: barriers and commands wait for that long
// behind it.
const batchTime = 100 * time.Millisecond

// batchSize finds how many records a reader reads at a time. What comes behind a reader handles a batch
// whole, so a function that takes seconds for each record would hold up checkpoints for hours if it were
// given a thousand. It begins with one record, and doubles while a batch takes little time.
type batchSize struct {
	limit int
	began time.Time // When the last batch was read; zero when the task has rested since.
	rows  int       // Of that batch.
}

// next is the limit for a batch read at now: at most that many records.
func (s *batchSize) next(now time.Time, most int) int {
	switch took := now.Sub(s.began); {
	case s.began.IsZero() || s.rows == 0:
	case took > batchTime:
		s.limit = min(s.limit, int(time.Duration(s.rows)*batchTime/took))
	case took < batchTime/4 && s.limit < most:
		s.limit *= 2
	}
	s.limit = min(max(s.limit, 1), most)
	return s.limit
}

func (s *batchSize) read(now time.Time, rows int) { s.began, s.rows = now, rows }

// rest says that the time until the next batch is not that of the last one.
func (s *batchSize) rest() { s.began = time.Time{} }
