package flightsjob

import (
	"bytes"
	"encoding/json"
	"errors"
	"strconv"
	"time"
)

// Flight is a record of the input.
type Flight struct {
	Time        time.Time `json:"time"` // Of departure, UTC.
	Origin      string    `json:"origin"`
	Destination string    `json:"destination"`
	Delay       int64     `json:"delay"`    // Minutes; negative is early.
	Distance    int64     `json:"distance"` // Miles.
}

// Daily is a record of the output: the flights that left an airport on one day, UTC.
type Daily struct {
	Origin     string    `csv:"origin" json:"origin"`
	Day        time.Time `csv:"day,layout=2006-01-02" json:"day"`
	Flights    int64     `csv:"flights" json:"flights"`
	TotalDelay int64     `csv:"total_delay" json:"total_delay"`
	MaxDelay   int64     `csv:"max_delay" json:"max_delay"`
}

// Sliding is a record of the output: the flights to an airport in one window.
type Sliding struct {
	Destination string    `csv:"destination" json:"destination"`
	WindowStart time.Time `csv:"window_start" json:"window_start"`
	Flights     int64     `csv:"flights" json:"flights"`
	TotalDelay  int64     `csv:"total_delay" json:"total_delay"`
}

// Busy is a record of the output: the flights from an airport in one session, with the times of the
// first and the last of them.
type Busy struct {
	Origin     string    `csv:"origin" json:"origin"`
	First      time.Time `csv:"first" json:"first"`
	Last       time.Time `csv:"last" json:"last"`
	Flights    int64     `csv:"flights" json:"flights"`
	TotalDelay int64     `csv:"total_delay" json:"total_delay"`
}

// Decode decodes a line of the input. Lines as the data set writes them take a short cut around encoding/json.
func Decode(line []byte, f *Flight) error {
	if decodeFast(line, f) {
		return nil
	}
	*f = Flight{}
	if err := json.Unmarshal(line, f); err != nil {
		return err
	}
	if f.Origin == "" || f.Time.IsZero() {
		return errors.New("a flight needs a time and an origin")
	}
	f.Time = f.Time.UTC()
	return nil
}

// decodeFast decodes a line that has exactly the layout of the data set; it gives up on all others.
func decodeFast(line []byte, f *Flight) bool {
	s := scanner{rest: line, ok: true}
	s.expect(`{"time":"`)
	at := s.upTo('"')
	s.expect(`,"origin":"`)
	origin := s.upTo('"')
	s.expect(`,"destination":"`)
	destination := s.upTo('"')
	s.expect(`,"delay":`)
	delay := s.integer(',')
	s.expect(`"distance":`)
	distance := s.integer('}')
	t, ok := parseTime(at)
	if !s.ok || !ok || len(s.rest) > 0 || !plain(origin) || !plain(destination) {
		return false
	}
	*f = Flight{Time: t, Origin: string(origin), Destination: string(destination), Delay: delay, Distance: distance}
	return true
}

type scanner struct {
	rest []byte
	ok   bool
}

func (s *scanner) expect(text string) {
	if s.ok = s.ok && len(s.rest) >= len(text) && string(s.rest[:len(text)]) == text; s.ok {
		s.rest = s.rest[len(text):]
	}
}

// upTo takes what is before the next c, and c.
func (s *scanner) upTo(c byte) []byte {
	i := bytes.IndexByte(s.rest, c)
	if s.ok = s.ok && i >= 0; !s.ok {
		return nil
	}
	text := s.rest[:i]
	s.rest = s.rest[i+1:]
	return text
}

// integer takes a number before the next c, and c.
func (s *scanner) integer(c byte) int64 {
	text := s.upTo(c)
	digits := bytes.TrimPrefix(text, []byte("-"))
	if len(digits) == 0 || len(digits) > 9 || digits[0] == '0' && len(digits) > 1 || digits[0] == '+' {
		s.ok = false
		return 0
	}
	n, err := strconv.ParseInt(string(text), 10, 64)
	s.ok = s.ok && err == nil
	return n
}

// plain tells whether a text is a name that stands for itself in JSON.
func plain(text []byte) bool {
	for _, c := range text {
		if c < '0' || c > 'z' || c == '\\' {
			return false
		}
	}
	return len(text) > 0
}

// parseTime parses 2001-01-01T00:47:00Z.
func parseTime(s []byte) (time.Time, bool) {
	if len(s) != 20 || s[4] != '-' || s[7] != '-' || s[10] != 'T' || s[13] != ':' || s[16] != ':' || s[19] != 'Z' {
		return time.Time{}, false
	}
	var n [6]int
	for i, at := range [6][2]int{{0, 4}, {5, 7}, {8, 10}, {11, 13}, {14, 16}, {17, 19}} {
		for _, c := range s[at[0]:at[1]] {
			if c < '0' || c > '9' {
				return time.Time{}, false
			}
			n[i] = 10*n[i] + int(c-'0')
		}
	}
	if n[0] < 1 || n[1] < 1 || n[1] > 12 || n[3] > 23 || n[4] > 59 || n[5] > 59 {
		return time.Time{}, false
	}
	t := time.Date(n[0], time.Month(n[1]), n[2], n[3], n[4], n[5], 0, time.UTC)
	return t, t.Day() == n[2] // Else there is no such day in the month.
}
