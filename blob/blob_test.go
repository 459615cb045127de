package blob_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/url"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"pgregory.net/rapid"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/blobtest"
	"github.com/cairnstream/cairn/blob/mem"
)

func TestCheckKey(t *testing.T) {
	for _, key := range []string{"a", "a/b", "a.b/c..d/-", "checkpoints/7/_metadata", "ü/ß €", strings.Repeat("s", blob.MaxSegmentLen)} {
		if err := blob.CheckKey(key); err != nil {
			t.Error(err)
		}
	}
	for _, key := range blobtest.BadKeys() {
		if err := blob.CheckKey(key); !errors.Is(err, blob.ErrBadKey) {
			t.Errorf("%q: %v", key, err)
		}
	}
}

func TestParseLocation(t *testing.T) {
	for raw, want := range map[string]blob.Location{
		"file:///var/lib/cairn":  {Scheme: blob.SchemeFile, Path: "/var/lib/cairn"},
		"file:///var/lib/cairn/": {Scheme: blob.SchemeFile, Path: "/var/lib/cairn"},
		"file:///with%20space":   {Scheme: blob.SchemeFile, Path: "/with space"},
		"file:///":               {Scheme: blob.SchemeFile, Path: "/"},
		"file:///a?keys=/etc/k":  {Scheme: blob.SchemeFile, Path: "/a", Keys: "/etc/k"},
		"s3://bucket?keys=/k":    {Scheme: blob.SchemeS3, Bucket: "bucket", Keys: "/k"},
		"mem://test":             {Scheme: blob.SchemeMem, Bucket: "test"},
		"s3://bucket":            {Scheme: blob.SchemeS3, Bucket: "bucket"},
		"s3://bucket/":           {Scheme: blob.SchemeS3, Bucket: "bucket"},
		"s3://bucket/a/b/":       {Scheme: blob.SchemeS3, Bucket: "bucket", Path: "a/b"},
		"s3://bucket/p?endpoint=http://127.0.0.1:9000/&region=eu-central-1&path-style=true": {
			Scheme: blob.SchemeS3, Bucket: "bucket", Path: "p", Endpoint: "http://127.0.0.1:9000", Region: "eu-central-1", PathStyle: true,
		},
	} {
		got, err := blob.ParseLocation(raw)
		if err != nil || got != want {
			t.Errorf("%s: got %+v, %v", raw, got, err)
			continue
		}
		if again, err := blob.ParseLocation(got.String()); err != nil || again != want {
			t.Errorf("%s: printed as %s, which is %+v, %v", raw, got, again, err)
		}
	}
}

func TestParseLocationProblems(t *testing.T) {
	for raw, want := range map[string][]string{
		"":                       {"no scheme"},
		"/var/lib":               {"no scheme"},
		"gs://bucket":            {`scheme "gs" is unknown`},
		"file://relative/dir":    {"must be absolute"},
		"file:dir":               {"must be absolute"},
		"file:///a/../b":         {".."},
		"file:///a?region=x":     {`parameter "region" is unknown`},
		"file:///a?keys=k":       {"keys is not the absolute path"},
		"mem:":                   {"names no store"},
		"s3:///prefix":           {`bucket ""`},
		"s3://UPPER":             {`bucket "UPPER"`},
		"s3://bucket/a//b":       {"a segment is empty"},
		"s3://bucket/a/../b":     {"begins with a dot"},
		"s3://bucket#x":          {"fragment"},
		"s3://bu\x7fcket":        {"cannot be read"},
		"s3://bucket?region=%zz": {"query cannot be read"},
		"s3://B/a//b?endpoint=ftp://x&path-style=maybe&acl=public&region=a&region=b": {
			`bucket "B"`, "a segment is empty", `endpoint "ftp://x"`, `path-style "maybe"`, `"acl" is unknown: want one of endpoint, keys, path-style, region`, `"region" is given 2 times`,
		},
		"s3://bucket?endpoint=http://host/path":            {"more than a host"},
		"s3://id:hunter2@bucket/p":                         {"credentials", "AWS_ACCESS_KEY_ID"},
		"s3://bucket?endpoint=http://id:hunter2@host":      {"endpoint holds credentials"},
		"s3://bucket?secret=hunter2":                       {`"secret" is unknown`},
		"s3://id:hunter2@bucket/%zz":                       {"cannot be read"},
		"s3://id:hunter2@bucket?endpoint=http://x:hunter2": {"credentials"},
	} {
		_, err := blob.ParseLocation(raw)
		if err == nil {
			t.Errorf("%s: no error", raw)
			continue
		}
		for _, part := range want {
			if !strings.Contains(err.Error(), part) {
				t.Errorf("%s: error %q does not say %q", raw, err, part)
			}
		}
		if strings.Contains(err.Error(), "hunter2") {
			t.Errorf("%s: a secret is in the error: %s", raw, err)
		}
	}
}

