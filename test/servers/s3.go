package servers

import (
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"path/filepath"
	"testing"
)

// S3Server is an S3 gateway over a directory.
type S3Server struct {
	*Process
	Endpoint             string // http://127.0.0.1:PORT
	AccessKey, SecretKey string
	Region               string
	Bucket               string // exists from the start
	dir                  string
}

// S3 starts a gateway with an empty bucket for a test, which ends with the test.
func S3(t testing.TB) *S3Server {
	t.Helper()
	s, err := StartS3(t.Context(), t.TempDir())
	require(t, err)
	t.Cleanup(s.Kill)
	return s
}

// StartS3 starts a gateway with its data below dir. ctx bounds the start only; the caller ends the server with Stop or
// Kill.
func StartS3(ctx context.Context, dir string) (*S3Server, error) {
	binary, err := Binary("versitygw")
	if err != nil {
		return nil, err
	}
	ports, err := freePorts(1)
	if err != nil {
		return nil, err
	}
	address := fmt.Sprintf("127.0.0.1:%d", ports[0])
	s := &S3Server{
		Endpoint: "http://" + address, AccessKey: rand.Text()[:20], SecretKey: rand.Text(),
		Region: "us-east-1", Bucket: "cairn", dir: filepath.Join(dir, "buckets"),
	}
	s.Process = &Process{
		name: "versitygw", binary: binary, logPath: filepath.Join(dir, "versitygw.log"),
		// The keys go by the environment: arguments are for everybody to see.
		env:   []string{"ROOT_ACCESS_KEY_ID=" + s.AccessKey, "ROOT_SECRET_ACCESS_KEY=" + s.SecretKey},
		args:  []string{"--port", address, "--region", s.Region, "--keep-alive", "--quiet", "posix", s.dir},
		ready: func(ctx context.Context) error { return answers(ctx, s.Endpoint+"/", "<Error>") },
	}
	if err := s.CreateBucket(s.Bucket); err != nil {
		return nil, err
	}
	if err := s.Start(ctx); err != nil {
		return nil, err
	}
	return s, nil
}

// CreateBucket makes another bucket; the gateway takes every directory for one.
func (s *S3Server) CreateBucket(name string) error {
	return os.MkdirAll(filepath.Join(s.dir, name), 0o755)
}

// URL is the blob URL of a place in the bucket.
func (s *S3Server) URL(prefix string) string {
	q := url.Values{"endpoint": {s.Endpoint}, "region": {s.Region}, "path-style": {"true"}}
	return (&url.URL{Scheme: "s3", Host: s.Bucket, Path: "/" + prefix, RawQuery: q.Encode()}).String()
}

// Env is what a process needs to use the gateway, as NAME=VALUE.
func (s *S3Server) Env() []string {
	return []string{"AWS_ACCESS_KEY_ID=" + s.AccessKey, "AWS_SECRET_ACCESS_KEY=" + s.SecretKey}
}
