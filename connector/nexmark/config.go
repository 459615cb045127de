package nexmark

import (
	"errors"
	"fmt"
	"math"

	"github.com/cairnstream/cairn/connector/pace"
)

// Config are the parameters of a run. Zero means the default, but for Seed.
type Config struct {
	// Seed makes the events other ones. Every number is good, 0 too.
	Seed uint64
	// Events is their number; 0 is as many as there are, 2^53.
	Events int64
	// Rate is the number of events per second of event time. Default 10,000: a window of 10 s holds 100,000 events.
	Rate int64
	// Base is the event time of event 0 in milliseconds since 1970 UTC. Default 1,700,000,000,000, the start of a window.
	Base int64
	// Jitter is by how many milliseconds at most events come out of order. Default 0.
	Jitter int64
	// Splits is the number of parts that can be read side by side. Default: the parallelism of the source.
	Splits int
	// Throttle is the number of records per second that are made, over all subtasks. Default: as fast as they are taken.
	Throttle float64
}

// The limits keep every product within 63 bits.
const (
	maxEvents = 1 << 53
	maxTime   = 1 << 50
)

// WithDefaults fills in what is zero.
func (c Config) WithDefaults() Config {
	if c.Events == 0 {
		c.Events = maxEvents
	}
	if c.Rate == 0 {
		c.Rate = 10_000
	}
	if c.Base == 0 {
		c.Base = 1_700_000_000_000
	}
	return c
}

// Validate lists everything that is wrong with c after WithDefaults.
func (c Config) Validate() error {
	var errs []error
	if c.Events < 1 || c.Events > maxEvents {
		errs = append(errs, fmt.Errorf("Events is %d; it is a number up to 2^53", c.Events))
	}
	if c.Rate < 1 || c.Rate > math.MaxInt32 {
		errs = append(errs, fmt.Errorf("Rate is %d; it is a number of events per second from 1 to 2^31-1", c.Rate))
	}
	if c.Base < 0 || c.Base > maxTime {
		errs = append(errs, fmt.Errorf("Base is %d; it is a time in milliseconds since 1970, up to 2^50", c.Base))
	}
	if c.Jitter < 0 || c.Jitter >= math.MaxInt32 {
		errs = append(errs, fmt.Errorf("Jitter is %d; it is a number of milliseconds from 0 to 2^31-2", c.Jitter))
	}
	if c.Splits < 0 || c.Splits > 1<<20 {
		errs = append(errs, fmt.Errorf("Splits is %d; it is at least 1, or 0 for one per subtask", c.Splits))
	}
	if err := pace.Validate(c.Throttle); err != nil {
		errs = append(errs, fmt.Errorf("Throttle: %w", err))
	}
	return errors.Join(errs...)
}
