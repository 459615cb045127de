package operator

import (
	"slices"
	"time"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/record"
	"github.com/cairnstream/cairn/statebackend"
)

// KeyedContext is what a handler works with during a call.
type KeyedContext[K comparable, U any] struct {
	*Collector[U]
	cur      *cursor[K]
	timers   *timers[K] // Nil without a Timer function.
	alarms   *timers[K] // Those of processing time, nil without a Clock function.
	now      int64      // Current watermark.
	clock    func() time.Time
	counters *Counters
}

// Key is the current key.
func (c *KeyedContext[K, U]) Key() K { return *c.cur.key }

// Time is the event time of the record or timer, in milliseconds since 1970 UTC; in Clock it is the
// processing time of the timer. What Emit emits has it as its event time.
func (c *KeyedContext[K, U]) Time() int64 { return c.time }

// EmitAt is Emit with an event time of the caller's choice. One that is behind the watermark makes the
// record late for what comes next.
func (c *KeyedContext[K, U]) EmitAt(v U, ms int64) {
	t := c.time
	c.time = ms
	c.Emit(v)
	c.time = t
}

// Watermark is the current watermark in milliseconds since 1970 UTC, record.MinTime before the
// first.
func (c *KeyedContext[K, U]) Watermark() int64 { return c.now }

// Now is the wall clock: processing time.
func (c *KeyedContext[K, U]) Now() time.Time { return c.clock() }

// CountLate counts the record being processed as one that is dropped because it came too late.
func (c *KeyedContext[K, U]) CountLate() { c.counters.noteLate(1, c.time, c.now) }

// SetTimer has Timer called for the current key when the watermark reaches ms. Setting the same
// time twice sets one timer. A time that the watermark has passed fires at the next watermark,
// or after a restore. At the end of the data every timer fires, and also those that Timer sets then:
// one that always sets another looks at Watermark, which is record.MaxTime at the end, and stops.
func (c *KeyedContext[K, U]) SetTimer(ms int64) {
	if c.timers == nil {
		panic("SetTimer in a handler without a Timer function")
	}
	c.timers.set(c.cur.key, c.cur.hash, ms)
}

// DeleteTimer takes back a timer of the current key.
func (c *KeyedContext[K, U]) DeleteTimer(ms int64) {
	if c.timers != nil {
		c.timers.remove(c.cur.key, c.cur.hash, ms)
	}
}

// SetClockTimer has Clock called for the current key when the wall clock reaches at, in whole
// milliseconds. Setting the same time twice sets one timer. Timers whose time passed while the job was
// down are due at once. At the end of the data every timer is, as with SetTimer.
func (c *KeyedContext[K, U]) SetClockTimer(at time.Time) {
	if c.alarms == nil {
		panic("SetClockTimer in a handler without a Clock function")
	}
	c.alarms.set(c.cur.key, c.cur.hash, clockMillis(at))
}

// DeleteClockTimer takes back a timer of the current key that SetClockTimer set for at.
func (c *KeyedContext[K, U]) DeleteClockTimer(at time.Time) {
	if c.alarms != nil {
		c.alarms.remove(c.cur.key, c.cur.hash, clockMillis(at))
	}
}

// clockMillis is the first whole millisecond that is not before t.
func clockMillis(t time.Time) int64 { return t.Add(time.Millisecond - 1).UnixMilli() }

// keyedCore is what keyed operators with user code have in common: the current key, states, timers and
// outputs.
type keyedCore[K comparable, U any] struct {
	kc      codec.Codec[K]
	ctx     KeyedContext[K, U]
	cur     cursor[K]
	k       K // Storage of the current key.
	hash    func(*K) uint64
	hot     hotKeys[K]
	states  *States[K]
	onTimer func(*KeyedContext[K, U])
	onClock func(*KeyedContext[K, U])

	run struct { // Of records whose keys were found; see rowsAhead.
		keys   [aheadRun]K
		hashes [aheadRun]uint64
	}

	post  func(func() error)
	alarm *time.Timer // Sweeps expired state when no records come; nil without any.
	ended bool
}

// aheadRun is how many records have their state fetched at a time: enough to keep the memory busy, few
// enough that what was fetched is still in the first-level cache when it is used.
const aheadRun = 32

// open binds s and calls construct, which declares the states and returns what to do at timers.
func (p *keyedCore[K, U]) open(c *Context, s *States[K], construct func() (onTimer, onClock func(*KeyedContext[K, U]))) error {
	p.hash = codec.NewHasher(p.kc)
	p.hot.open(p.kc)
	p.cur.key = &p.k
	p.ctx = KeyedContext[K, U]{Collector: newCollector[U](c.Out), cur: &p.cur, now: c.Watermark, clock: c.Now, counters: c.Counters}
	p.states, p.post = s, c.Post
	s.open(c, &p.cur, p.hash, &p.ctx.time)
	s.aging.look()
	p.onTimer, p.onClock = construct()
	if err := s.problem(c); err != nil {
		return err
	}
	var err error
	if p.onTimer != nil {
		if p.ctx.timers, err = openTimers(timersState, c.State, p.kc, p.hash); err != nil {
			return err
		}
	}
	if p.onClock != nil {
		p.ctx.alarms, err = openTimers(clockTimersState, c.State, p.kc, p.hash)
	}
	return err
}

// ready rebuilds what follows from the restored state. It tells whether timers are due already: those
// fire before anything else.
func (p *keyedCore[K, U]) ready() (firing bool) {
	p.states.aging.rebuild()
	p.setAlarm()
	if p.ctx.alarms != nil {
		p.ctx.alarms.rebuild()
	}
	if p.ctx.timers == nil {
		return false
	}
	p.ctx.timers.rebuild()
	return p.ctx.timers.due(p.ctx.now)
}

