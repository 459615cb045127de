package cli

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/statebackend/stored"
)

func (a *App) stateCommand() *cobra.Command {
	return a.group(
		&cobra.Command{Use: "state", Short: "looks into checkpoints and savepoints, without a cluster and without the program"},
		a.stateListCommand(), a.stateGetCommand(), a.stateDumpCommand(), a.stateDiffCommand(),
		a.statePatchCommand(), a.stateCreateCommand(),
	)
}

// asLines is one JSON value in each line.
const asLines = "ndjson"

// stateCommandOf makes a command whose first argument is a snapshot.
func (a *App) stateCommandOf(cmd *cobra.Command, o *options, run func(ctx context.Context, s *opened, args []string) error) *cobra.Command {
	return a.command(cmd, o, func(ctx context.Context, args []string) error {
		s, err := a.openSnapshot(ctx, args[0])
		if err != nil {
			return err
		}
		defer s.close()
		return storedError(run(ctx, s, args[1:]))
	})
}

type stateListView struct {
	Job         string      `json:"job"`
	Name        string      `json:"name"`
	Program     string      `json:"program"`
	Version     string      `json:"version,omitempty"`
	Checkpoint  uint64      `json:"checkpoint"`
	Created     time.Time   `json:"created"`
	KeyGroups   int         `json:"key_groups"`
	Bytes       int64       `json:"bytes"`
	DerivedFrom string      `json:"derived_from,omitempty"`
	States      []stateView `json:"states"`
}

type stateView struct {
	Operator    string `json:"operator"`
	State       string `json:"state"`
	Kind        string `json:"kind"`
	Key         string `json:"key,omitempty"`
	MapKey      string `json:"map_key,omitempty"`
	Value       string `json:"value,omitempty"`
	KeySchema   string `json:"key_schema,omitempty"`
	ValueSchema string `json:"value_schema,omitempty"`
	TTL         bool   `json:"ttl"`
	Entries     int64  `json:"entries"`
	Bytes       int64  `json:"bytes"`
	FirstGroup  *int   `json:"first_group,omitempty"`
	LastGroup   *int   `json:"last_group,omitempty"`
	Subtasks    int    `json:"subtasks"`
	Unreadable  string `json:"unreadable,omitempty"`
}

func viewState(s *stored.State) stateView {
	v := stateView{
		Operator: s.Operator, State: s.Name, Kind: string(s.Kind), Key: layoutName(s.Key, s.KeySchema), Value: layoutName(s.Value, s.ValueSchema),
		KeySchema: s.KeySchema, ValueSchema: s.ValueSchema, TTL: s.TTL, Entries: s.Entries, Bytes: s.Bytes, Subtasks: s.Subtasks,
	}
	if s.MapKey != nil {
		v.MapKey = s.MapKey.String()
	}
	if s.Unreadable != nil {
		v.Unreadable = s.Unreadable.Error()
	}
	if s.Groups.Len() > 0 {
		v.FirstGroup, v.LastGroup = &s.Groups.First, &s.Groups.Last
	}
	return v
}

// layoutName is a type for people, or the schema's text where only the program knows.
func layoutName(l *codec.Layout, schema string) string {
	if l == nil {
		return schema
	}
	return l.String()
}

// typeOf is the type of what a state holds, for people.
func typeOf(s *stored.State) string {
	v := viewState(s)
	switch {
	case s.Kind == stored.List || s.Kind == stored.OperatorList:
		v.Value = "[]" + v.Value
	case v.MapKey != "":
		v.Value = v.MapKey + " -> " + v.Value
	}
	if s.TTL {
		v.Value += ", expires"
	}
	return v.Value
}

func (a *App) stateListCommand() *cobra.Command {
	o := &options{}
	var format string
	o.output(&format)
	return a.stateCommandOf(&cobra.Command{
		Use: "ls SNAPSHOT", Short: "lists the states of a snapshot with their types and sizes",
	}, o, func(_ context.Context, s *opened, _ []string) error {
		m := s.Manifest
		v := stateListView{
			Job: string(m.Job), Name: m.JobName, Program: m.Program, Version: m.Version, Checkpoint: uint64(m.Checkpoint),
			Created: m.Created, KeyGroups: m.K, Bytes: m.Bytes, DerivedFrom: m.Derived, States: views(s.States(), viewState),
		}
		return write(a.Stdout, format, v, func(w *tabwriter.Writer) {
			field(w, "Job", fmt.Sprintf("%s (%s)", m.JobName, m.Job))
			field(w, "Program", strings.TrimSpace(m.Program+" "+m.Version))
			field(w, "Checkpoint", uint64(m.Checkpoint))
			field(w, "Created", clock(m.Created))
			field(w, "Made from", m.Derived)
			field(w, "Key groups", m.K)
			field(w, "Size", size(m.Bytes))
			fmt.Fprintln(w)
			row(w, "OPERATOR", "STATE", "KIND", "KEY", "VALUE", "ENTRIES", "SIZE", "GROUPS", "SUBTASKS")
			for _, st := range s.States() {
				groups := ""
				if st.Groups.Len() > 0 {
					groups = fmt.Sprintf("%d-%d", st.Groups.First, st.Groups.Last)
				}
				row(w, st.Operator, st.Name, st.Kind, layoutName(st.Key, st.KeySchema), typeOf(st), count(st.Entries), size(st.Bytes), groups, st.Subtasks)
			}
		})
	})
}

