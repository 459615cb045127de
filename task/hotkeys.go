package task

import (
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
)

// askHotKeys has the task tell its hot keys for the next report. changed says that it has processed something since it was
// asked the last time; one that has not goes on being asked until what it knows has faded.
func (s *subtask) askHotKeys(changed bool) {
	last := s.hot.Load()
	if !changed && (last == nil || len(*last) == 0) {
		return
	}
	if s.telling.CompareAndSwap(false, true) {
		s.mail.post(s.tellHotKeys)
	}
}

// tellHotKeys is run by the task's goroutine, which alone may look at the operators.
func (s *subtask) tellHotKeys() error {
	defer s.telling.Store(false)
	out := []job.HotKeys{}
	for _, l := range s.chain {
		op, ok := l.op.(operator.Skewed)
		if !ok {
			continue
		}
		h := op.HotKeys()
		if h.Operator = l.name; h.Total > 0 {
			out = append(out, h)
		}
	}
	if last := s.hot.Load(); len(out) > 0 || last != nil && len(*last) > 0 {
		s.hot.Store(&out)
	}
	return nil
}