// setAlarm has expired state swept from time to time, for when no records do it.
func (p *keyedCore[K, U]) setAlarm() {
	every := p.states.aging.tick()
	if every == 0 || p.post == nil {
		return
	}
	sweep := func() error {
		if p.ended {
			return nil
		}
		p.states.aging.look()
		next := every
		if p.states.aging.sweep() {
			next = 10 * time.Millisecond
		}
		p.alarm.Reset(next)
		return nil
	}
	p.alarm = time.AfterFunc(every, func() { p.post(sweep) })
}

func (p *keyedCore[K, U]) pass(m record.Mark) {
	p.ctx.mark(m)
	p.states.outs.mark(m)
}

// done is the end of a run.
func (p *keyedCore[K, U]) done() error {
	if a := &p.states.aging; len(a.states) > 0 {
		a.look()
		a.sweep()
	}
	if err := p.ctx.done(); err != nil {
		return err
	}
	return p.states.outs.done()
}

// rows calls f with the selected rows of b with index from..to-1, each under its key.
func (p *keyedCore[K, U]) rows[T any](b *record.Batch[T], from, to int, key func(*T) K, f func(*KeyedContext[K, U], *T)) error {
	p.states.aging.look()
	p.hot.look(b, from, to, key, p.hash)
	if slices.ContainsFunc(p.states.ahead, statebackend.Ahead.Far) {
		return p.rowsAhead(b, from, to, key, f)
	}
	hashes := b.Hash
	haveHash := len(hashes) == len(b.Rows) && len(hashes) > 0
	haveTime := len(b.Times) == len(b.Rows)
	for n := from; n < to; n++ {
		i := n
		if b.Sel != nil {
			i = int(b.Sel[n])
		}
		row := &b.Rows[i]
		p.k = key(row)
		if haveHash {
			p.cur.hash = hashes[i]
		} else {
			p.cur.hash = p.hash(&p.k)
		}
		if haveTime {
			p.ctx.time = b.Times[i]
		} else {
			p.ctx.time = record.MinTime
		}
		f(&p.ctx, row)
	}
	return p.ctx.err
}

// rowsAhead is rows for states that are far: the keys of a run of records are found before the first of
// them is handled, so that the states can fetch what belongs to them all at once.
func (p *keyedCore[K, U]) rowsAhead[T any](b *record.Batch[T], from, to int, key func(*T) K, f func(*KeyedContext[K, U], *T)) error {
	haveHash := len(b.Hash) == len(b.Rows)
	haveTime := len(b.Times) == len(b.Rows)
	row := func(n int) int {
		if b.Sel != nil {
			return int(b.Sel[n])
		}
		return n
	}
	for ; from < to; from += aheadRun {
		n := min(to-from, aheadRun)
		keys, hashes := p.run.keys[:n], p.run.hashes[:n]
		for j := range keys {
			i := row(from + j)
			keys[j] = key(&b.Rows[i])
			if haveHash {
				hashes[j] = b.Hash[i]
			} else {
				hashes[j] = p.hash(&keys[j])
			}
		}
		for _, a := range p.states.ahead {
			if a.Far() {
				a.Fetch(hashes, hashes)
			}
		}
		for j := range keys {
			i := row(from + j)
			p.k = keys[j]
			p.cur.hash = hashes[j]
			p.ctx.time = record.MinTime
			if haveTime {
				p.ctx.time = b.Times[i]
			}
			f(&p.ctx, &b.Rows[i])
		}
	}
	return p.ctx.err
}

// HotKeys implements Skewed.
func (p *keyedCore[K, U]) HotKeys() job.HotKeys { return p.hot.shown() }

// fire fires up to limit timers due at w; it tells whether more are due. At the end of the data those of
// processing time are due too.
func (p *keyedCore[K, U]) fire(w int64, limit int) (more bool, err error) {
	p.ctx.now = w
	if p.ctx.timers != nil {
		if more, err = p.fireFrom(p.ctx.timers, p.onTimer, w, limit); more || err != nil {
			return more, err
		}
	}
	if w != record.MaxTime || p.ctx.alarms == nil {
		return false, nil
	}
	if more, err = p.fireFrom(p.ctx.alarms, p.onClock, w, limit); more || err != nil {
		return more, err
	}
	return p.ctx.timers != nil && p.ctx.timers.due(w), nil // They set each other.
}

// fireFrom calls f for up to limit timers due at w; it tells whether more are due.
func (p *keyedCore[K, U]) fireFrom(t *timers[K], f func(*KeyedContext[K, U]), w int64, limit int) (bool, error) {
	p.states.aging.look()
	for range limit {
		k, time, ok := t.pop(w)
		if !ok {
			return false, p.ctx.err
		}
		p.k = k.key
		p.cur.hash = k.hash
		p.ctx.time = time
		f(&p.ctx)
	}
	return t.due(w), p.ctx.err
}

// Deadline is when the next timer of processing time is due.
func (p *keyedCore[K, U]) Deadline() (time.Time, bool) {
	if p.ctx.alarms == nil {
		return time.Time{}, false
	}
	ms, ok := p.ctx.alarms.index.first()
	return time.UnixMilli(ms), ok
}

// Tick fires timers of processing time.
func (p *keyedCore[K, U]) Tick(now time.Time) error {
	if _, err := p.fireFrom(p.ctx.alarms, p.onClock, now.UnixMilli(), firingRun); err != nil {
		return err
	}
	return p.done()
}

func (p *keyedCore[K, U]) close() {
	p.ended = true
	if p.alarm != nil {
		p.alarm.Stop()
	}
	if p.states != nil {
		p.states.outs.drop()
	}
	if p.ctx.Collector != nil {
		p.ctx.drop()
	}
}
