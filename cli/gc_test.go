package cli

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cairnstream/cairn/coordinator"
	"github.com/cairnstream/cairn/rpc"
	"github.com/cairnstream/cairn/test/servers"
)

// keeping is a JobManager of the cluster prod.
type keeping struct {
	listing
	job coordinator.Job
}

func (k *keeping) List(context.Context) ([]coordinator.Job, error) {
	return []coordinator.Job{k.job}, nil
}

func (k *keeping) Get(context.Context, string) (coordinator.JobDetail, error) {
	d := k.detail()
	d.Job = k.job
	return d, nil
}

func (k *keeping) Version(context.Context) (rpc.Version, error) {
	return rpc.Version{Cluster: "prod", Leader: true}, nil
}

func TestGC(t *testing.T) {
	dir := t.TempDir()
	visitSnapshots(t, dir)
	const checkpoints = "prod/jobs/job/checkpoints/"
	orphans := []string{checkpoints + "1/a9.e9.v-0.0", checkpoints + "3/a9.e9.v-0.0", "prod/jobs/gone/checkpoints/1/a1.e1.v-0.0"}
	for _, key := range orphans {
		path := filepath.Join(dir, key)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("left behind"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	there := func(key string) bool {
		_, err := os.Stat(filepath.Join(dir, key))
		return err == nil
	}
	jm := &keeping{listing: listing{list: []coordinator.Checkpoint{
		{ID: 3, State: coordinator.CheckpointInProgress},
		{ID: 2, State: coordinator.CheckpointCompleted, Manifest: checkpoints + "2/_metadata"},
		{ID: 1, State: coordinator.CheckpointCompleted, Manifest: checkpoints + "1/_metadata"},
	}}, job: coordinator.Job{ID: "job", Name: "visits", State: coordinator.JobRunning, Checkpoint: 2}}
	addr := serveJobs(t, jm)
	gc := func(code int, args ...string) gcView {
		t.Helper()
		r := call(nil, nil, append([]string{"cairn", "gc", "--jobmanager", addr, "--blob", "file://" + dir, "-o", "json"}, args...)...)
		if r.code != code {
			t.Fatalf("%q: %+v", args, r)
		}
		var v gcView
		if r.stdout != "" {
			if err := json.Unmarshal([]byte(r.stdout), &v); err != nil {
				t.Fatal(err)
			}
		}
		return v
	}
	if v := gc(Done); len(v.Garbage) != 0 || v.Young != 2 {
		t.Errorf("younger than an hour: %+v", v)
	}
	for _, key := range orphans {
		then := time.Now().Add(-2 * time.Hour)
		if err := os.Chtimes(filepath.Join(dir, key), then, then); err != nil {
			t.Fatal(err)
		}
	}
	if v := gc(Done, "--min-age", "3h"); len(v.Garbage) != 0 || v.Young != 2 {
		t.Errorf("younger than three hours: %+v", v)
	}
	if v := gc(Done, "--dry-run"); len(v.Garbage) != 2 || v.Deleted != 0 || !there(orphans[0]) {
		t.Errorf("dry run: %+v", v)
	}
	if v := gc(Done, "--job", "visits"); v.Deleted != 1 || there(orphans[0]) || !there(orphans[1]) || !there(orphans[2]) {
		t.Errorf("one job: %+v", v)
	}
	if v := gc(Done); v.Deleted != 1 || v.Cluster != "prod" || !there(orphans[1]) || there(orphans[2]) {
		t.Errorf("what is in progress stays: %+v", v)
	}
	if v := gc(Refused, "--offline", "--cluster", "prod"); v.Deleted != 0 || !there(orphans[1]) {
		t.Errorf("offline beside a JobManager: %+v", v)
	}
	jm.job.State, jm.job.Checkpoint, jm.list = coordinator.JobFailed, 2, nil // A job that the JobManager's version cannot run.
	if v := gc(Failed); v.Deleted != 0 || len(v.Problems) != 1 || !there(orphans[1]) {
		t.Errorf("checkpoints that are not told of: %+v", v)
	}
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"--jobmanager", "127.0.0.1:1", "--blob", "file://" + dir}, Unreachable, "--offline says so"},
		{[]string{"--jobmanager", addr}, Usage, "missing flag --blob"},
		{[]string{"--jobmanager", addr, "--blob", "file://" + dir, "--cluster", "other"}, Usage, "the JobManager is of cluster prod"},
		{[]string{"--jobmanager", addr, "--blob", "file://" + dir, "--min-age", "soon"}, Usage, "is not a duration"},
		{[]string{"--jobmanager", "127.0.0.1:1", "--blob", "file://" + dir, "--offline", "--cluster", "prod"}, Done, "Deleted:  1\n"},
		{[]string{"--jobmanager", "127.0.0.1:1", "--blob", "file://" + dir, "--offline", "--cluster", "prod"}, Done, "Garbage:  0 objects, 0 B\n"},
	} {
		r := call(nil, nil, append([]string{"cairn", "gc"}, c.args...)...)
		if r.code != c.code || !strings.Contains(r.stdout+r.stderr, c.want) {
			t.Errorf("%q: %+v", c.args, r)
		}
	}
	if there(orphans[1]) {
		t.Error("an object of no checkpoint is there after a sweep offline")
	}
	for _, n := range []string{"1", "2"} {
		if r := call(nil, nil, "cairn", "checkpoint", "verify", filepath.Join(dir, checkpoints, n)); r.code != Done || strings.Contains(r.stdout, "Not listed") {
			t.Errorf("checkpoint %s after the sweeps: %+v", n, r)
		}
	}
}

