package cli

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/serve"
	"github.com/cairnstream/cairn/snapshot"
)

func (a *App) savepointCommand() *cobra.Command {
	return a.group(
		&cobra.Command{Use: "savepoint", Short: "takes, lists, shows, verifies and deletes savepoints; those in a folder without a cluster"},
		a.savepointTakeCommand(), a.savepointListCommand(), a.savepointShowCommand(), a.savepointVerifyCommand(), a.savepointDeleteCommand(),
	)
}

type savepointInfo struct {
	Folder      string     `json:"folder"`
	Job         string     `json:"job,omitempty"`
	Name        string     `json:"name,omitempty"`
	Program     string     `json:"program,omitempty"`
	Version     string     `json:"version,omitempty"`
	Checkpoint  uint64     `json:"checkpoint,omitempty"`
	Created     *time.Time `json:"created,omitempty"`
	DerivedFrom string     `json:"derived_from,omitempty"`
	KeyGroups   int        `json:"key_groups,omitempty"`
	Bytes       int64      `json:"bytes"`
	Objects     int        `json:"objects"`
	Error       string     `json:"error,omitempty"`
}

func viewSavepoint(folder string, m *snapshot.Manifest) savepointInfo {
	return savepointInfo{
		Folder: folder, Job: string(m.Job), Name: m.JobName, Program: m.Program, Version: m.Version, Checkpoint: uint64(m.Checkpoint),
		Created: &m.Created, DerivedFrom: m.Derived, KeyGroups: m.K, Bytes: m.Bytes, Objects: len(snapshot.ObjectsOf(m)),
	}
}

func (a *App) savepointListCommand() *cobra.Command {
	c := a.newClient()
	return a.command(&cobra.Command{
		Use: "list [WHERE]", Short: "lists the savepoints and checkpoints below a folder or URL; or those that a JobManager has on record, of a JOB or of all",
	}, &c.options, func(ctx context.Context, args []string) error {
		format := c.format
		if len(args) == 0 {
			return a.takenSavepoints(ctx, c, "")
		}
		if ref, err := parseRef(args); err == nil && ref.job != "" && ref.id == 0 && ref.job == args[0] {
			return a.takenSavepoints(ctx, c, ref.job)
		}
		loc, err := placeOf(args[0])
		if err != nil {
			return usage("savepoint list", err.Error())
		}
		store, done, err := serve.OpenBlob(ctx, loc, true)
		if err != nil {
			if errors.Is(err, blob.ErrNotExist) {
				return &codeError{code: NotFound, err: err}
			}
			return storedError(err)
		}
		defer done()
		list := []savepointInfo{}
		damaged := 0
		for info, err := range store.List(ctx, "") {
			if err != nil {
				return storedError(err)
			}
			if path.Base(info.Key) != manifestName {
				continue
			}
			m, err := snapshot.LoadManifest(ctx, store, info.Key)
			switch {
			case err == nil:
				list = append(list, viewSavepoint(path.Dir(info.Key), m))
			case blob.IsTransient(err), ctx.Err() != nil:
				return storedError(err)
			default:
				damaged++
				list = append(list, savepointInfo{Folder: path.Dir(info.Key), Error: err.Error()})
			}
		}
		err = write(a.Stdout, format, list, func(w *tabwriter.Writer) {
			row(w, "FOLDER", "JOB", "CHECKPOINT", "CREATED", "SIZE", "OBJECTS", "MADE FROM")
			for _, s := range list {
				if s.Error != "" {
					row(w, s.Folder, "", "", "", "", "", s.Error)
					continue
				}
				row(w, s.Folder, fmt.Sprintf("%s (%s)", s.Name, s.Job), s.Checkpoint, clock(*s.Created), size(s.Bytes), s.Objects, s.DerivedFrom)
			}
		})
		if err == nil && damaged > 0 {
			err = fmt.Errorf("%s cannot be read", plural(damaged, "manifest"))
		}
		return err
	})
}

type savepointDetail struct {
	savepointInfo
	Operators []savepointOperator `json:"operators"`
	Files     []string            `json:"files"`
}

type savepointOperator struct {
	Name        string `json:"name"`
	Parallelism int    `json:"parallelism"`
	States      int    `json:"states"`
	Entries     int64  `json:"entries"`
	Bytes       int64  `json:"bytes"`
}

func (a *App) savepointShowCommand() *cobra.Command {
	o := &options{}
	var format string
	o.output(&format)
	return a.stateCommandOf(&cobra.Command{
		Use: "show SNAPSHOT", Short: "shows what a savepoint is of, and how large its operators are",
	}, o, func(_ context.Context, s *opened, _ []string) error {
		m := s.Manifest
		v := savepointDetail{savepointInfo: viewSavepoint(path.Dir(s.key), m), Operators: []savepointOperator{}, Files: snapshot.ObjectsOf(m)}
		if v.Files == nil {
			v.Files = []string{}
		}
		for _, name := range slices.Sorted(maps.Keys(m.Operators)) {
			op := savepointOperator{Name: name, Parallelism: m.Operators[name].Parallelism}
			for _, st := range s.States() {
				if st.Operator == name {
					op.States++
					op.Entries += st.Entries
					op.Bytes += st.Bytes
				}
			}
			v.Operators = append(v.Operators, op)
		}
		return write(a.Stdout, format, v, func(w *tabwriter.Writer) {
			field(w, "Folder", v.Folder)
			snapshotFields(w, m)
			field(w, "Key groups", m.K)
			field(w, "Size", size(m.Bytes))
			field(w, "Objects", strings.Join(v.Files, "\n"))
			fmt.Fprintln(w)
			row(w, "OPERATOR", "PARALLELISM", "STATES", "ENTRIES", "SIZE")
			for _, op := range v.Operators {
				row(w, op.Name, op.Parallelism, op.States, count(op.Entries), size(op.Bytes))
			}
		})
	})
}
