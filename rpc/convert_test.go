package rpc

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"math"
	"os"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"google.golang.org/protobuf/proto"
	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/job"
	pb "github.com/cairnstream/cairn/proto/cairn/v1"
)

var commandTypes = []job.Command{
	job.Deploy{}, job.Start{}, job.Cancel{}, job.Trigger{}, job.Complete{}, job.Abort{}, job.ReadersDone{}, job.Finish{},
	job.Deliver{},
}

var reportTypes = []job.Report{job.TaskChanged{}, job.Ack{}, job.Decline{}, job.Mail{}, job.Counters{}}

// choices has the values of types and of fields that hold only certain ones.
var choices = map[string][]string{
	"job.Partition":               keys(partitions.to),
	"job.Mode":                    keys(modes.to),
	"job.Class":                   keys(classes.to),
	"job.TaskState":               keys(taskStates.to),
	"coordinator.JobState":        keys(jobStates.to),
	"coordinator.CheckpointState": keys(checkpointStates.to),
	"Settings.OnCancel":           keys(onCancels.to),
	"Settings.RestartStrategy":    keys(strategies.to),
}

func keys[K ~string, V any](m map[K]V) []string {
	var out []string
	for k := range m {
		out = append(out, string(k))
	}
	slices.Sort(out)
	return out
}

// never are the fields that must not be empty.
var never = []string{"Run.Job", "Task.Vertex", "WorkerInfo.ID"}

// fill sets every field of v, whatever fields there are, so that a new one that a conversion forgets is noticed.
// Empty slices and maps are nil, as they are after a conversion.
func fill(t *rapid.T, v reflect.Value, field string) {
	switch v.Interface().(type) {
	case time.Time:
		if rapid.Bool().Draw(t, field) {
			v.Set(reflect.ValueOf(time.Unix(rapid.Int64Range(0, 1<<33).Draw(t, field), rapid.Int64Range(0, 999_999_999).Draw(t, field)).UTC()))
		}
		return
	case time.Duration:
		v.SetInt(rapid.Int64().Draw(t, field))
		return
	}
	if c, ok := choices[field]; ok {
		v.SetString(rapid.SampledFrom(c).Draw(t, field))
		return
	}
	if c, ok := choices[v.Type().String()]; ok {
		v.SetString(rapid.SampledFrom(c).Draw(t, field))
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(t, v.Field(i), v.Type().Name()+"."+v.Type().Field(i).Name)
		}
	case reflect.Pointer:
		if rapid.Bool().Draw(t, field) {
			v.Set(reflect.New(v.Type().Elem()))
			fill(t, v.Elem(), field)
		}
	case reflect.Slice:
		if n := rapid.IntRange(0, 3).Draw(t, field); n > 0 {
			v.Set(reflect.MakeSlice(v.Type(), n, n))
			for i := range n {
				fill(t, v.Index(i), field)
			}
		}
	case reflect.Map:
		if n := rapid.IntRange(0, 3).Draw(t, field); n > 0 {
			v.Set(reflect.MakeMap(v.Type()))
			for range n {
				k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
				fill(t, k, field)
				fill(t, e, field)
				v.SetMapIndex(k, e)
			}
		}
	case reflect.String:
		s := rapid.String().Draw(t, field)
		if slices.Contains(never, field) {
			s += "x"
		}
		v.SetString(s)
	case reflect.Bool:
		v.SetBool(rapid.Bool().Draw(t, field))
	case reflect.Int:
		v.SetInt(rapid.Int64Range(math.MinInt32, math.MaxInt32).Draw(t, field))
	case reflect.Int64:
		v.SetInt(rapid.Int64().Draw(t, field))
	case reflect.Uint64:
		v.SetUint(rapid.Uint64().Draw(t, field))
	case reflect.Float64:
		v.SetFloat(rapid.Float64().Draw(t, field))
	case reflect.Uint8:
		v.SetUint(uint64(rapid.Byte().Draw(t, field)))
	default:
		t.Fatalf("%s: no generator for %v", field, v.Type())
	}
}

