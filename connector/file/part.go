package file

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"

	"github.com/zeebo/xxh3"

	"github.com/cairnstream/cairn/job"
)

// part names one file of a sink. While it is written and until its checkpoint commits, the file has a hidden name
// that ends in neither .csv nor .ndjson, so that no reader of the directory takes it for output.
type part struct {
	run        job.Run
	subtask    int
	seq        int    // Counts the parts of one writer.
	sink       string // Escaped.
	ext        string // csv or ndjson.
	checkpoint job.CheckpointID
}

// hidden is the name before the commit. The checkpoint is not in it: it is not known when the file is created.
func (p part) hidden() string {
	return fmt.Sprintf(".part-%s-a%d-s%d-%d-%s.%s.pending", escape(string(p.run.Job)), p.run.Attempt, p.subtask, p.seq, p.sink, p.ext)
}

// final is the name from the commit on. Names of one job sort by checkpoint, then subtask.
func (p part) final() string {
	return fmt.Sprintf("part-%s-c%06d-s%03d-a%d-%d-%s.%s", escape(string(p.run.Job)), p.checkpoint, p.subtask, p.run.Attempt, p.seq, p.sink, p.ext)
}

var (
	hiddenName = regexp.MustCompile(`^\.part-([^-]+)-a(\d+)-s(\d+)-(\d+)-(.+)\.(csv|ndjson)\.pending$`)
	finalName  = regexp.MustCompile(`^part-([^-]+)-c(\d+)-s(\d+)-a(\d+)-(\d+)-(.+)\.(csv|ndjson)$`)
)

func parseHidden(name string) (part, bool) {
	m := hiddenName.FindStringSubmatch(name)
	if m == nil {
		return part{}, false
	}
	var n numbers
	p := part{
		run:     job.Run{Job: job.ID(unescape(m[1])), Attempt: job.Attempt(n.parse(m[2]))},
		subtask: int(n.parse(m[3])), seq: int(n.parse(m[4])), sink: m[5], ext: m[6],
	}
	return p, !n.bad
}

func parseFinal(name string) (part, bool) {
	m := finalName.FindStringSubmatch(name)
	if m == nil {
		return part{}, false
	}
	var n numbers
	p := part{
		run:        job.Run{Job: job.ID(unescape(m[1])), Attempt: job.Attempt(n.parse(m[4]))},
		checkpoint: job.CheckpointID(n.parse(m[2])),
		subtask:    int(n.parse(m[3])), seq: int(n.parse(m[5])), sink: m[6], ext: m[7],
	}
	return p, !n.bad
}

type numbers struct{ bad bool }

func (n *numbers) parse(s string) uint64 {
	v, err := strconv.ParseUint(s, 10, 63)
	n.bad = n.bad || err != nil
	return v
}

// escape makes a text fit to stand between hyphens in a file's name.
func escape(s string) string { return strings.ReplaceAll(escapeSink(s), "-", "%2D") }

// escapeSink does the same for the last place, where hyphens do no harm. Long names are cut, with a hash in place of
// the rest: file systems take 255 bytes.
func escapeSink(s string) string {
	var b strings.Builder
	for _, c := range []byte(s) {
		if c <= ' ' || c >= 0x7f || strings.IndexByte(`/\%:*?"<>|`, c) >= 0 {
			fmt.Fprintf(&b, "%%%02X", c)
		} else {
			b.WriteByte(c)
		}
	}
	const longest = 96
	if b.Len() <= longest {
		return b.String()
	}
	return fmt.Sprintf("%s~%016x", b.String()[:longest-17], xxh3.HashString(s))
}

func unescape(s string) string {
	for i := 0; i+2 < len(s); i++ {
		if s[i] == '%' {
			if v, err := strconv.ParseUint(s[i+1:i+3], 16, 8); err == nil {
				s = s[:i] + string([]byte{byte(v)}) + s[i+3:]
			}
		}
	}
	return s
}
