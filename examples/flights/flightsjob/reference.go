package flightsjob

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Reference computes the answer for lines of JSON in plain Go, sharing nothing with the job: rows as
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
		rows[k] = fmt.Sprintf("%s,%s,%d,%d,%d", k.Origin, k.Day, s.flights, s.total, s.max)
	}
	return rows, lines.Err()
}
