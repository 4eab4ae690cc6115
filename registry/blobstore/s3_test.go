package blobstore_test

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/blobstore/blobstoretest"
	"github.com/exeunt/exeunt/registry/blobstore/s3test"
)

func openAt(t *testing.T, location string) blobstore.Store {
	t.Helper()
	s, err := blobstore.Open(t.Context(), location)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func TestS3(t *testing.T) {
	blobstoretest.Run(t, func(t *testing.T) blobstoretest.World {
		location := s3test.Location(t)
		return blobstoretest.World{
			Store:  openAt(t, location),
			Reopen: func(t *testing.T) blobstore.Store { return openAt(t, location) },
		}
	})
}

// TestOpenS3Refuses: the error at start-up tells the operator what is wrong.
func TestOpenS3Refuses(t *testing.T) {
	location := s3test.Location(t)
	for location, want := range map[string]string{
		strings.Replace(location, "s3://", "s3://no-such-", 1): "there is no such bucket",
		s3test.Through(t, location, "http://127.0.0.1:1"):      "connection refused",
	} {
		s, err := blobstore.Open(t.Context(), location)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", location, s, err, want)
		}
	}
	t.Setenv("AWS_SECRET_ACCESS_KEY", "wrong")
	if s, err := blobstore.Open(t.Context(), location); err == nil || errors.Is(err, blobstore.ErrUnavailable) {
		t.Errorf("with a wrong key: %v, %v", s, err)
	}
}

// TestS3Takeover: a writer in another process has resumed the upload. The first
// writer cannot finish the upload any more. If the second finishes it, the blob
// is what the second wrote.
func TestS3Takeover(t *testing.T) {
	location := s3test.Location(t)
	part := strings.Repeat("p", 5<<20)
	for _, recorded := range []string{"small", part + "large"} {
		first, second := openAt(t, location), openAt(t, location)
		w := create(t, first)
		write(t, w, recorded)
		must(t, w.Sync(), w.Close())
		a := resume(t, first, w)
		b := resume(t, second, w)
		write(t, b, part+"second")
		must(t, b.Sync(), b.Close())
		_, failed := io.WriteString(a, part+"first")
		if failed == nil {
			failed = a.Sync()
		}
		must(t, a.Close())
		b = resume(t, second, b)
		_, err := io.WriteString(b, "!")
		if err == nil {
			err = b.Finish()
		}
		must(t, b.Close())
		if err == nil {
			if got := read(t, second, w.Path()); got != recorded+part+"second!" {
				t.Errorf("%d bytes that the second writer did not write: …%q (first: %v)", len(got), got[len(got)-20:], failed)
			}
		} else if !errors.Is(err, blobstore.ErrGone) {
			t.Errorf("the second writer: %v (first: %v)", err, failed)
		}
	}
}

// TestS3Removed: a writer whose parts were removed gets ErrGone.
func TestS3Removed(t *testing.T) {
	location := s3test.Location(t)
	first, second := openAt(t, location), openAt(t, location)
	for _, size := range []int{10, 6 << 20, 11 << 20} {
		w := create(t, first)
		write(t, w, strings.Repeat("x", size))
		must(t, w.Sync(), w.Close())
		w = resume(t, first, w)
		must(t, second.Remove(t.Context(), w.Path()))
		_, err := io.WriteString(w, "more")
		if err == nil {
			err = w.Finish()
		}
		if !errors.Is(err, blobstore.ErrGone) {
			t.Errorf("after %d bytes: %v", size, err)
		}
		must(t, w.Close())
	}
	wantPaths(t, first)
}

// wantPaths compares all paths in a store, finished or not.
func wantPaths(t *testing.T, s blobstore.Store, want ...string) {
	t.Helper()
	var got []string
	must(t, s.(blobstore.Walker).Walk(t.Context(), func(path string, _ int64, _ time.Time) error {
		got = append(got, path)
		return nil
	}))
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("paths in the store:\n%s", diff)
	}
}

