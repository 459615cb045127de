package operator

import "github.com/cairnstream/cairn/record"

// firingRun is how many timers fire before the loop looks for mail: about a millisecond's work.
const firingRun = 512

// segments steps through a batch from mark to mark for an operator with timers. At a watermark the
// operator fires what is due in bounded runs; between them the loop sees to its mail. The rest of
// the batch waits meanwhile.
type segments struct {
	// process handles the selected rows with index from..to-1 of the batch's selection.
	process func(b record.Any, from, to int) error
	// fire fires up to limit timers due at w; it tells whether more are due.
	fire func(w int64, limit int) (more bool, err error)
	// pass hands a mark on, behind what was emitted so far.
	pass func(record.Mark)
	// done hands on what was emitted; called whenever control goes back to the loop.
	done func() error

	b      record.Any // Being processed, or nil.
	from   int        // Next row, as an index into the selection.
	mark   int        // Next mark.
	firing bool       // Timers are due at watermark.
	now    int64      // Current watermark.
	silent bool       // The watermark being fired is not passed on: end of data.
}

func (s *segments) push(b record.Any) error {
	s.b, s.from, s.mark = b, 0, 0
	return s.run()
}

// pending tells whether resume has work.
func (s *segments) pending() bool { return s.firing || s.b != nil }

func (s *segments) resume() error { return s.run() }

// interruptible tells whether only timers are left to fire: no row waits behind them.
func (s *segments) interruptible() bool {
	return s.b == nil || s.from == s.b.Len() && s.mark == len(s.b.MarkList())
}

// advance starts firing at w and does not pass w on: the end of the data does that.
func (s *segments) advance(w int64) error {
	s.now, s.firing, s.silent = w, true, true
	return s.run()
}

func (s *segments) run() error {
	if s.firing {
		more, err := s.fire(s.now, firingRun)
		if err != nil {
			return err
		}
		if more {
			return s.done()
		}
		s.finishFiring()
	}
	for s.b != nil {
		to := s.b.Len()
		marks := s.b.MarkList()
		last := s.mark == len(marks)
		if !last {
			to = s.b.SelIndex(marks[s.mark].Pos)
		}
		if s.from < to {
			if err := s.process(s.b, s.from, to); err != nil {
				return err
			}
			s.from = to
		}
		if last {
			s.b.Release()
			s.b = nil
			break
		}
		m := marks[s.mark]
		s.mark++
		if m.Kind != record.Watermark {
			s.pass(m)
			continue
		}
		if m.Time <= s.now {
			continue
		}
		s.now, s.firing = m.Time, true
		more, err := s.fire(s.now, firingRun)
		if err != nil {
			return err
		}
		if more {
			return s.done()
		}
		s.finishFiring()
	}
	return s.done()
}

func (s *segments) finishFiring() {
	s.firing = false
	if !s.silent {
		s.pass(record.Mark{Kind: record.Watermark, Time: s.now})
	}
	s.silent = false
}

// close gives up the batch being processed.
func (s *segments) close() {
	if s.b != nil {
		s.b.Release()
		s.b = nil
	}
}