func TestLocationOfObjects(t *testing.T) {
	loc, err := blob.ParseLocation("s3://bucket/root?endpoint=http://h:1&path-style=true")
	if err != nil {
		t.Fatal(err)
	}
	if got := loc.Object("jobs/a b"); got != "s3://bucket/root/jobs/a%20b" {
		t.Error(got)
	}
	below, err := loc.Join("jobs/1")
	if err != nil || below.String() != "s3://bucket/root/jobs/1?endpoint=http%3A%2F%2Fh%3A1&path-style=true" {
		t.Error(below, err)
	}
	if _, err := loc.Join("../up"); !errors.Is(err, blob.ErrBadKey) {
		t.Error(err)
	}
	if key := below.Key("x"); key != "root/jobs/1/x" || below.Relative(key) != "x" {
		t.Error(key)
	}
}

// Every location prints as a URL that is read back to itself.
func TestLocationRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		loc := blob.Location{
			Scheme:    blob.SchemeS3,
			Bucket:    rapid.StringMatching(`[a-z][a-z0-9-]{2,10}[a-z]`).Draw(t, "bucket"),
			Path:      rapid.StringMatching(`([a-zA-Z0-9_ %&=#?+ü-]{1,8}(/[a-zA-Z0-9_ %&=#?+-]{1,8}){0,3})?`).Draw(t, "path"),
			Endpoint:  rapid.SampledFrom([]string{"", "http://127.0.0.1:9000", "https://minio.example"}).Draw(t, "endpoint"),
			Region:    rapid.SampledFrom([]string{"", "eu-west-1"}).Draw(t, "region"),
			PathStyle: rapid.Bool().Draw(t, "path-style"),
		}
		if got, err := blob.ParseLocation(loc.String()); err != nil || got != loc {
			t.Fatalf("%s: got %+v, %v, want %+v", loc, got, err, loc)
		}
	})
}

func TestIsTransient(t *testing.T) {
	for _, err := range []error{
		syscall.ECONNREFUSED, syscall.ECONNRESET, io.ErrUnexpectedEOF, context.DeadlineExceeded, os.ErrDeadlineExceeded,
		&net.OpError{Op: "dial", Err: &os.SyscallError{Syscall: "connect", Err: syscall.ECONNREFUSED}},
		&url.Error{Op: "Get", Err: os.ErrDeadlineExceeded},
		&net.DNSError{IsTemporary: true},
		fmt.Errorf("more: %w", &blob.Error{Err: errors.New("503"), Transient: true}),
	} {
		if !blob.IsTransient(err) || !blob.IsTransient(blob.WrapError("get", "k", err)) {
			t.Errorf("permanent: %v", err)
		}
	}
	for _, err := range []error{
		nil, context.Canceled, errors.New("what?"), blob.ErrNotExist, blob.ErrExists, syscall.ENOSPC, io.EOF,
		&blob.ShortBodyError{Got: 1, Want: 2},
		fmt.Errorf("%w: %w", blob.ErrFull, context.DeadlineExceeded),
		&blob.Error{Err: context.DeadlineExceeded},
	} {
		if blob.IsTransient(err) {
			t.Errorf("transient: %v", err)
		}
	}
}

func TestMetered(t *testing.T) {
	registry := prometheus.NewPedanticRegistry()
	open := func(t *testing.T) blob.Store {
		s, err := blob.Metered(mem.New("test"), registry)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	s := open(t)
	ctx := t.Context()
	if err := blob.PutBytes(ctx, s, "k", make([]byte, 100)); err != nil {
		t.Fatal(err)
	}
	if _, err := blob.ReadAll(ctx, s, "k", 100); err != nil {
		t.Fatal(err)
	}
	s.Stat(ctx, "none")
	s.PutIfAbsent(ctx, "k", nil)
	for range s.List(ctx, "") {
	}
	const want = `
# HELP cairn_blob_bytes_total Bytes of objects written to or read from the blob store, by operation.
# TYPE cairn_blob_bytes_total counter
cairn_blob_bytes_total{op="get"} 100
cairn_blob_bytes_total{op="put"} 100
# HELP cairn_blob_requests_total Requests to the blob store, by operation and result.
# TYPE cairn_blob_requests_total counter
cairn_blob_requests_total{op="get",result="ok"} 1
cairn_blob_requests_total{op="list",result="ok"} 1
cairn_blob_requests_total{op="put",result="ok"} 1
cairn_blob_requests_total{op="put-if-absent",result="exists"} 1
cairn_blob_requests_total{op="stat",result="missing"} 1
`
	if err := testutil.GatherAndCompare(registry, strings.NewReader(want), "cairn_blob_requests_total", "cairn_blob_bytes_total"); err != nil {
		t.Error(err)
	}
	if problems, err := testutil.GatherAndLint(registry); err != nil || len(problems) > 0 {
		t.Error(problems, err)
	}
	blobtest.Run(t, open)
}
