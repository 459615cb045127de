package exchange

import "time"

// The bounds of waiting for a port that is behind.
const (
	LagWait   = lagWait
	LagShare  = lagShare
	LagCredit = lagCredit
)

// SetClock makes now the clock of g.
func (g *Gate) SetClock(now func() time.Time) { g.mu.lag.now = now }
