package cli

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"
	"gopkg.in/yaml.v3"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/codec"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/serve"
	"github.com/cairnstream/cairn/snapshot"
	"github.com/cairnstream/cairn/statebackend/stored"
)

// now is the time of the savepoints that commands make; tests stop it.
var now = time.Now

type savepointView struct {
	Savepoint   string `json:"savepoint"`
	DerivedFrom string `json:"derived_from"`
	Changes     int    `json:"changes"`
}

func (a *App) statePatchCommand() *cobra.Command {
	o := &options{}
	var format, to string
	o.output(&format)
	o.text(&to, "to", "DEST", "folder or URL of the savepoint to make, where there is nothing yet").flag = true
	o.check = func() []string { return needsPlace(to) }
	return a.stateCommandOf(&cobra.Command{
		Use:   "patch SNAPSHOT FILE...",
		Short: "makes a savepoint of a snapshot with some entries set or removed",
		Long: `Makes a savepoint of a snapshot with some entries set or removed; everything else is carried over.

Each line of FILE is an entry as cairn state dump -o ndjson prints it, which is set, or one with "delete": true, which is
removed:
  {"operator":"users","state":"total","key":"ann","value":6}
  {"operator":"users","state":"pages","key":"ann","map_key":"/cart","delete":true}
Without its map_key, time or window all of the key is removed. The value of a list is the whole list.`,
	}, o, func(ctx context.Context, s *opened, files []string) error {
		return a.makeSavepoint(ctx, s.Snapshot, files, to, format)
	})
}

func needsPlace(to string) []string {
	if to == "" {
		return []string{"missing flag --to DEST: the folder or URL of the savepoint to make"}
	}
	return nil
}

func (a *App) stateCreateCommand() *cobra.Command {
	o := &options{}
	var format, to, schema string
	o.output(&format)
	o.text(&to, "to", "DEST", "folder or URL of the savepoint to make, where there is nothing yet").flag = true
	o.text(&schema, "schema", "FILE", "YAML file with the job's name and its states").flag = true
	o.check = func() []string {
		problems := needsPlace(to)
		if schema == "" {
			problems = append(problems, "missing flag --schema FILE")
		}
		return problems
	}
	return a.command(&cobra.Command{
		Use:   "create FILE...",
		Short: "makes a savepoint from files, for a job to begin with",
		Long: `Makes a savepoint from files, for a job to begin with. Each line of FILE is an entry, as cairn state patch takes it.

The file of --schema has the states as the program declares them. Types are those that cairn state ls shows:
  job: visits
  key-groups: 720        # max-parallelism of the job; this is the default
  operators:
    users:
      parallelism: 4     # into how many parts; a restore may change it
      states:
        profile: {key: string, value: "{Visits int64, Last time}"}
        pages:   {kind: map, key: string, map-key: string, value: int64, ttl: true}`,
	}, o, func(ctx context.Context, files []string) error {
		s, err := readSchema(schema)
		if err != nil {
			return err
		}
		return storedError(a.makeSavepoint(ctx, s, files, to, format))
	})
}

// schemaFile is the file of --schema.
type schemaFile struct {
	Job       string
	KeyGroups int `yaml:"key-groups"`
	Operators map[string]struct {
		Parallelism int
		States      map[string]struct {
			Kind   string
			Key    string
			MapKey string `yaml:"map-key"`
			Value  string
			TTL    bool
		}
	}
}

