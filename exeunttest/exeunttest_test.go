package exeunttest_test

import (
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/exeunttest"
)

// send sends a request and returns the status and the body.
func send(t exeunttest.TB, s *exeunttest.Server, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequest(method, s.Host+path, strings.NewReader(body))
	if err != nil {
		t.Fatalf("%v", err)
	}
	req.Header.Set("Content-Type", "application/json")
	answer, err := s.Client().Do(req)
	if err != nil {
		t.Fatalf("%v", err)
	}
	defer answer.Body.Close()
	text, err := io.ReadAll(answer.Body)
	if err != nil {
		t.Fatalf("%v", err)
	}
	return answer.StatusCode, string(text)
}

const maps = "/api/v1/namespaces/default/configmaps"

func create(t exeunttest.TB, s *exeunttest.Server, name, metadata string) {
	t.Helper()
	if code, text := send(t, s, http.MethodPost, maps, fmt.Sprintf(`{"metadata":{"name":%q%s}}`, name, metadata)); code != http.StatusCreated {
		t.Fatalf("create %s: %d %s", name, code, text)
	}
}

func has(t exeunttest.TB, s *exeunttest.Server, name string) bool {
	t.Helper()
	code, _ := send(t, s, http.MethodGet, maps+"/"+name, "")
	return code == http.StatusOK
}

var prepared = exeunttest.Prepared(func(t exeunttest.TB, s *exeunttest.Server) { create(t, s, "prepared", "") })

// TestPrepared: each parallel test has a server of its own, with the prepared objects only.
func TestPrepared(t *testing.T) {
	t.Parallel()
	for i := range 3 {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			s := prepared(t)
			if !has(t, s, "prepared") || has(t, s, "own") {
				t.Error("the server does not have the prepared objects, or it has others")
			}
			create(t, s, "own", "")
		})
	}
}

// TestForkAndReset: a copy has what its original had, and neither sees later writes of the other. Writes
// run while the copies are made: each copy has all writes that were answered before it.
func TestForkAndReset(t *testing.T) {
	t.Parallel()
	s := exeunttest.Start(t)
	var stop sync.WaitGroup
	done := make(chan struct{})
	stop.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-done:
				return
			default:
				create(t, s, fmt.Sprint("w", i), "")
			}
		}
	})
	create(t, s, "first", "")
	snapshot := s.Snapshot()
	create(t, s, "second", "")
	fork := s.Fork(t)
	close(done)
	stop.Wait()
	if !has(t, fork, "first") || !has(t, fork, "second") {
		t.Error("the fork does not have what was written before it")
	}
	create(t, fork, "of-fork", "")
	if has(t, s, "of-fork") {
		t.Error("the original has a write of the fork")
	}
	host := s.Host
	s.Reset(snapshot)
	if s.Host != host || !has(t, s, "first") || has(t, s, "second") {
		t.Error("after the reset the server is not as at the snapshot")
	}
}

// TestWaitIdle: after it, dependents of a deleted owner are gone.
func TestWaitIdle(t *testing.T) {
	t.Parallel()
	s := exeunttest.Start(t)
	create(t, s, "owner", "")
	_, text := send(t, s, http.MethodGet, maps+"/owner", "")
	_, uid, _ := strings.Cut(text, `"uid":"`)
	uid, _, _ = strings.Cut(uid, `"`)
	for i := range 50 {
		create(t, s, fmt.Sprint("d", i), fmt.Sprintf(`,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%q}]`, uid))
	}
	if code, text := send(t, s, http.MethodDelete, maps+"/owner", ""); code != http.StatusOK {
		t.Fatal(code, text)
	}
	s.WaitIdle()
	for i := range 50 {
		if has(t, s, fmt.Sprint("d", i)) {
			t.Errorf("d%d is still there", i)
		}
	}
}

// failing is a test that has failed, whose log and end the real test sees.
type failing struct {
	*testing.T
	log      strings.Builder
	cleanups []func()
}

func (f *failing) Logf(format string, args ...any) { fmt.Fprintf(&f.log, format+"\n", args...) }
func (f *failing) Failed() bool                    { return true }
func (f *failing) Cleanup(end func())              { f.cleanups = append(f.cleanups, end) }

// TestFailureIsExplained: the log of a failed test names what was still leaving, and why.
func TestFailureIsExplained(t *testing.T) {
	t.Parallel()
	f := &failing{T: t}
	s := exeunttest.Start(f)
	create(t, s, "stuck", `,"finalizers":["example.com/slow"]`)
	send(t, s, http.MethodDelete, maps+"/stuck", "")
	for _, end := range f.cleanups {
		end()
	}
	if text := f.log.String(); !strings.Contains(text, "still leaving: configmaps/stuck --namespace default") || !strings.Contains(text, "example.com/slow") {
		t.Errorf("the log does not explain it:\n%s", text)
	}
}

// BenchmarkStart and BenchmarkFork measure the time until a server is ready.
func BenchmarkStart(b *testing.B) {
	for b.Loop() {
		exeunttest.Start(b)
	}
}

func BenchmarkFork(b *testing.B) {
	s := exeunttest.Start(b)
	var copies time.Duration
	for b.Loop() {
		begin := time.Now()
		snapshot := s.Snapshot()
		copies += time.Since(begin)
		snapshot.Start(b)
	}
	b.ReportMetric(float64(copies.Microseconds())/float64(b.N)/1000, "copy-ms/op")
}
