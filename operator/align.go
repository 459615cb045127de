package operator

import (
	"encoding/binary"
	"time"

	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/watermark"
)

// How often readers and enumerators tell each other their watermarks. While these move, or somebody
// waits for others to catch up, it is done more often, as the limit moves only with the reports: a
// group that catches up advances by about the drift per round. A source sends up to 200 reports a
// second then, however many readers it has.
const (
	reportEvery = time.Second
	reportSoon  = 20 * time.Millisecond
	reportShare = 5 * time.Millisecond // For each reader.
)

// soonFor is how soon one of so many readers may report again.
func soonFor(readers int) time.Duration {
	return min(max(reportSoon, time.Duration(readers)*reportShare), reportEvery)
}

// Mail of alignment, beside mailRequestSplit: the kind, a uvarint that numbers the sender's mail,
// and a varint, the lowest watermark of whom it is about.
const (
	mailReport = 'w' // From a reader: its own.
	mailLowest = 'l' // To a reader: the group's.
	mailPeer   = 'g' // From an enumerator to another of its group: its source's.
	mailAsk    = 'q' // To a reader: asks for a report. The number is 0.
)

func encodeAlign(kind byte, number uint64, w int64) []byte {
	b := binary.AppendUvarint([]byte{kind}, number)
	return binary.AppendVarint(b, w)
}

// decodeAlign tells whether b is mail of alignment. Mail of other versions is not understood, and
// not needed.
func decodeAlign(b []byte) (kind byte, number uint64, w int64, ok bool) {
	if len(b) < 2 {
		return 0, 0, 0, false
	}
	kind = b[0]
	number, n := binary.Uvarint(b[1:])
	if n <= 0 {
		return 0, 0, 0, false
	}
	w, m := binary.Varint(b[1+n:])
	if m <= 0 || 1+n+m != len(b) {
		return 0, 0, 0, false
	}
	return kind, number, w, true
}

// alignment is a reader's part in keeping the splits of a group together.
type alignment struct {
	drift  int64 // Milliseconds; 0 for none.
	lowest int64 // Of the group, as last heard.
	heard  uint64
	paused bool // The split that is furthest behind may not be read.

	sent     uint64
	sentAt   time.Time
	reported int64
}

// newAlignment returns one that has heard nothing: splits are read until they have a watermark.
func newAlignment(s watermark.Strategy) alignment {
	_, drift := s.Alignment()
	return alignment{drift: drift, lowest: watermark.Min, reported: watermark.Min}
}

// ahead tells whether a is too far ahead of others to be read.
func (r *reader[T]) ahead(a *activeSplit[T]) bool {
	if r.align.drift == 0 {
		return false
	}
	w := a.gen.Current()
	return w > watermark.LimitOf(min(r.align.lowest, r.lowest()), r.align.drift)
}

// lowest is the watermark by which the reader holds others back.
func (r *reader[T]) lowest() int64 {
	w := watermark.NoConstraint
	switch {
	case r.c.Ended:
		return w
	case !r.started:
		return watermark.Min
	}
	for _, a := range r.active {
		if !a.clock.Idle() {
			w = min(w, a.gen.Current())
		}
	}
	return w
}

// report tells the enumerator where the reader is, if it is time to.
func (r *reader[T]) report(force bool) {
	if r.align.drift == 0 {
		return
	}
	g := &r.align
	w := r.lowest()
	if !force {
		if at, _ := r.reportAfter(w); r.now.Before(at) {
			return
		}
	}
	g.sent++
	g.sentAt, g.reported = r.now, w
	r.c.Mail(job.Task{Vertex: r.c.Enumerator}, encodeAlign(mailReport, g.sent, w))
}

// reportAfter is when the next report is due while the reader is at w.
func (r *reader[T]) reportAfter(w int64) (time.Time, bool) {
	g := &r.align
	switch {
	case g.sent == 0 || (w == watermark.NoConstraint) != (g.reported == watermark.NoConstraint):
		return time.Time{}, true
	case g.paused || w != g.reported && (g.reported == watermark.Min || w < g.reported || w-g.reported >= (g.drift+3)/4):
		return g.sentAt.Add(soonFor(r.c.Parallelism)), true
	}
	return g.sentAt.Add(reportEvery), true
}

