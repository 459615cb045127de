package flightsjob

import (
	"bufio"
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"
)

// Reference computes DailyJob's answer for lines of JSON in plain Go, sharing nothing with the job: rows as
// "origin,day,flights,total_delay,max_delay", by (origin, day).
func Reference(r io.Reader) (map[Key]string, error) {
	type sums struct{ flights, total, max int }
	all := map[Key]*sums{}
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		var f struct {
			Time   string
			Origin string
			Delay  int
		}
		if err := json.Unmarshal(lines.Bytes(), &f); err != nil {
			return nil, fmt.Errorf("flight %q: %w", lines.Text(), err)
		}
		day, _, _ := strings.Cut(f.Time, "T")
		k := Key{f.Origin, day}
		s := all[k]
		if s == nil {
			s = &sums{max: f.Delay}
			all[k] = s
		}
		s.flights++
		s.total += f.Delay
		s.max = max(s.max, f.Delay)
	}
	rows := make(map[Key]string, len(all))
	for k, s := range all {
		rows[k] = fmt.Sprintf("%s,%s,%d,%d,%d", k.Airport, k.Start, s.flights, s.total, s.max)
	}
	return rows, lines.Err()
}

// plainFlight is a flight as the references of the windowed jobs see it.
type plainFlight struct {
	Time                time.Time
	Origin, Destination string
	Delay               int
}

// plainFlights reads lines of JSON without the jobs' own decoder.
func plainFlights(r io.Reader) (list []plainFlight, err error) {
	for d := json.NewDecoder(r); ; {
		var f plainFlight
		if err := d.Decode(&f); errors.Is(err, io.EOF) {
			return list, nil
		} else if err != nil {
			return nil, fmt.Errorf("flight %d: %w", len(list)+1, err)
		}
		list = append(list, f)
	}
}

// SlidingReference computes SlidingJob's answer, as CSV, the way that Reference does: it puts every flight into each of
// its three windows.
func SlidingReference(r io.Reader) ([]byte, error) {
	flights, err := plainFlights(r)
	if err != nil {
		return nil, err
	}
	type sums struct{ flights, total int }
	all := map[Key]sums{}
	for _, f := range flights {
		start := f.Time.Truncate(2 * time.Hour)
		for range 3 {
			k := Key{f.Destination, start.Format(time.RFC3339)}
			s := all[k]
			all[k] = sums{s.flights + 1, s.total + f.Delay}
			start = start.Add(-2 * time.Hour)
		}
	}
	csv := bytes.NewBufferString("destination,window_start,flights,total_delay\n")
	for k, s := range all {
		fmt.Fprintf(csv, "%s,%s,%d,%d\n", k.Airport, k.Start, s.flights, s.total)
	}
	return csv.Bytes(), nil
}

// SessionsReference computes SessionsJob's answer in the same way: it sorts the flights of each airport and cuts them
// where six hours or more pass.
func SessionsReference(r io.Reader) ([]byte, error) {
	list, err := plainFlights(r)
	if err != nil {
		return nil, err
	}
	slices.SortFunc(list, func(a, b plainFlight) int {
		return cmp.Or(strings.Compare(a.Origin, b.Origin), a.Time.Compare(b.Time))
	})
	csv := bytes.NewBufferString("origin,first,last,flights,total_delay\n")
	for i := 0; i < len(list); {
		j, delay := i, 0
		for j < len(list) && list[j].Origin == list[i].Origin && (j == i || list[j].Time.Sub(list[j-1].Time) < 6*time.Hour) {
			delay += list[j].Delay
			j++
		}
		first, last := list[i].Time.Format(time.RFC3339), list[j-1].Time.Format(time.RFC3339)
		fmt.Fprintf(csv, "%s,%s,%s,%d,%d\n", list[i].Origin, first, last, j-i, delay)
		i = j
	}
	return csv.Bytes(), nil
}