// TestS3SmallUpload: a small upload takes one request.
func TestS3SmallUpload(t *testing.T) {
	server := newFaulty(t)
	s := openAt(t, s3test.Through(t, s3test.Location(t), server.URL))
	before := server.requests.Load()
	w := create(t, s)
	write(t, w, "small")
	must(t, w.Sync(), w.Close())
	w = resume(t, s, w)
	must(t, w.Finish(), w.Close())
	if n := server.requests.Load() - before; n != 1 {
		t.Errorf("%d requests for a small upload", n)
	}
	wantPaths(t, s, w.Path())
}

// TestS3Faults: each kind of server error maps to an error of blobstore, and the
// writer stays failed.
func TestS3Faults(t *testing.T) {
	for _, fault := range []struct {
		status int
		code   string
		want   error
	}{
		{503, "SlowDown", blobstore.ErrOverloaded},
		{429, "TooManyRequests", blobstore.ErrOverloaded},
		{500, "InternalError", blobstore.ErrUnavailable},
		{502, "", blobstore.ErrUnavailable},
		{507, "InsufficientStorage", blobstore.ErrFull},
		{403, "QuotaExceeded", blobstore.ErrFull},
		{400, "XMinioAdminBucketQuotaExceeded", blobstore.ErrFull},
		{0, "", blobstore.ErrUnavailable},
	} {
		for _, size := range []int{1, 6 << 20} {
			t.Run(fmt.Sprint(fault.status, " ", fault.code, " ", size), func(t *testing.T) {
				t.Parallel()
				server := newFaulty(t)
				s := openAt(t, s3test.Through(t, s3test.Location(t), server.URL))
				w := create(t, s)
				server.fault.Store(&answer{fault.status, fault.code})
				_, err := io.WriteString(w, strings.Repeat("x", size))
				if err == nil {
					err = w.Sync()
				}
				server.fault.Store(nil)
				if !errors.Is(err, fault.want) {
					t.Errorf("%v, want %v", err, fault.want)
				}
				if err := w.Finish(); !errors.Is(err, fault.want) {
					t.Errorf("finished after a failure: %v", err)
				}
				must(t, w.Close(), s.Remove(t.Context(), w.Path()))
				w = create(t, s)
				write(t, w, "works again")
				must(t, w.Finish(), w.Close())
				if got := read(t, s, w.Path()); got != "works again" {
					t.Error(got)
				}
			})
		}
	}
}

// faulty is a proxy in front of the S3 server that injects failures.
type faulty struct {
	*httptest.Server
	fault    atomic.Pointer[answer]
	requests atomic.Int64
}

// answer is an injected response. With status 0 the connection breaks.
type answer struct {
	status int
	code   string
}

func newFaulty(t *testing.T) *faulty {
	t.Helper()
	target, err := url.Parse(s3test.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	proxy := &httputil.ReverseProxy{Director: func(req *http.Request) {
		host := req.Host // part of the signature
		req.URL.Scheme, req.URL.Host = target.Scheme, target.Host
		req.Host = host
	}}
	f := &faulty{}
	f.Server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		f.requests.Add(1)
		fault := f.fault.Load()
		if fault == nil {
			proxy.ServeHTTP(w, req)
			return
		}
		if fault.status == 0 {
			panic(http.ErrAbortHandler)
		}
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(fault.status)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>a fault of the test</Message></Error>`, fault.code)
	}))
	t.Cleanup(f.Close)
	return f
}

func create(t *testing.T, s blobstore.Store) blobstore.Writer {
	t.Helper()
	w, err := s.Create(t.Context())
	must(t, err)
	return w
}

func resume(t *testing.T, s blobstore.Store, before blobstore.Writer) blobstore.Writer {
	t.Helper()
	w, err := s.Resume(t.Context(), before.Path(), before.State())
	must(t, err)
	return w
}

func write(t *testing.T, w blobstore.Writer, text string) {
	t.Helper()
	_, err := io.WriteString(w, text)
	must(t, err)
}

func read(t *testing.T, s blobstore.Store, path string) string {
	t.Helper()
	r, err := s.Open(t.Context(), path, 0)
	must(t, err)
	text, err := io.ReadAll(r)
	must(t, err, r.Close())
	return string(text)
}

func must(t *testing.T, errs ...error) {
	t.Helper()
	if err := errors.Join(errs...); err != nil {
		t.Fatal(err)
	}
}
