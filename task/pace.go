package task

import "time"

// queueTime is for how long the batches that wait at a gate may keep the subtask, all ports together: a barrier comes
// behind them. With a function that takes seconds for a record, full batches would hold it up for hours.
const queueTime = 400 * time.Millisecond

// queueDepth is how many batches of a port wait, about.
const queueDepth = 4

// leastTime is how much work a batch is at least, however many ports there are: most of them have nothing to bring.
const leastTime = time.Millisecond

// maxPace is more rows than any batch has.
const maxPace = 1 << 14

// pace finds how many rows a batch should have. It begins with one, since nothing is known of what a record takes, and
// doubles at most from batch to batch.
type pace struct {
	ports   int
	rows    int
	perRow  float64 // Nanoseconds, of the last few batches.
	started bool
}

func newPace(ports int) pace { return pace{ports: max(ports, 1), rows: 1} }

// took notes that a batch of so many rows took d; it tells whether rows is another number now.
func (p *pace) took(rows int, d time.Duration) bool {
	sample := float64(d) / float64(rows)
	if !p.started {
		p.started, p.perRow = true, sample
	}
	p.perRow += (sample - p.perRow) / 4
	share := max(queueTime/time.Duration(queueDepth*p.ports), leastTime)
	fit := float64(share) / max(p.perRow, 1)
	now := int(min(fit, float64(2*p.rows), maxPace))
	now = max(now, 1)
	if now == p.rows || now < p.rows && 8*now > 7*p.rows && now > 8 {
		return false
	}
	p.rows = now
	return true
}
