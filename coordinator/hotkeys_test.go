package coordinator

import (
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus/testutil"

	"github.com/cairnstream/cairn/job"
)

// What the subtasks report is put together by operator, shown, and exported by rank; an attempt begins without.
func TestHotKeys(t *testing.T) {
	inWorld(t, func(w *world) {
		w.submit(Submission{Spec: spec("j", nil)})
		w.sleep(time.Second)
		report := func(subtask int, total float64, keys ...job.HotKey) {
			w.workers["w1"].report(job.Counters{
				Run: w.run, Task: job.Task{Vertex: "sum", Subtask: subtask}, Values: map[string]int64{"records_in": 1},
				Hot: []job.HotKeys{{Operator: "sum", Total: total, Keys: keys}},
			})
		}
		report(0, 300, job.HotKey{Key: "a", Records: 100}, job.HotKey{Key: "b", Records: 10})
		report(1, 100, job.HotKey{Key: "c", Records: 100})
		report(1, 100, job.HotKey{Key: "c", Records: 40}) // Of now.
		synctest.Wait()
		d := w.get("j")
		if len(d.HotKeys) != 1 || d.HotKeys[0].Operator != "sum" {
			t.Fatalf("%+v", d.HotKeys)
		}
		h := d.HotKeys[0]
		want := []job.HotKey{{Key: "a", Records: 100}, {Key: "c", Records: 40}, {Key: "b", Records: 10}}
		if !slices.Equal(h.Keys, want) || h.Share(h.Keys[0]) != 0.25 {
			t.Errorf("%+v", h)
		}
		err := testutil.GatherAndCompare(w.reg, strings.NewReader(`
# HELP cairn_state_hot_key_share Part of an operator's records of late that its key of that rank has, from 0 to 1; job show tells which key it is.
# TYPE cairn_state_hot_key_share gauge
cairn_state_hot_key_share{job="j",operator="sum",rank="1"} 0.25
cairn_state_hot_key_share{job="j",operator="sum",rank="2"} 0.1
cairn_state_hot_key_share{job="j",operator="sum",rank="3"} 0.025
`), "cairn_state_hot_key_share")
		if err != nil {
			t.Error(err)
		}
		w.fail(job.Task{Vertex: "sum"}, job.ClassUser)
		w.sleep(5 * time.Second)
		if d := w.want("j", JobRunning); len(d.HotKeys) != 0 {
			t.Errorf("of an attempt that is over: %+v", d.HotKeys)
		}
	})
}