// draw makes a value of the type of like.
func draw[T any](t *rapid.T, like T) T {
	v := reflect.New(reflect.TypeOf(like)).Elem()
	fill(t, v, v.Type().Name())
	return v.Interface().(T)
}

// wire sends m through its encoding.
func wire[M proto.Message](t *rapid.T, m M) M {
	b, err := proto.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	out := m.ProtoReflect().New().Interface().(M)
	if err := proto.Unmarshal(b, out); err != nil {
		t.Fatal(err)
	}
	return out
}

func same[T any](t *rapid.T, got, want T, err error) {
	if err != nil {
		t.Fatalf("%+v: %v", want, err)
	}
	if !reflect.DeepEqual(got, want) {
		t.Fatalf("got  %+v\nwant %+v", got, want)
	}
}

func TestCommandsRoundTrip(t *testing.T) {
	for _, like := range commandTypes {
		t.Run(reflect.TypeOf(like).Name(), rapid.MakeCheck(func(t *rapid.T) {
			want := draw(t, like)
			p, err := commandToProto(7, want)
			if err != nil {
				t.Fatal(err)
			}
			p = wire(t, p)
			if p.Epoch != 7 {
				t.Fatalf("epoch %d", p.Epoch)
			}
			got, err := commandFromProto(p)
			same(t, got, want, err)
		}))
	}
}

func TestReportsRoundTrip(t *testing.T) {
	for _, like := range reportTypes {
		t.Run(reflect.TypeOf(like).Name(), rapid.MakeCheck(func(t *rapid.T) {
			want := draw(t, like)
			p, err := reportToProto(7, want)
			if err != nil {
				t.Fatal(err)
			}
			p = wire(t, p)
			if p.Epoch != 7 {
				t.Fatalf("epoch %d", p.Epoch)
			}
			got, err := reportFromProto(p)
			same(t, got, want, err)
		}))
	}
}

func TestAPIRoundTrip(t *testing.T) {
	check := func(name string, f func(*rapid.T, *decoder)) {
		t.Run(name, rapid.MakeCheck(func(t *rapid.T) { f(t, &decoder{}) }))
	}
	check("Submission", func(t *rapid.T, d *decoder) {
		want := draw(t, coordinator.Submission{})
		same(t, d.submission(wire(t, submissionToProto(want))), want, d.err)
	})
	check("Submitted", func(t *rapid.T, d *decoder) {
		want := draw(t, coordinator.Submitted{})
		same(t, d.submitted(wire(t, submittedToProto(want))), want, d.err)
	})
	check("JobDetail", func(t *rapid.T, d *decoder) {
		want := draw(t, coordinator.JobDetail{})
		same(t, d.detail(wire(t, detailToProto(want))), want, d.err)
	})
	check("CheckpointDetail", func(t *rapid.T, d *decoder) {
		want := draw(t, coordinator.CheckpointDetail{})
		same(t, d.checkpointDetail(wire(t, checkpointDetailToProto(want))), want, d.err)
	})
	check("Savepoint", func(t *rapid.T, d *decoder) {
		want := draw(t, coordinator.Savepoint{})
		same(t, d.savepoint(wire(t, savepointToProto(want))), want, d.err)
	})
	check("Node", func(t *rapid.T, d *decoder) {
		want := draw(t, coordinator.Node{})
		same(t, d.node(wire(t, nodeToProto(want))), want, d.err)
	})
	check("Version", func(t *rapid.T, d *decoder) {
		want := draw(t, Version{})
		same(t, versionFromProto(wire(t, versionToProto(want))), want, d.err)
	})
}