func (a *App) stateGetCommand() *cobra.Command {
	o := &options{}
	var format, mapKey string
	o.output(&format, asLines)
	o.text(&mapKey, "map-key", "KEY", "only this entry of a map, as JSON or as a bare text").flag = true
	return a.stateCommandOf(&cobra.Command{
		Use: "get SNAPSHOT OPERATOR STATE KEY", Short: "shows what a state has for a key, which is JSON or a bare text",
	}, o, func(ctx context.Context, s *opened, args []string) error {
		st, err := s.State(args[0], args[1])
		if err != nil {
			return err
		}
		if st.Key == nil {
			if _, err := st.Get(ctx, nil); st.Unreadable != nil {
				return err
			}
			return usage("state get", fmt.Sprintf("state %q of operator %q has no keys, it is of kind %s: cairn state dump shows it", st.Name, st.Operator, st.Kind))
		}
		key, err := encodeKey(st.Key, args[2])
		if err != nil {
			return usage("state get", "KEY: "+err.Error())
		}
		var entries []*stored.Entry
		switch {
		case !o.given("map-key"):
			entries, err = st.Get(ctx, key)
		case st.MapKey == nil:
			return usage("state get", fmt.Sprintf("--map-key: state %q of operator %q is no map: it is of kind %s", st.Name, st.Operator, st.Kind))
		default:
			sub, err := encodeKey(st.MapKey, mapKey)
			if err != nil {
				return usage("state get", "--map-key: "+err.Error())
			}
			e, err := st.GetMap(ctx, key, sub)
			if err != nil {
				return err
			}
			if e != nil {
				entries = append(entries, e)
			}
		}
		if err != nil {
			return err
		}
		if len(entries) == 0 {
			what := args[2]
			if mapKey != "" {
				what += ", map key " + mapKey
			}
			return &codeError{code: NotFound, err: fmt.Errorf("operator %q, state %q: nothing of key %s", st.Operator, st.Name, what)}
		}
		return a.showEntries(st, format, entries)
	})
}

// encodeKey reads a key that is JSON, or a bare text where the key's JSON is one.
func encodeKey(l *codec.Layout, text string) ([]byte, error) {
	b, err := l.Encode(nil, []byte(text))
	if err == nil {
		return b, nil
	}
	quoted, qerr := codec.AppendJSON(nil, text)
	if qerr != nil || !utf8.ValidString(text) {
		return nil, err
	}
	if b, qerr := l.Encode(nil, quoted); qerr == nil {
		return b, nil
	}
	return nil, err
}

// showEntries prints what there is of a key.
func (a *App) showEntries(st *stored.State, format string, entries []*stored.Entry) error {
	records := make([]codec.Object, len(entries))
	for i, e := range entries {
		var err error
		if records[i], err = e.Record(); err != nil {
			return err
		}
	}
	switch format {
	case asLines:
		for _, r := range records {
			if err := writeLine(a.Stdout, r); err != nil {
				return err
			}
		}
		return nil
	case asJSON, asYAML:
		var all []json.RawMessage
		for _, r := range records {
			b, err := codec.AppendJSON(nil, r)
			if err != nil {
				return err
			}
			all = append(all, b)
		}
		if len(all) == 1 && (st.Kind == stored.Value || st.Kind == stored.Reducing || st.Kind == stored.Aggregating) {
			return write(a.Stdout, format, all[0], nil)
		}
		return write(a.Stdout, format, all, nil)
	}
	w := tabwriter.NewWriter(a.Stdout, 0, 8, 2, ' ', 0)
	switch st.Kind {
	case stored.List:
		numbered := len(entries) > 1 || entries[0].Time != 0
		if numbered {
			row(w, "LIST", "INDEX", "VALUE")
		} else {
			row(w, "INDEX", "VALUE")
		}
		for i, r := range records {
			list, _ := member(r, "value").([]any)
			for j, v := range list {
				if numbered {
					row(w, entries[i].Time, j, text(v))
				} else {
					row(w, j, text(v))
				}
			}
		}
	case stored.Value, stored.Reducing, stored.Aggregating:
		for _, r := range records {
			fmt.Fprintln(w, text(member(r, "value")))
		}
	default:
		names := []string{"map_key", "time", "window", "place", "written", "value"}
		var head, cells []any
		for i, r := range records {
			cells = cells[:0]
			for _, n := range names {
				if v, ok := find(r, n); ok {
					if i == 0 {
						head = append(head, heading(n))
					}
					cells = append(cells, text(v))
				}
			}
			if i == 0 {
				row(w, head...)
			}
			row(w, cells...)
		}
	}
	return w.Flush()
}

