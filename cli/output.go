package cli

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
	"time"

	"gopkg.in/yaml.v3"
)

// The formats of results.
const (
	asTable = "table"
	asJSON  = "json"
	asYAML  = "yaml"
)

// output adds -o.
func (o *options) output(p *string, more ...string) {
	*p = asTable
	o.choice(p, "output", "format of results", append([]string{asTable, asJSON, asYAML}, more...)...).short = "o"
}

// write prints v as JSON or YAML, or as the table that it has.
func write(w io.Writer, format string, v any, table func(*tabwriter.Writer)) error {
	switch format {
	case asJSON, asYAML:
		b, err := json.MarshalIndent(v, "", "  ")
		if err != nil {
			return fmt.Errorf("print the result: %w", err)
		}
		b = append(b, '\n')
		if format == asYAML {
			if b, err = toYAML(b); err != nil {
				return fmt.Errorf("print the result: %w", err)
			}
		}
		_, err = w.Write(b)
		return err
	}
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	table(t)
	return t.Flush()
}

// toYAML keeps the order and the numbers of JSON, which is YAML already: only the style changes.
func toYAML(b []byte) ([]byte, error) {
	var n yaml.Node
	if err := yaml.Unmarshal(b, &n); err != nil {
		return nil, err
	}
	plain(&n)
	var out bytes.Buffer
	e := yaml.NewEncoder(&out)
	e.SetIndent(2)
	if err := e.Encode(&n); err != nil {
		return nil, err
	}
	return out.Bytes(), e.Close()
}

func plain(n *yaml.Node) {
	if n.Kind != yaml.ScalarNode || n.Tag != "!!str" {
		n.Style = 0
	}
	if n.Tag == "!!str" {
		n.Style = 0
	}
	for _, c := range n.Content {
		plain(c)
	}
}

// row prints the cells of a line of a table.
func row(w io.Writer, cells ...any) {
	for i, c := range cells {
		if i > 0 {
			fmt.Fprint(w, "\t")
		}
		s := fmt.Sprint(c)
		if s == "" {
			s = "-"
		}
		fmt.Fprint(w, strings.ReplaceAll(strings.ReplaceAll(s, "\n", " "), "\t", " "))
	}
	fmt.Fprintln(w)
}

// field prints a line of a description; empty ones are left out.
func field(w io.Writer, name string, value any) {
	if s := fmt.Sprint(value); s != "" {
		fmt.Fprintf(w, "%s:\t%s\n", name, strings.ReplaceAll(s, "\n", "\n\t"))
	}
}

// clock is a time for people.
func clock(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return t.Local().Format("2006-01-02 15:04:05")
}

// ago is how long ago t was.
func ago(t time.Time) string {
	if t.IsZero() {
		return ""
	}
	return short(time.Since(t)) + " ago"
}

// short rounds a duration to what a person wants to know.
func short(d time.Duration) string {
	switch {
	case d < time.Second:
		return d.Round(time.Millisecond).String()
	case d < 10*time.Second:
		return d.Round(100 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// size is a number of bytes for people.
func size(n int64) string {
	const unit = 1024
	if n < unit {
		return fmt.Sprintf("%d B", n)
	}
	v, i := float64(n)/unit, 0
	for v >= unit && i < 4 {
		v /= unit
		i++
	}
	return fmt.Sprintf("%.1f %ciB", v, "KMGTP"[i])
}

// count is a number with separators.
func count(n int64) string {
	s := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, s = "-", s[1:]
	}
	for i := len(s) - 3; i > 0; i -= 3 {
		s = s[:i] + "," + s[i:]
	}
	return sign + s
}
