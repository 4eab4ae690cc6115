package oci

import (
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-containerregistry/pkg/crane"
	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/random"
	"github.com/google/go-containerregistry/pkg/v1/remote"
	"github.com/google/go-containerregistry/pkg/v1/remote/transport"
	"github.com/google/go-containerregistry/pkg/v1/validate"

	"github.com/exeunt/exeunt/test/harness"
)

// fault is what the proxy does to a request to S3.
type fault func(w http.ResponseWriter, req *http.Request, forward http.Handler)

// The faults. The worst one is a connection that breaks after S3 served the request: the
// operation is done, and the client does not know it.
var faults = map[string]fault{
	"breaks before": func(http.ResponseWriter, *http.Request, http.Handler) { panic(http.ErrAbortHandler) },
	"breaks after": func(_ http.ResponseWriter, req *http.Request, forward http.Handler) {
		forward.ServeHTTP(httptest.NewRecorder(), req)
		panic(http.ErrAbortHandler)
	},
	"internal error": answerS3(http.StatusInternalServerError, "InternalError"),
	"slow down":      answerS3(http.StatusServiceUnavailable, "SlowDown"),
	"truncated": func(w http.ResponseWriter, req *http.Request, forward http.Handler) {
		whole := httptest.NewRecorder()
		forward.ServeHTTP(whole, req)
		for name, values := range whole.Header() {
			w.Header()[name] = values
		}
		w.Header().Set("Content-Length", strconv.Itoa(whole.Body.Len()+1)) // one byte more than the body, also for an empty body
		w.WriteHeader(whole.Code)
		_, _ = w.Write(whole.Body.Bytes()[:whole.Body.Len()/2])
		panic(http.ErrAbortHandler)
	},
}

func answerS3(status int, code string) fault {
	return func(w http.ResponseWriter, req *http.Request, _ http.Handler) {
		_, _ = io.Copy(io.Discard, req.Body)
		w.WriteHeader(status)
		fmt.Fprintf(w, `<?xml version="1.0"?><Error><Code>%s</Code><Message>a fault of the test</Message></Error>`, code)
	}
}

// slow delays an answer.
func slow(w http.ResponseWriter, req *http.Request, forward http.Handler) {
	time.Sleep(50 * time.Millisecond) // the delay is the fault, not a wait for a condition
	forward.ServeHTTP(w, req)
}

// faultyS3 is a proxy between the server and S3.
type faultyS3 struct {
	location string                       // value of --registry-storage
	choose   atomic.Pointer[func() fault] // nil means no fault
}

func newFaultyS3(t *testing.T) *faultyS3 {
	t.Helper()
	location, err := url.Parse(harness.S3(t))
	if err != nil {
		t.Fatal(err)
	}
	query := location.Query()
	target, err := url.Parse(query.Get("endpoint"))
	if err != nil {
		t.Fatal(err)
	}
	forward := &httputil.ReverseProxy{Rewrite: func(r *httputil.ProxyRequest) {
		r.SetURL(target)
		r.Out.Host = r.In.Host // the Host header is signed
	}}
	f := &faultyS3{}
	proxy := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		if choose := f.choose.Load(); choose != nil {
			if fault := (*choose)(); fault != nil {
				fault(w, req, forward)
				return
			}
		}
		forward.ServeHTTP(w, req)
	}))
	t.Cleanup(proxy.Close)
	query.Set("endpoint", proxy.URL)
	location.RawQuery = query.Encode()
	f.location = location.String()
	return f
}

// heal ends all faults.
func (f *faultyS3) heal() { f.choose.Store(nil) }

// always applies one fault to all requests.
func (f *faultyS3) always(it fault) {
	choose := func() fault { return it }
	f.choose.Store(&choose)
}

// sometimes applies a random fault to some requests.
func (f *faultyS3) sometimes() {
	list := []fault{slow}
	for _, it := range faults {
		list = append(list, it)
	}
	choose := func() fault {
		if rand.IntN(4) != 0 {
			return nil
		}
		return list[rand.IntN(len(list))]
	}
	f.choose.Store(&choose)
}

// TestS3Faults: with each fault of S3 a push either fails with an error that names
// the fault, or succeeds and is complete. The first push after the fault succeeds.
// At the end the bucket has no object without a row.
func TestS3Faults(t *testing.T) {
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		t.Run(engine, func(t *testing.T) {
			s3 := newFaultyS3(t)
			s := harness.Start(t, engine, "--registry-storage", s3.location)
			f := faultFlow{http: s.RegistryHTTP(), craneFlow: craneFlow{t: t, at: s.Registry() + "/"}, pushed: map[string]v1.Image{}}
			for name, it := range faults {
				if engine == harness.Postgres {
					break // the store does not depend on the engine
				}
				s3.always(it)
				if f.push() {
					t.Errorf("%s: pushed", name)
				}
				s3.heal()
				if !f.push() {
					t.Errorf("%s: the next push failed too", name)
				}
			}
			s3.always(slow)
			if !f.push() {
				t.Error("a push to a slow store failed")
			}
			s3.sometimes()
			f.untilSomeSucceed()
			s3.heal()
			for at := range f.pushed {
				f.whole(at)
			}
			t.Logf("%d of %d pushes succeeded", len(f.pushed), f.n)
			t.Log(s.VerifyRegistry(t, "--registry-storage", s3.location))
		})
	}
}

