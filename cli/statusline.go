package cli

import (
	"fmt"
	"strings"
	"time"
)

// statusLine is a line on stderr that overwrites itself on a terminal, and is told every few seconds elsewhere.
type statusLine struct {
	a     *App
	told  time.Time // Last.
	width int       // Of what is to be overwritten.
}

// every is how often it is told where it cannot be overwritten.
const every = 5 * time.Second

// due tells whether it is time to tell it again.
func (l *statusLine) due(now time.Time) bool {
	interval := every
	if l.a.Terminal {
		interval = 200 * time.Millisecond
	}
	return now.Sub(l.told) >= interval
}

func (l *statusLine) tell(text string, now time.Time) {
	l.told = now
	if !l.a.Terminal {
		fmt.Fprintln(l.a.Stderr, text)
		return
	}
	l.erase()
	fmt.Fprint(l.a.Stderr, text)
	l.width = len(text)
}

// line prints what stays.
func (l *statusLine) line(text string) {
	l.erase()
	fmt.Fprintln(l.a.Stderr, text)
}

func (l *statusLine) erase() {
	if l.width > 0 {
		fmt.Fprintf(l.a.Stderr, "\r%s\r", strings.Repeat(" ", l.width))
		l.width = 0
	}
}