func (r *reader[T]) reportAt() (time.Time, bool) {
	if r.align.drift == 0 {
		return time.Time{}, false
	}
	return r.reportAfter(r.lowest())
}

// Receive takes mail from the enumerator.
func (r *reader[T]) Receive(_ job.Task, body []byte) error {
	kind, number, w, ok := decodeAlign(body)
	if !ok || r.align.drift == 0 {
		return nil
	}
	switch kind {
	case mailAsk:
		r.now = r.c.Now()
		r.report(true)
	case mailLowest:
		if number > r.align.heard {
			r.align.heard, r.align.lowest = number, w
		}
	}
	return nil
}

// Peers tells an enumerator of the alignment that its source takes part in.
type Peers struct {
	// Align is set when it does at all.
	Align bool
	// Reader is the source's own.
	Reader string
	// Enumerators are those of the group's other sources.
	Enumerators []string
}

// gathering is an enumerator's part in alignment. It acts on mail alone, since it has nothing else
// to do once all splits are given out: readers write at least once a second.
type gathering struct {
	Peers
	state  *watermark.Alignment
	number uint64
	told   []telling   // By peer.
	heard  []time.Time // When each reader last wrote; at first, when the enumerator was opened.
	asked  []time.Time // When each reader was last asked to.
}

// telling is what another source was told last.
type telling struct {
	at        time.Time
	watermark int64
}

func (e *enumerator) openAlignment() {
	g := &e.gather
	if !g.Align {
		return
	}
	g.state = watermark.NewAlignment(e.readers, len(g.Enumerators))
	g.told = make([]telling, len(g.Enumerators))
	g.heard = make([]time.Time, e.readers)
	g.asked = make([]time.Time, e.readers)
	for i := range g.heard {
		g.heard[i] = e.c.Now()
	}
}

// receiveAlign takes mail of alignment.
func (e *enumerator) receiveAlign(from job.Task, body []byte) {
	g := &e.gather
	kind, number, w, ok := decodeAlign(body)
	if !ok || g.state == nil {
		return
	}
	now := e.c.Now()
	switch kind {
	case mailReport:
		i := from.Subtask
		if i < 0 || i >= e.readers {
			return
		}
		g.state.Reader(i, number, w)
		g.heard[i] = now
		for i := range g.told {
			e.tell(i, now)
		}
		g.number++
		e.c.Mail(from, encodeAlign(mailLowest, g.number, g.state.Lowest()))
	case mailPeer:
		for i, name := range g.Enumerators {
			if name == from.Vertex {
				g.state.Peer(i, number, w)
				e.tell(i, now) // It may have missed what it was told last.
			}
		}
	default:
		return
	}
	e.askSilent(now)
}

// tell tells another source where this one is, if that changed or was told long ago.
func (e *enumerator) tell(peer int, now time.Time) {
	g := &e.gather
	last := &g.told[peer]
	own := g.state.Own()
	wait := reportEvery
	switch {
	case last.at.IsZero() || (own == watermark.NoConstraint) != (last.watermark == watermark.NoConstraint):
		wait = 0
	case own != last.watermark:
		wait = reportSoon
	}
	if now.Sub(last.at) < wait {
		return
	}
	*last = telling{now, own}
	g.number++
	e.c.Mail(job.Task{Vertex: g.Enumerators[peer]}, encodeAlign(mailPeer, g.number, own))
}

// askSilent asks readers that hold the group back and have been silent: one that was through before
// a restart does not speak by itself, and its last word may have been lost.
func (e *enumerator) askSilent(now time.Time) {
	g := &e.gather
	for i := range g.heard {
		if !g.state.Holds(i) || now.Sub(g.heard[i]) < 2*reportEvery || now.Sub(g.asked[i]) < reportEvery {
			continue
		}
		g.asked[i] = now
		e.c.Mail(job.Task{Vertex: g.Reader, Subtask: i}, encodeAlign(mailAsk, 0, 0))
	}
}