func heading(name string) string {
	return map[string]string{"map_key": "MAP KEY", "time": "TIME", "window": "WINDOW", "place": "PLACE", "written": "WRITTEN", "value": "VALUE"}[name]
}

func find(o codec.Object, name string) (any, bool) {
	for _, m := range o {
		if m.Name == name {
			return m.Value, true
		}
	}
	return nil, false
}

func member(o codec.Object, name string) any {
	v, _ := find(o, name)
	return v
}

// text is a value for people: its JSON, without quotes around a text or a time.
func text(v any) string {
	switch v := v.(type) {
	case nil:
		return "null"
	case string:
		if utf8.ValidString(v) {
			return v
		}
	case []byte:
		if utf8.Valid(v) {
			return strconv.Quote(string(v))
		}
	case time.Time:
		return v.UTC().Format(time.RFC3339Nano)
	case time.Duration:
		return v.String()
	}
	b, err := codec.AppendJSON(nil, v)
	if err != nil {
		return err.Error()
	}
	return string(b)
}

func writeLine(w io.Writer, o codec.Object) error {
	b, err := codec.AppendJSON(nil, o)
	if err != nil {
		return err
	}
	_, err = w.Write(append(b, '\n'))
	return err
}

func (a *App) stateDumpCommand() *cobra.Command {
	o := &options{}
	var format string
	var limit int
	format = asTable
	p := o.choice(&format, "output", "format of results", asTable, asLines)
	p.short, p.flag = "o", true // Not CAIRN_OUTPUT, which may be a format that other commands have.
	o.number(&limit, "limit", "end after N entries").flag = true
	return a.stateCommandOf(&cobra.Command{
		Use: "dump SNAPSHOT [OPERATOR] [STATE]", Short: "prints the entries of all states, of an operator's, or of one",
	}, o, func(ctx context.Context, s *opened, args []string) error {
		list := s.States()
		var err error
		switch len(args) {
		case 1:
			list, err = s.Of(args[0])
		case 2:
			var st *stored.State
			st, err = s.State(args[0], args[1])
			list = []*stored.State{st}
		}
		if err != nil {
			return err
		}
		return a.dump(ctx, list, format, limit, len(args) == 2)
	})
}

// errEnough ends a walk over a state.
var errEnough = errors.New("enough")

// dump prints as it reads. A table is aligned some rows at a time.
func (a *App) dump(ctx context.Context, list []*stored.State, format string, limit int, one bool) error {
	const aligned = 1000
	out := bufio.NewWriterSize(a.Stdout, 64<<10)
	defer out.Flush()
	w := tabwriter.NewWriter(out, 0, 8, 2, ' ', 0)
	n := 0
	if format == asTable {
		row(w, "OPERATOR", "STATE", "KEY", "AT", "VALUE")
	}
	for _, st := range list {
		if st.Unreadable != nil && !one { // The others can be read all the same.
			if err := w.Flush(); err != nil {
				return err
			}
			if err := out.Flush(); err != nil {
				return err
			}
			fmt.Fprintf(a.Stderr, "left out: operator %q, state %q: %v\n", st.Operator, st.Name, st.Unreadable)
			continue
		}
		err := st.Each(ctx, st.All(), func(e *stored.Entry) error {
			if limit > 0 && n == limit {
				return errEnough
			}
			n++
			r, err := e.Record()
			if err != nil {
				return err
			}
			if format == asLines {
				return writeLine(out, r)
			}
			key := ""
			if k, ok := find(r, "key"); ok {
				key = text(k)
			}
			row(w, st.Operator, st.Name, key, atOf(r), text(member(r, "value")))
			if n%aligned == 0 {
				return w.Flush()
			}
			return ctx.Err()
		})
		if errors.Is(err, errEnough) {
			break
		}
		if err != nil {
			_ = w.Flush() // What was read before is good.
			return err
		}
	}
	if err := w.Flush(); err != nil {
		return err
	}
	return out.Flush()
}

// atOf is where below its key an entry is.
func atOf(r codec.Object) string {
	for _, name := range []string{"map_key", "time", "window", "place", "list"} {
		if v, ok := find(r, name); ok {
			return text(v)
		}
	}
	if v, ok := find(r, "subtask"); ok {
		return fmt.Sprintf("%v/%v", v, member(r, "index"))
	}
	return ""
}
