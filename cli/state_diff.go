package cli

import (
	"bufio"
	"context"
	"fmt"
	"text/tabwriter"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend/stored"
)

type diffView struct {
	Operator string `json:"operator"`
	State    string `json:"state"`
	Added    int64  `json:"added"`
	Removed  int64  `json:"removed"`
	Changed  int64  `json:"changed"`
	Same     int64  `json:"same"`
	Note     string `json:"note,omitempty"`
}

func (a *App) stateDiffCommand() *cobra.Command {
	o := &options{}
	var format string
	var keys bool
	o.output(&format, asLines)
	o.yesNo(&keys, "keys", "list the entries that differ; -o ndjson does so anyway").flag = true
	return a.stateCommandOf(&cobra.Command{
		Use: "diff SNAPSHOT SNAPSHOT", Short: "tells what was added, removed and changed from one snapshot to another",
	}, o, func(ctx context.Context, old *opened, args []string) error {
		s, err := a.openSnapshot(ctx, args[0])
		if err != nil {
			return err
		}
		defer s.close()
		out := bufio.NewWriterSize(a.Stdout, 64<<10)
		defer out.Flush()
		var change func(stored.EntryChange) error
		lines := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
		n := 0
		switch {
		case format == asLines:
			change = func(c stored.EntryChange) error {
				r, err := changeRecord(c)
				if err != nil {
					return err
				}
				return writeLine(out, r)
			}
		case keys && format != asTable:
			return usage("state diff", "--keys: want -o table or -o ndjson")
		case keys:
			row(lines, "CHANGE", "OPERATOR", "STATE", "KEY", "AT", "OLD", "NEW")
			change = func(c stored.EntryChange) error {
				n++
				if n%1000 == 0 {
					if err := lines.Flush(); err != nil {
						return err
					}
				}
				return changeRow(lines, c)
			}
		}
		var list []stored.Difference
		if err := stored.Diff(ctx, old.Snapshot, s.Snapshot, change, func(d stored.Difference) error {
			list = append(list, d)
			return nil
		}); err != nil {
			_ = lines.Flush()
			return err
		}
		if err := lines.Flush(); err != nil || format == asLines {
			return err
		}
		if keys {
			fmt.Fprintln(out)
		}
		view := func(d stored.Difference) diffView {
			return diffView{d.Operator, d.State, d.Added, d.Removed, d.Changed, d.Same, d.Note}
		}
		return write(out, format, views(list, view), func(w *tabwriter.Writer) {
			row(w, "OPERATOR", "STATE", "ADDED", "REMOVED", "CHANGED", "SAME", "NOTE")
			for _, d := range list {
				row(w, d.Operator, d.State, count(d.Added), count(d.Removed), count(d.Changed), count(d.Same), d.Note)
			}
		})
	})
}

// kindOf names a change.
func kindOf(c stored.EntryChange) string {
	switch {
	case c.Old == nil:
		return "added"
	case c.New == nil:
		return "removed"
	}
	return "changed"
}

// changeRecord is an entry with its old and its new value.
func changeRecord(c stored.EntryChange) (codec.Object, error) {
	o := codec.Object{{Name: "change", Value: kindOf(c)}}
	at := c.New
	if at == nil {
		at = c.Old
	}
	r, err := at.Record()
	if err != nil {
		return nil, err
	}
	for _, m := range r {
		if m.Name != "value" && m.Name != "written" {
			o = append(o, m)
		}
	}
	for _, side := range []struct {
		name string
		e    *stored.Entry
	}{{"old", c.Old}, {"new", c.New}} {
		if side.e == nil {
			continue
		}
		r, err := side.e.Record()
		if err != nil {
			return nil, err
		}
		o = append(o, codec.Member{Name: side.name, Value: member(r, "value")})
	}
	return o, nil
}

func changeRow(w *tabwriter.Writer, c stored.EntryChange) error {
	r, err := changeRecord(c)
	if err != nil {
		return err
	}
	cell := func(name string) string {
		if v, ok := find(r, name); ok {
			return text(v)
		}
		return ""
	}
	row(w, kindOf(c), cell("operator"), cell("state"), cell("key"), atOf(r), cell("old"), cell("new"))
	return nil
}
