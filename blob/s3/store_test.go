package s3_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"
	"go.uber.org/goleak"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/blobtest"
	"github.com/cairnstream/cairn/blob/s3"
	"github.com/cairnstream/cairn/test/servers"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// quick retries fast and cuts parts as small as S3 allows, so that the suite's big objects go up in parts.
func quick(server *servers.S3Server) s3.Options {
	return s3.Options{
		FirstPause: time.Millisecond, MaxPause: 20 * time.Millisecond, PartSize: 5 << 20, MultipartAbove: 8 << 20,
		Credentials: s3.Credentials{AccessKey: server.AccessKey, SecretKey: server.SecretKey},
	}
}

func open(t *testing.T, url string, options s3.Options) *s3.Store {
	t.Helper()
	loc, err := blob.ParseLocation(url)
	if err != nil {
		t.Fatal(err)
	}
	s, err := s3.Open(loc, options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

func TestConformance(t *testing.T) {
	server := servers.S3(t)
	n := 0
	blobtest.Run(t, func(t *testing.T) blob.Store {
		n++
		return open(t, server.URL(fmt.Sprintf("suite/%d", n)), quick(server))
	})
}

// A store without a prefix uses the whole bucket.
func TestBucketRoot(t *testing.T) {
	server := servers.S3(t)
	s := open(t, server.URL(""), quick(server))
	if err := s.Probe(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := blob.PutBytes(t.Context(), s, "k", []byte("x")); err != nil {
		t.Fatal(err)
	}
	for info, err := range s.List(t.Context(), "") {
		if err != nil || info.Key != "k" {
			t.Errorf("%v, %v", info, err)
		}
	}
}

func TestCredentials(t *testing.T) {
	server := servers.S3(t)
	options := quick(server)
	options.Credentials.SecretKey = "wrong"
	err := open(t, server.URL(""), options).Probe(t.Context())
	if !errors.Is(err, blob.ErrDenied) || strings.Contains(err.Error(), "wrong") {
		t.Errorf("wrong secret: %v", err)
	}
	options.Credentials = s3.Credentials{}
	t.Setenv("AWS_ACCESS_KEY_ID", server.AccessKey)
	t.Setenv("AWS_SECRET_ACCESS_KEY", server.SecretKey)
	if err := open(t, server.URL(""), options).Probe(t.Context()); err != nil {
		t.Errorf("keys from the environment: %v", err)
	}
	err = open(t, strings.Replace(server.URL(""), "s3://cairn", "s3://no-such-bucket", 1), options).Probe(t.Context())
	if !errors.Is(err, blob.ErrNotExist) || blob.IsTransient(err) || !strings.Contains(err.Error(), "no-such-bucket") {
		t.Errorf("no such bucket: %v", err)
	}
	secret := s3.Credentials{AccessKey: "id", SecretKey: "hidden-secret", SessionToken: "hidden-token"}
	if text := fmt.Sprintf("%v %+v %#v", secret, secret, secret); strings.Contains(text, "hidden") {
		t.Errorf("secrets are printed: %s", text)
	}
}

// A server that is not there: a clear, transient error, after the tries.
func TestServerAway(t *testing.T) {
	server := servers.S3(t)
	s := open(t, server.URL("p"), quick(server))
	server.Kill()
	err := blob.PutBytes(t.Context(), s, "k", []byte("x"))
	if !blob.IsTransient(err) || !strings.Contains(err.Error(), "blob: put s3://cairn/p/k: tried 6 times") {
		t.Errorf("got %v", err)
	}
	if err := server.Restart(t.Context()); err != nil {
		t.Fatal(err)
	}
	if err := blob.PutBytes(t.Context(), s, "k", []byte("x")); err != nil {
		t.Error(err)
	}
}

func TestBadOptions(t *testing.T) {
	loc := blob.Location{Scheme: blob.SchemeS3, Bucket: "cairn"}
	_, err := s3.Open(loc, s3.Options{PartSize: 1, Tries: -1})
	if err == nil || !strings.Contains(err.Error(), "PartSize is 1") || !strings.Contains(err.Error(), "Tries") {
		t.Errorf("got %v", err)
	}
	if _, err := s3.Open(blob.Location{Scheme: blob.SchemeFile, Path: "/tmp"}, s3.Options{}); err == nil {
		t.Error("a directory was opened as S3")
	}
}

// Uploads that nobody completes are found and taken back, also where there are more than fit into an answer.
func TestUploads(t *testing.T) {
	s3.SmallPages(t, 5)
	server := servers.S3(t)
	client, err := minio.NewCore(strings.TrimPrefix(server.Endpoint, "http://"), &minio.Options{Creds: credentials.NewStaticV4(server.AccessKey, server.SecretKey, ""), Region: server.Region, BucketLookup: minio.BucketLookupPath})
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	blobtest.RunUploads(t, func(t *testing.T) blob.Store {
		n++
		return open(t, server.URL(fmt.Sprintf("uploads/%d", n)), quick(server))
	}, func(t *testing.T, s blob.Store, key string) string {
		loc := s.(*s3.Store).Location()
		id, err := client.NewMultipartUpload(t.Context(), loc.Bucket, loc.Key(key), minio.PutObjectOptions{})
		if err == nil {
			_, err = client.PutObjectPart(t.Context(), loc.Bucket, loc.Key(key), id, 1, strings.NewReader("part"), 4, minio.PutObjectPartOptions{})
		}
		if err != nil {
			t.Fatal(err)
		}
		return id
	})
}