// The lists above are complete: they are compared with the methods that mark messages in package job.
func TestEveryMessageIsTested(t *testing.T) {
	want := map[string][]string{"command": nil, "report": nil}
	files, err := os.ReadDir("../job")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name(), ".go") {
			continue
		}
		file, err := parser.ParseFile(token.NewFileSet(), "../job/"+f.Name(), nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, d := range file.Decls {
			fn, ok := d.(*ast.FuncDecl)
			if !ok || fn.Recv == nil {
				continue
			}
			if _, ok := want[fn.Name.Name]; ok {
				want[fn.Name.Name] = append(want[fn.Name.Name], fmt.Sprint(fn.Recv.List[0].Type))
			}
		}
	}
	names := func(vs []any) (out []string) {
		for _, v := range vs {
			out = append(out, reflect.TypeOf(v).Name())
		}
		slices.Sort(out)
		return out
	}
	var commands, reports []any
	for _, c := range commandTypes {
		commands = append(commands, c)
	}
	for _, r := range reportTypes {
		reports = append(reports, r)
	}
	for what, got := range map[string][]string{"command": names(commands), "report": names(reports)} {
		slices.Sort(want[what])
		if !slices.Equal(got, want[what]) {
			t.Errorf("%ss: tested are %v, there are %v", what, got, want[what])
		}
	}
}

func TestUnreadableMessages(t *testing.T) {
	run := &pb.Run{Job: "0011223344556677", Attempt: 1}
	task := &pb.Task{Vertex: "sum"}
	for _, c := range []struct {
		name string
		msg  *pb.SessionRequest
		want string
	}{
		{"empty", &pb.SessionRequest{}, "the message is empty or of a later version"},
		{"no job", &pb.SessionRequest{Message: &pb.SessionRequest_Mail{Mail: &pb.Mail{From: task, To: task}}}, "job.Mail: the message does not say which job it is about"},
		{"nil", &pb.SessionRequest{Message: &pb.SessionRequest_Ack{}}, "job.Ack: the message does not say which job it is about"},
		{"no task", &pb.SessionRequest{Message: &pb.SessionRequest_Ack{Ack: &pb.Ack{Run: run}}}, "job.Ack: the message does not say which task it is about"},
		{"no state", &pb.SessionRequest{Message: &pb.SessionRequest_TaskChanged{TaskChanged: &pb.TaskChanged{Run: run, Task: task}}}, "job.TaskChanged: state of a task 0 is unknown"},
		{"no failure", &pb.SessionRequest{Message: &pb.SessionRequest_Decline{Decline: &pb.Decline{Run: run, Task: task}}}, "job.Decline: failure is missing"},
	} {
		if _, err := reportFromProto(c.msg); err == nil || err.Error() != c.want {
			t.Errorf("%s: got %v, want %q", c.name, err, c.want)
		}
	}
	if _, err := commandFromProto(&pb.SessionResponse{Message: &pb.SessionResponse_Deploy{Deploy: &pb.Deploy{Run: run}}}); err == nil {
		t.Error("a Deploy without a spec is taken")
	}
}

// A failure may quote the bytes of a bad record, which need not be UTF-8.
func TestFailureWithBytes(t *testing.T) {
	p, err := reportToProto(1, job.TaskChanged{
		Run: job.Run{Job: "j"}, Task: job.Task{Vertex: "v"}, State: job.TaskFailed,
		Failure: &job.Failure{Class: job.ClassRecord, Message: "line 3: \xff\xfe"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := proto.Marshal(p); err != nil {
		t.Errorf("cannot be sent: %v", err)
	}
}

func FuzzMessages(f *testing.F) {
	for _, c := range commandTypes {
		if p, err := commandToProto(1, c); err == nil {
			b, _ := proto.Marshal(p)
			f.Add(b)
		}
	}
	for _, r := range reportTypes {
		if p, err := reportToProto(1, r); err == nil {
			b, _ := proto.Marshal(p)
			f.Add(b)
		}
	}
	f.Fuzz(func(_ *testing.T, b []byte) {
		down, up := &pb.SessionResponse{}, &pb.SessionRequest{}
		if proto.Unmarshal(b, down) == nil {
			_, _ = commandFromProto(down)
		}
		if proto.Unmarshal(b, up) == nil {
			_, _ = reportFromProto(up)
		}
	})
}
