package s3_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/minio/minio-go/v7"
	"github.com/minio/minio-go/v7/pkg/credentials"

	"github.com/cairnstream/cairn/blob"
	"github.com/cairnstream/cairn/blob/s3"
	"github.com/cairnstream/cairn/test/servers"
)

// proxy stands before a real server and spoils requests on cue.
type proxy struct {
	*httptest.Server
	backend *servers.S3Server
	mu      sync.Mutex
	spoil   func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool
}

func newProxy(t *testing.T) *proxy {
	t.Helper()
	p := &proxy{backend: servers.S3(t)}
	target, err := url.Parse(p.backend.Endpoint)
	if err != nil {
		t.Fatal(err)
	}
	transport := &http.Transport{DisableKeepAlives: true}
	reverse := &httputil.ReverseProxy{
		Rewrite:      func(r *httputil.ProxyRequest) { r.SetURL(target); r.Out.Host = r.In.Host }, // the host is signed
		Transport:    transport,
		ErrorHandler: func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		spoil := p.spoil
		p.mu.Unlock()
		if spoil == nil || !spoil(w, r, reverse.ServeHTTP) {
			reverse.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(p.Close)
	return p
}

// on spoils the first n requests for which match says so.
func (p *proxy) on(n int, match func(*http.Request) bool, spoil func(http.ResponseWriter, *http.Request, http.HandlerFunc)) (hits func() int) {
	var mu sync.Mutex
	done := 0
	p.mu.Lock()
	defer p.mu.Unlock()
	p.spoil = func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) bool {
		mu.Lock()
		hit := match(r) && done < n
		if hit {
			done++
		}
		mu.Unlock()
		if hit {
			spoil(w, r, pass)
		}
		return hit
	}
	return func() int { mu.Lock(); defer mu.Unlock(); return done }
}

func (p *proxy) open(t *testing.T, options s3.Options) *s3.Store {
	return open(t, strings.Replace(p.backend.URL("p"), url.QueryEscape(p.backend.Endpoint), url.QueryEscape(p.URL), 1), options)
}

// uploads lists the multipart uploads that were begun and not ended.
func (p *proxy) uploads(t *testing.T) []minio.ObjectMultipartInfo {
	t.Helper()
	core, err := minio.NewCore(strings.TrimPrefix(p.backend.Endpoint, "http://"), &minio.Options{
		Creds: credentials.NewStaticV4(p.backend.AccessKey, p.backend.SecretKey, ""), Region: p.backend.Region,
		Transport: &http.Transport{DisableKeepAlives: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	result, err := core.ListMultipartUploads(t.Context(), p.backend.Bucket, "", "", "", "", 100)
	if err != nil {
		t.Fatal(err)
	}
	return result.Uploads
}

func all(*http.Request) bool { return true }

func method(m string) func(*http.Request) bool {
	return func(r *http.Request) bool { return r.Method == m }
}

func slowDown(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
	io.Copy(io.Discard, r.Body)
	w.WriteHeader(http.StatusServiceUnavailable)
	io.WriteString(w, `<Error><Code>SlowDown</Code><Message>Please reduce your request rate.</Message></Error>`)
}

func drop(http.ResponseWriter, *http.Request, http.HandlerFunc) { panic(http.ErrAbortHandler) }

// dropAnswer carries the request out and breaks the connection instead of answering.
func dropAnswer(_ http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
	pass(httptest.NewRecorder(), r)
	panic(http.ErrAbortHandler)
}

// A server that is busy or drops connections for a while is no error, for any operation.
func TestTransientFaults(t *testing.T) {
	p := newProxy(t)
	s := p.open(t, quick(p.backend))
	ctx := t.Context()
	data := bytes.Repeat([]byte("0123456789abcdef"), 12<<16) // 12 MiB: three parts
	for name, spoil := range map[string]func(http.ResponseWriter, *http.Request, http.HandlerFunc){"busy": slowDown, "dropped": drop} {
		for op, call := range map[string]func() error{
			"put": func() error { return blob.PutBytes(ctx, s, name+"/small", data[:100]) },
			"put stream": func() error {
				return s.Put(ctx, name+"/stream", io.MultiReader(bytes.NewReader(data)), int64(len(data)))
			},
			"put parts":     func() error { return blob.PutBytes(ctx, s, name+"/big", data) },
			"put if absent": func() error { return s.PutIfAbsent(ctx, name+"/absent", data[:100]) },
			"delete":        func() error { return s.Delete(ctx, name+"/none") },
			"delete many":   func() error { return s.Delete(ctx, name+"/none", name+"/none2") },
			"probe":         func() error { return s.Probe(ctx) },
			"list": func() error {
				for _, err := range s.List(ctx, name) {
					return err
				}
				return nil
			},
		} {
			hits := p.on(3, all, spoil)
			if err := call(); err != nil || hits() == 0 {
				t.Errorf("%s, %s: %d hits, %v", name, op, hits(), err)
			}
		}
		for _, key := range []string{"big", "stream"} {
			p.on(3, method(http.MethodGet), spoil)
			if got, err := blob.ReadAll(ctx, s, name+"/"+key, int64(len(data))); err != nil || !bytes.Equal(got, data) {
				t.Errorf("%s, %s: got %d bytes, %v", name, key, len(got), err)
			}
		}
	}
	if left := p.uploads(t); len(left) > 0 {
		t.Errorf("uploads left: %v", left)
	}
}

// A connection that breaks in the middle of an object is resumed where it broke.
func TestResumedRead(t *testing.T) {
	p := newProxy(t)
	s := p.open(t, quick(p.backend))
	data := bytes.Repeat([]byte("0123456789abcdef"), 1<<16)
	if err := blob.PutBytes(t.Context(), s, "k", data); err != nil {
		t.Fatal(err)
	}
	cutShort := func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		answer := httptest.NewRecorder()
		pass(answer, r)
		for name, values := range answer.Header() {
			w.Header()[name] = values
		}
		w.WriteHeader(answer.Code)
		w.Write(answer.Body.Bytes()[:answer.Body.Len()/3])
		w.(http.Flusher).Flush()
		panic(http.ErrAbortHandler)
	}
	hits := p.on(4, method(http.MethodGet), cutShort)
	if got, err := blob.ReadAll(t.Context(), s, "k", int64(len(data))); err != nil || !bytes.Equal(got, data) || hits() != 4 {
		t.Errorf("got %d bytes after %d breaks, %v", len(got), hits(), err)
	}
	p.on(4, method(http.MethodGet), cutShort)
	r, err := s.GetRange(t.Context(), "k", 5, 1000)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if got, err := io.ReadAll(r); err != nil || !bytes.Equal(got, data[5:1005]) {
		t.Errorf("range: got %d bytes, %v", len(got), err)
	}

	// An object that is replaced meanwhile is not pieced together from both.
	p.on(1, method(http.MethodGet), func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) {
		defer func() {
			if err := blob.PutBytes(context.Background(), s, "k", bytes.ToUpper(data)); err != nil {
				t.Error(err)
			}
			panic(http.ErrAbortHandler)
		}()
		func() {
			defer func() { recover() }()
			cutShort(w, r, pass)
		}()
	})
	if _, err := blob.ReadAll(t.Context(), s, "k", int64(len(data))); err == nil || !strings.Contains(err.Error(), "replaced") {
		t.Errorf("read of an object that is replaced: %v", err)
	}
}

// A conditional put whose answer is lost is still a success; that of a loser still is not.
func TestPutIfAbsentLostAnswer(t *testing.T) {
	p := newProxy(t)
	s := p.open(t, quick(p.backend))
	p.on(1, method(http.MethodPut), dropAnswer)
	if err := s.PutIfAbsent(t.Context(), "k", []byte("mine")); err != nil {
		t.Errorf("winner: %v", err)
	}
	p.on(1, method(http.MethodPut), dropAnswer)
	if err := s.PutIfAbsent(t.Context(), "k", []byte("mine")); !errors.Is(err, blob.ErrExists) {
		t.Errorf("loser with the same content: %v", err)
	}
}

// A completion whose answer is lost is a success too.
func TestCompleteLostAnswer(t *testing.T) {
	p := newProxy(t)
	s := p.open(t, quick(p.backend))
	data := make([]byte, 12<<20)
	hits := p.on(1, func(r *http.Request) bool { return r.Method == http.MethodPost && r.URL.Query().Has("uploadId") }, dropAnswer)
	if err := blob.PutBytes(t.Context(), s, "k", data); err != nil || hits() != 1 {
		t.Errorf("%d hits, %v", hits(), err)
	}
	if info, err := s.Stat(t.Context(), "k"); err != nil || info.Size != int64(len(data)) {
		t.Errorf("stat: %v, %v", info, err)
	}
}

// An upload that fails for good, or is cancelled, leaves neither an object nor parts.
func TestFailedUploadIsAborted(t *testing.T) {
	p := newProxy(t)
	s := p.open(t, quick(p.backend))
	data := make([]byte, 22<<20)
	p.on(1000, func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "3" }, slowDown)
	err := blob.PutBytes(t.Context(), s, "k", data)
	if !blob.IsTransient(err) || !strings.Contains(err.Error(), "put s3://cairn/p/k: tried 6 times: 503 SlowDown") {
		t.Errorf("got %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	p.on(1000, func(r *http.Request) bool { return r.URL.Query().Get("partNumber") == "3" },
		func(w http.ResponseWriter, r *http.Request, pass http.HandlerFunc) { cancel(); slowDown(w, r, pass) })
	if err := s.Put(ctx, "k", io.MultiReader(bytes.NewReader(data)), int64(len(data))); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	p.on(0, all, nil)
	if left := p.uploads(t); len(left) > 0 {
		t.Errorf("uploads left: %v", left)
	}
	if _, err := s.Stat(t.Context(), "k"); !errors.Is(err, blob.ErrNotExist) {
		t.Errorf("stat: %v", err)
	}
	// The buffers came back: as many uploads again still work.
	for range 3 {
		if err := s.Put(t.Context(), "k", io.MultiReader(bytes.NewReader(data)), int64(len(data))); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that takes a request and never answers does not hang its client beyond the context.
func TestSilentServer(t *testing.T) {
	p := newProxy(t)
	s := p.open(t, quick(p.backend))
	release := make(chan struct{})
	defer close(release)
	p.on(1000, all, func(http.ResponseWriter, *http.Request, http.HandlerFunc) { <-release })
	ctx, cancel := context.WithTimeout(t.Context(), 200*time.Millisecond)
	defer cancel()
	if _, err := s.Stat(ctx, "k"); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("got %v", err)
	}
}

// What is permanent is not tried again.
func TestPermanentFaults(t *testing.T) {
	p := newProxy(t)
	s := p.open(t, quick(p.backend))
	for code, want := range map[string]struct {
		status int
		kind   error
	}{
		"AccessDenied":  {http.StatusForbidden, blob.ErrDenied},
		"QuotaExceeded": {http.StatusForbidden, blob.ErrFull},
		"InvalidTag":    {http.StatusBadRequest, nil},
	} {
		hits := p.on(1000, method(http.MethodPut), func(w http.ResponseWriter, r *http.Request, _ http.HandlerFunc) {
			io.Copy(io.Discard, r.Body)
			w.WriteHeader(want.status)
			io.WriteString(w, "<Error><Code>"+code+"</Code><Message>No.</Message></Error>")
		})
		err := blob.PutBytes(t.Context(), s, "k", []byte("x"))
		if err == nil || blob.IsTransient(err) || want.kind != nil && !errors.Is(err, want.kind) || hits() != 1 || !strings.Contains(err.Error(), code) {
			t.Errorf("%s: %d requests, %v", code, hits(), err)
		}
	}
}