// full is a bucket without space: it refuses what would need more.
func full(status int, code string) fault {
	return func(w http.ResponseWriter, req *http.Request, forward http.Handler) {
		if req.Method == http.MethodPut || req.Method == http.MethodPost {
			answerS3(status, code)(w, req, forward)
			return
		}
		forward.ServeHTTP(w, req)
	}
}

// TestS3Full: while the bucket is full, pushes are refused with an error that says so. Pulls, deletes and the collector
// go on, also after a kill: the server starts.
func TestS3Full(t *testing.T) {
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		t.Run(engine, func(t *testing.T) {
			s3 := newFaultyS3(t)
			s := harness.Start(t, engine, "--registry-storage", s3.location, soon)
			f := faultFlow{http: s.RegistryHTTP(), craneFlow: craneFlow{t: t, at: s.Registry() + "/"}, pushed: map[string]v1.Image{}}
			if !f.push() {
				t.Fatal("the first push failed")
			}
			other, err := random.Image(100<<10, 1)
			f.check(err)
			for code, status := range map[string]int{"XMinioStorageFull": 507, "QuotaExceeded": 403, "XMinioAdminBucketQuotaExceeded": 400} {
				s3.always(full(status, code))
				err := remote.Write(f.ref("shop/web:other"), other, loggedIn(), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
				var answer *transport.Error
				if !errors.As(err, &answer) || answer.StatusCode != http.StatusServiceUnavailable || !strings.Contains(answer.Error(), "storage is full") {
					t.Errorf("%s: %v", code, err)
				}
			}
			s.Kill()
			s.Start()
			f.at = s.Registry() + "/"
			f.whole("shop/web:v1")
			digest, err := f.pushed["shop/web:v1"].Digest()
			f.check(err)
			f.check(crane.Delete(f.at + "shop/web@" + digest.String()))
			harness.Until(t, "the bytes to go", func() error {
				if left := s.Query(`SELECT path FROM blobs WHERE NOT small UNION ALL SELECT path FROM gc_unlink_queue`); len(left) > 0 {
					return fmt.Errorf("left: %v", left)
				}
				return nil
			})
			s3.heal()
			f.check(remote.Write(f.ref("shop/web:other"), other, loggedIn()))
			t.Log(s.VerifyRegistry(t, "--registry-storage", s3.location))
		})
	}
}

// faultFlow pushes images, and records those that were acknowledged.
type faultFlow struct {
	craneFlow
	http   *http.Client // logged in
	n      int
	pushed map[string]v1.Image // by tag
}

// push pushes an image with layers of one request and of several parts. A failure must be
// one that clients retry.
func (f *faultFlow) push() bool {
	f.t.Helper()
	f.n++
	img, err := random.Image([]int64{100 << 10, 6 << 20}[f.n%2], 2)
	f.check(err)
	at := fmt.Sprint("shop/web:v", f.n)
	err = remote.Write(f.ref(at), img, loggedIn(), remote.WithRetryBackoff(remote.Backoff{Steps: 1}))
	if err == nil {
		f.pushed[at] = img
		return true
	}
	var answer *transport.Error
	known := errors.As(err, &answer)
	switch {
	case known && answer.StatusCode == http.StatusServiceUnavailable, known && answer.StatusCode == http.StatusTooManyRequests:
	case known && answer.StatusCode == http.StatusNotFound && answer.Errors[0].Code == "BLOB_UPLOAD_UNKNOWN":
	default:
		f.t.Errorf("push of %s: %v", at, err)
	}
	return false
}

// untilSomeSucceed pushes and pulls while some requests meet a fault: at least ten
// times, and until three pushes and three pulls have succeeded among the faults.
func (f *faultFlow) untilSomeSucceed() {
	f.t.Helper()
	const enough, patience = 3, 3 * time.Minute
	pushes, pulls := 0, 0
	for n, deadline := 0, time.Now().Add(patience); n < 10 || pushes < enough || pulls < enough; n++ {
		if time.Now().After(deadline) {
			f.t.Fatalf("within %s, in %d rounds, %d pushes and %d pulls succeeded; want %d of each", patience, n, pushes, pulls, enough)
		}
		if f.push() {
			pushes++
		}
		if f.pull() {
			pulls++
		}
	}
}

// pull reads the blobs of an image and reports whether it received all of them. A pull may
// break off, but the client must notice: a pull without an error is complete.
func (f *faultFlow) pull() bool {
	f.t.Helper()
	all := false
	for _, img := range f.pushed {
		layers, err := img.Layers()
		f.check(err)
		all = true
		for _, layer := range layers {
			want, err := layer.Digest()
			f.check(err)
			answer, err := f.http.Get("http://" + f.at + "v2/shop/web/blobs/" + want.String())
			f.check(err)
			got, _, err := v1.SHA256(answer.Body)
			f.check(answer.Body.Close())
			whole := answer.StatusCode == http.StatusOK && err == nil
			if whole && got != want {
				f.t.Errorf("read %s as %s", want, got)
			}
			all = all && whole
		}
		break
	}
	return all
}

// whole pulls an acknowledged image, which must be complete.
func (f *faultFlow) whole(at string) {
	f.t.Helper()
	pulled, err := crane.Pull(f.at + at)
	f.check(err)
	f.check(validate.Image(pulled))
	f.same(f.pushed[at], at)
}
