package flightsjob

import (
	"path/filepath"
	"testing"
	"time"

	"github.com/cairnstream/cairn/connector/file"
	"github.com/cairnstream/cairn/job"
	"github.com/cairnstream/cairn/operator"
	"github.com/cairnstream/cairn/operator/window"
	"github.com/cairnstream/cairn/record"
)

// The job's source and sink give the answer with a loop in place of the engine between them, for one compressed file
// and for plain ones in small ranges.
func TestConnectors(t *testing.T) {
	dir := t.TempDir()
	packed, err := Write(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := Deal(dir, 4); err != nil {
		t.Fatal(err)
	}
	for i, input := range []string{packed, filepath.Join(dir, "flights-?.ndjson")} {
		src := file.Source[Flight]{Paths: []string{input}, Decode: Decode, SplitSize: 100_000}
		c := operator.SourceContext{Name: "flights", Parallelism: 1}
		splits, err := src.Splits(t.Context(), c)
		if err != nil {
			t.Fatal(err)
		}
		sums := map[Key]*Delays{}
		for _, s := range splits {
			r, err := src.Open(t.Context(), c, s)
			if err != nil {
				t.Fatal(err)
			}
			for status := operator.ReadMore; status != operator.ReadEnd; {
				b := record.PoolOf[Flight]().Get()
				if status, err = r.Read(b, 1024); err != nil {
					t.Fatal(err)
				}
				for i := range b.Rows {
					f := &b.Rows[i]
					k := Key{f.Origin, f.Time.Format(time.DateOnly)}
					if sums[k] == nil {
						sums[k] = &Delays{}
					}
					Delays{}.Add(sums[k], f)
				}
				b.Release()
			}
			if err := r.Close(); err != nil {
				t.Error(err)
			}
		}
		out := filepath.Join(dir, "out", string(rune('a'+i)))
		sink := file.Sink[Daily]{Path: out, Format: file.CSV, PartSize: 20_000}
		sc := operator.SinkContext{Run: job.Run{Job: "00000000000000aa", Attempt: 1}, Name: "out", Parallelism: 1}
		w, err := sink.Writer(t.Context(), sc)
		if err != nil {
			t.Fatal(err)
		}
		b := &record.Batch[Daily]{}
		for k, d := range sums {
			day, _ := time.Parse(time.DateOnly, k.Start)
			b.Rows = append(b.Rows, Delays{}.Result(window.Pane[string]{Key: k.Airport, Start: day.UnixMilli()}, d))
		}
		if err := w.Write(b); err != nil {
			t.Fatal(err)
		}
		list, err := w.Prepare(1)
		if err != nil {
			t.Fatal(err)
		}
		if Check(out, Expected) == nil {
			t.Error("output is visible before the commit")
		}
		m, err := sink.Committer(t.Context(), sc)
		if err != nil {
			t.Fatal(err)
		}
		if err := m.Commit(t.Context(), list); err != nil {
			t.Fatal(err)
		}
		if err := w.Close(); err != nil {
			t.Error(err)
		}
		if err := Check(out, Expected); err != nil {
			t.Error(err)
		}
	}
}
