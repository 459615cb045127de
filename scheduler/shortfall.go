package scheduler

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// Shortfall says why a job cannot be placed.
type Shortfall struct {
	Need int // Slots.
	Free int // Slots of workers that could take the job.
	// Reasons are complete sentences for people, the decisive one first.
	Reasons []string
}

func (s *Shortfall) String() string { return strings.Join(s.Reasons, "; ") }

func shortfall(v View, r Request, need int) *Shortfall {
	s := &Shortfall{Need: need}
	say := func(format string, args ...any) { s.Reasons = append(s.Reasons, fmt.Sprintf(format, args...)) }
	var have, busy, draining, elsewhere, without int
	versions := map[string]int{}
	for _, w := range v.Workers {
		switch {
		case w.has(r.Program, r.Version) && w.Draining:
			draining++
		case w.has(r.Program, r.Version):
			have++
			s.Free += max(0, w.Free)
			busy += w.Slots - max(0, w.Free)
		default:
			if seen := versionsOf(w, r.Program); len(seen) > 0 {
				elsewhere++
				for _, version := range seen {
					versions[version]++
				}
			} else {
				without++
			}
		}
	}
	program := fmt.Sprintf("program %q version %q", r.Program, r.Version)
	switch {
	case len(v.Workers) == 0:
		say("need %s, and no TaskManager is connected", slotText(need))
	case have == 0 && draining == 0:
		say("need %s on TaskManagers with %s, and none of the %d connected has it", slotText(need), program, len(v.Workers))
	default:
		say("need %s, have %d free on %s with %s", slotText(need), s.Free, count(have, "TaskManager"), program)
	}
	if busy > 0 {
		say("jobs hold %s of theirs", slotText(busy))
	}
	if draining > 0 {
		say("draining: %s with it", count(draining, "TaskManager"))
	}
	if elsewhere > 0 {
		var parts []string
		for _, version := range slices.SortedFunc(maps.Keys(versions), cmp.Compare[string]) {
			parts = append(parts, fmt.Sprintf("%q on %d", version, versions[version]))
		}
		say("other versions of %q on %s: %s", r.Program, count(elsewhere, "TaskManager"), strings.Join(parts, ", "))
	}
	if without > 0 && (have > 0 || draining > 0 || elsewhere > 0) {
		say("no %q on %s", r.Program, count(without, "TaskManager"))
	}
	return s
}

func versionsOf(w Worker, program string) []string {
	var out []string
	for _, p := range w.Programs {
		if p.Name == program {
			out = append(out, p.Version)
		}
	}
	return out
}

func slotText(n int) string { return count(n, "slot") }

func count(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