// readSchema makes the empty snapshot that a file describes. The error lists everything that is wrong with it.
func readSchema(name string) (*stored.Snapshot, error) {
	data, err := os.ReadFile(name)
	if err != nil {
		return nil, usage("--schema", err.Error())
	}
	f := schemaFile{KeyGroups: job.DefaultMaxParallelism}
	d := yaml.NewDecoder(bytes.NewReader(data))
	d.KnownFields(true)
	if err := d.Decode(&f); err != nil && !errors.Is(err, io.EOF) {
		return nil, usage("--schema "+name, strings.TrimPrefix(err.Error(), "yaml: "))
	}
	var problems []string
	if f.Job == "" {
		problems = append(problems, "job: the name of the job is missing")
	}
	if len(f.Operators) == 0 {
		problems = append(problems, "operators: there are none")
	}
	parallelism := map[string]int{}
	var states []stored.Declaration
	for op, o := range f.Operators {
		parallelism[op] = o.Parallelism
		for state, s := range o.States {
			at := "operators." + op + ".states." + state
			d := stored.Declaration{Operator: op, Name: state, Kind: stored.Kind(s.Kind), TTL: s.TTL}
			if s.Kind == "" {
				d.Kind = stored.Value
			}
			found := len(problems)
			for _, t := range []struct {
				name, text string
				schema     *codec.Schema
			}{{"key", s.Key, &d.Key}, {"map-key", s.MapKey, &d.MapKey}, {"value", s.Value, &d.Value}} {
				if t.text == "" {
					continue
				}
				var err error
				if *t.schema, err = codec.ParseTypeText(t.text); err != nil {
					problems = append(problems, at+"."+t.name+": "+err.Error())
				}
			}
			if _, err := d.Tables(); err != nil && len(problems) == found {
				problems = append(problems, at+": "+err.Error())
			}
			states = append(states, d)
		}
	}
	if len(problems) == 0 {
		s, err := stored.Blank(f.Job, f.KeyGroups, parallelism, states)
		if err == nil {
			return s, nil
		}
		problems = problemsOf(err)
	}
	slices.Sort(problems)
	return nil, usage("--schema "+name, problems...)
}

// makeSavepoint applies the changes in files, all of which have to be right, and writes the savepoint.
func (a *App) makeSavepoint(ctx context.Context, s *stored.Snapshot, files []string, to, format string) error {
	loc, err := placeOf(to)
	var p snapshot.Folder
	if err == nil {
		p, err = snapshot.ParseFolder(blob.Location{Scheme: loc.Scheme, Path: loc.Path})
	}
	if err == nil && p.Job != "" {
		err = errors.New("checkpoints of jobs lie below such a folder: choose another one for a savepoint")
	}
	if err != nil {
		return usage("--to", err.Error())
	}
	loc.Path = p.Root.Path
	e := stored.NewEditor(s, now())
	if err := applyFiles(ctx, s, e, files); err != nil {
		return err
	}
	store, closeStore, err := serve.OpenBlob(ctx, loc, false)
	if err != nil {
		return err
	}
	defer closeStore()
	key, err := e.Write(ctx, store, p.Dir)
	if errors.Is(err, blob.ErrExists) {
		return &codeError{code: Refused, err: fmt.Errorf("--to %s: there is something already, and nothing is overwritten: %w", to, err)}
	}
	if err != nil {
		return err
	}
	at := loc.Object(path.Dir(key))
	if loc.Scheme == blob.SchemeS3 {
		if whole, err := loc.Join(path.Dir(key)); err == nil {
			at = whole.String()
		}
	}
	from := s.Manifest.Derived
	if from == "" {
		from = fmt.Sprintf("checkpoint %d of job %s", uint64(s.Manifest.Checkpoint), s.Manifest.Job)
	}
	v := savepointView{Savepoint: at, DerivedFrom: from, Changes: e.Changes()}
	return write(a.Stdout, format, v, func(w *tabwriter.Writer) {
		field(w, "Savepoint", to)
		field(w, "Made from", v.DerivedFrom)
		field(w, "Changes", count(int64(v.Changes)))
	})
}

// maxWrongLines bounds what is said about the lines of files.
const maxWrongLines = 20

// applyFiles reads changes. The error lists the lines that are wrong.
func applyFiles(ctx context.Context, s *stored.Snapshot, e *stored.Editor, files []string) error {
	var problems []string
	more := 0
	for _, name := range files {
		f, err := os.Open(name)
		if err != nil {
			problems = append(problems, err.Error())
			continue
		}
		err = eachLine(f, func(n int, line []byte) error {
			c, err := s.ParseChange(line)
			if err == nil {
				err = e.Apply(c)
			}
			switch {
			case err != nil && len(problems) < maxWrongLines:
				problems = append(problems, fmt.Sprintf("%s:%d: %v", name, n, err))
			case err != nil:
				more++
			}
			return ctx.Err()
		})
		if err = errors.Join(err, f.Close()); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
	}
	if more > 0 {
		problems = append(problems, fmt.Sprintf("and %d lines more", more))
	}
	if len(problems) > 0 {
		return usage("changes", problems...)
	}
	return nil
}

// eachLine visits the lines of a file that are not empty, with their numbers.
func eachLine(r io.Reader, visit func(n int, line []byte) error) error {
	lines := bufio.NewReaderSize(r, 64<<10)
	for n := 1; ; n++ {
		line, err := lines.ReadBytes('\n')
		if line = bytes.TrimSpace(line); len(line) > 0 {
			if err := visit(n, line); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
