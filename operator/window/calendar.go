package window

import "time"

// calendar are windows of whole days in a time zone. Inside, civil time is what clocks show there,
// as milliseconds since they showed 1970-01-01 00:00.
type calendar struct {
	loc          *time.Location
	size, offset int64 // Civil milliseconds.
}

// civil is what clocks show at t.
func (c calendar) civil(t int64) int64 { return t + c.zone(t) }

// zone is how far clocks are ahead of UTC at t.
func (c calendar) zone(t int64) int64 {
	_, seconds := time.UnixMilli(t).In(c.loc).Zone()
	return int64(seconds) * 1000
}

// instant is the first time at which clocks show civil or, when they skip that, a later time.
func (c calendar) instant(civil int64) int64 {
	// Clocks change by less than a day, and not twice within two.
	before := c.zone(civil - c.zone(civil) - day.Milliseconds())
	after := c.zone(civil - c.zone(civil) + day.Milliseconds())
	first, second := civil-max(before, after), civil-min(before, after)
	switch {
	case c.civil(first) == civil:
		return first
	case c.civil(second) == civil:
		return second
	}
	_, change := time.UnixMilli(first).In(c.loc).ZoneBounds()
	return change.UnixMilli()
}

// window is the window that holds time t.
func (c calendar) window(t int64) (start, end int64) {
	civil := startOf(c.civil(t), c.size, c.offset)
	start, end = c.instant(civil), c.instant(civil+c.size)
	// Clocks that are set back across midnight show a day again that is over.
	for t >= end {
		civil += c.size
		start, end = end, c.instant(civil+c.size)
	}
	return start, end
}

// endOf is the end of the window that starts at start.
func (c calendar) endOf(start int64) int64 {
	_, end := c.window(start)
	return end
}