// Uploads that nobody completes are found behind everything that a store is wrapped in, and taken back.
func TestGCUploads(t *testing.T) {
	server := servers.S3(t)
	for _, kv := range server.Env() {
		name, value, _ := strings.Cut(kv, "=")
		t.Setenv(name, value)
	}
	client, err := minio.NewCore(strings.TrimPrefix(server.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: server.Region, BucketLookup: minio.BucketLookupPath,
	})
	if err != nil {
		t.Fatal(err)
	}
	const key = "prod/jobs/gone/checkpoints/1/a1.e1.v-0.0"
	id, err := client.NewMultipartUpload(t.Context(), server.Bucket, "root/"+key, minio.PutObjectOptions{})
	if err != nil {
		t.Fatal(err)
	}
	left := func() int {
		r, err := client.ListMultipartUploads(t.Context(), server.Bucket, "", "", "", "", 10)
		if err != nil {
			t.Fatal(err)
		}
		return len(r.Uploads)
	}
	gc := func(args ...string) gcView {
		t.Helper()
		r := call(nil, []string{"CAIRN_JOBMANAGER=127.0.0.1:1"}, append([]string{"cairn", "gc", "--blob", server.URL("root"), "--offline", "--cluster", "prod", "-o", "json"}, args...)...)
		var v gcView
		if err := json.Unmarshal([]byte(r.stdout), &v); err != nil || r.code != Done {
			t.Fatalf("%+v, %v", r, err)
		}
		return v
	}
	if v := gc(); len(v.Uploads) != 0 {
		t.Errorf("younger than an hour: %+v", v)
	}
	// The gateway tells the time of an upload in whole seconds, which may lie ahead.
	if v := gc("--min-age", "1ns", "--dry-run"); v.Deleted != 0 || left() != 1 {
		t.Errorf("dry run: %+v", v)
	}
	v := gc("--min-age", "1ns")
	for begun := time.Now(); len(v.Uploads) == 0 && time.Since(begun) < 10*time.Second; {
		v = gc("--min-age", "1ns")
	}
	if len(v.Uploads) != 1 || v.Uploads[0].Key != key || v.Uploads[0].ID != id || v.Deleted != 1 || left() != 0 {
		t.Errorf("%+v, and %d are left", v, left())
	}
}
