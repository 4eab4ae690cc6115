package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/rest"
)

func small(config *rest.Config) Config {
	return Config{
		REST: config, Clients: 6, Connections: 3, Objects: 40, Size: 300, Rounds: 3,
		Duration: 50 * time.Millisecond, Watchers: 5, Writers: 3, Events: 500, PID: os.Getpid(),
	}
}

func run(t *testing.T, config Config, workload func(context.Context, Config) (Result, error)) Result {
	t.Helper()
	r, err := workload(t.Context(), config)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestCreate(t *testing.T) {
	s, config := startFake(t, faults{})
	r := run(t, small(config), RunCreate)
	m := r.Measures[0]
	if err := r.Err(); err != nil || m.Operations != 40 || len(s.objects) != 40 {
		t.Errorf("%d operations and %d objects, want 40; %v", m.Operations, len(s.objects), err)
	}
	if m.Latency.P50 <= 0 || m.Latency.Max < m.Latency.P99 || m.PerSecond <= 0 || m.Bytes < 40*300 {
		t.Errorf("implausible measure: %+v", m)
	}
	if m.Server == nil || m.Server.Resident < 1<<20 {
		t.Errorf("cost of this process: %+v", m.Server)
	}
	var object struct{ Data map[string]string }
	if err := json.Unmarshal([]byte(s.objects["/api/v1/namespaces/bench/configmaps/object-00000007"]), &object); err != nil {
		t.Fatal(err)
	}
	if len(object.Data["text"]) != 300 {
		t.Errorf("data has %d bytes, want 300", len(object.Data["text"]))
	}
	if !s.protocols["HTTP/2.0"] || len(s.protocols) != 1 {
		t.Errorf("protocols %v, want only HTTP/2.0", s.protocols)
	}
	if len(s.addresses) != 3 {
		t.Errorf("%d connections, want 3", len(s.addresses))
	}
}

func TestCreateCountsErrors(t *testing.T) {
	_, config := startFake(t, faults{refuse: func(r *http.Request, n int64) int {
		if n >= 10 && r.Method == http.MethodPost {
			return http.StatusTooManyRequests
		}
		return 0
	}})
	c := small(config)
	c.Clients = 1
	r := run(t, c, RunCreate)
	if m := r.Measures[0]; m.Operations != 10 || m.Errors != 30 {
		t.Errorf("%d operations, %d errors, want 10 and 30", m.Operations, m.Errors)
	}
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "429 Too Many Requests: no such luck") {
		t.Errorf("Err: %v", err)
	}
}

func TestChanges(t *testing.T) {
	s, config := startFake(t, faults{})
	c := small(config)
	seen := map[string]bool{"": true}
	for i, workload := range []func(context.Context, Config) (Result, error){RunUpdate, RunPatch, RunUpdate} {
		r := run(t, c, workload)
		if err := r.Err(); err != nil || r.Measures[0].Operations != 40 {
			t.Errorf("%s: %d operations, want 40; %v", r.Workload, r.Measures[0].Operations, err)
		}
		var object struct{ Data map[string]string }
		if err := json.Unmarshal([]byte(s.objects["/api/v1/namespaces/bench/configmaps/object-00000039"]), &object); err != nil {
			t.Fatal(err)
		}
		if stamp := object.Data["stamp"]; seen[stamp] || len(object.Data["text"]) != 300 {
			t.Errorf("run %d left stamp %q, which is not new, or lost the text: %v", i, stamp, object.Data)
		}
		seen[object.Data["stamp"]] = true
	}
}

func TestDelete(t *testing.T) {
	s, config := startFake(t, faults{})
	r := run(t, small(config), RunDelete)
	if err := r.Err(); err != nil || r.Measures[0].Operations != 40 || len(s.objects) != 0 {
		t.Errorf("%d operations and %d objects left, want 40 and 0; %v", r.Measures[0].Operations, len(s.objects), err)
	}
	c := small(config)
	c.Seeded = true // a lie
	if m := run(t, c, RunDelete).Measures[0]; m.Operations != 0 || m.Errors != 40 || !strings.Contains(m.FirstError, "404") {
		t.Errorf("got %+v, want only 404s", m)
	}
}

func TestGet(t *testing.T) {
	s, config := startFake(t, faults{})
	r := run(t, small(config), RunGet)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	m := r.Measures[0]
	// In addition to the objects, the workload requested the connections and the
	// namespace.
	if got := s.requests[http.MethodGet] - 3 - 1; m.Operations == 0 || int64(got) != m.Operations {
		t.Errorf("%d operations, the server saw %d", m.Operations, got)
	}
	if m.Elapsed < 50*time.Millisecond {
		t.Errorf("took %s, want at least the duration", m.Elapsed)
	}
}

func TestGetReportsMissingObjects(t *testing.T) {
	_, config := startFake(t, faults{})
	c := small(config)
	c.Seeded = true // a lie
	r := run(t, c, RunGet)
	if m := r.Measures[0]; m.Operations != 0 || m.Errors == 0 || !strings.Contains(m.FirstError, "404") {
		t.Errorf("got %+v, want only 404s", m)
	}
}

func TestSeedTakesWhatIsThere(t *testing.T) {
	_, config := startFake(t, faults{})
	run(t, small(config), RunCreate)
	if err := run(t, small(config), RunList).Err(); err != nil {
		t.Error(err)
	}
}

func TestList(t *testing.T) {
	_, config := startFake(t, faults{})
	r := run(t, small(config), RunList)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	bytes := map[string]int64{}
	for _, m := range r.Measures {
		if m.Operations != 3 {
			t.Errorf("%s: %d operations, want 3", m.Name, m.Operations)
		}
		bytes[m.Name] = m.Bytes
	}
	if bytes["list"] != bytes["list, decoded"] || bytes["list, gzip"] != bytes["list, gzip, decoded"] {
		t.Errorf("read and decoded lists differ in bytes: %v", bytes)
	}
	if bytes["list, gzip"] >= bytes["list"] || bytes["list, gzip"] == 0 {
		t.Errorf("gzip does not reduce the bytes: %v", bytes)
	}
}

func TestListNoticesMissingObjects(t *testing.T) {
	_, config := startFake(t, faults{list: func(items map[string]string) []string {
		return slices.Sorted(maps.Keys(items))[1:]
	}})
	r := run(t, small(config), RunList)
	if err := r.Err(); err == nil || !strings.Contains(err.Error(), "list holds 39 of 40 objects") {
		t.Errorf("Err: %v", err)
	}
}

func TestWatch(t *testing.T) {
	s, config := startFake(t, faults{})
	r := run(t, small(config), RunWatch)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	m := r.Measures[0]
	if m.Operations != 5*500 || m.Watch.Writes != 500 {
		t.Errorf("%d deliveries of %d writes, want 2500 of 500", m.Operations, m.Watch.Writes)
	}
	if len(s.objects) != 300 {
		t.Errorf("%d objects, want 100 from each writer", len(s.objects))
	}
	if m.Watch.FromSend.P50 <= 0 || m.Watch.Write.P50 <= 0 || m.Latency.Max > m.Watch.FromSend.Max {
		t.Errorf("implausible latencies: %+v", m)
	}
}

func TestWatchForDuration(t *testing.T) {
	_, config := startFake(t, faults{})
	c := small(config)
	c.Events = 0
	r := run(t, c, RunWatch)
	if err := r.Err(); err != nil {
		t.Error(err)
	}
	if m := r.Measures[0]; m.Operations == 0 || m.Operations != 5*m.Watch.Writes || m.Elapsed < c.Duration {
		t.Errorf("%d deliveries of %d writes in %s", m.Operations, m.Watch.Writes, m.Elapsed)
	}
}

func TestWatchNoticesWhatGoesWrong(t *testing.T) {
	for name, test := range map[string]struct {
		faults faults
		want   Delivery
	}{
		"an event is left out": {
			faults{events: func(n int64, event string) []string {
				if n == 250 {
					return nil
				}
				return []string{event}
			}},
			Delivery{Missed: 5},
		},
		"the last event is left out": {
			faults{events: func(n int64, event string) []string {
				if n == 499 {
					return nil
				}
				return []string{event}
			}},
			Delivery{Missed: 5},
		},
		"an event comes twice": {
			faults{events: func(n int64, event string) []string {
				if n == 250 {
					return []string{event, event}
				}
				return []string{event}
			}},
			Delivery{Duplicated: 5},
		},
		"watches are closed": {
			faults{ended: func(_ http.ResponseWriter, n int64) error {
				if n == 250 {
					return errors.New("closed")
				}
				return nil
			}},
			Delivery{CutOff: 5},
		},
		"watches expire": {
			faults{ended: func(w http.ResponseWriter, n int64) error {
				if n == 250 {
					io.WriteString(w, `{"type":"ERROR","object":{"code":410}}`+"\n")
				}
				return nil
			}},
			Delivery{CutOff: 5},
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			_, config := startFake(t, test.faults)
			r := run(t, small(config), RunWatch)
			got := r.Measures[0].Watch
			if got.Missed != test.want.Missed || got.Duplicated != test.want.Duplicated || got.CutOff != test.want.CutOff {
				t.Errorf("missed %d, duplicated %d, cut off %d; want %+v", got.Missed, got.Duplicated, got.CutOff, test.want)
			}
			if r.Err() == nil {
				t.Error("Err is nil")
			}
		})
	}
}

func TestForeignNamespaceIsKept(t *testing.T) {
	s, config := startFake(t, faults{})
	s.namespaces["bench"] = `{"metadata":{"name":"bench"}}`
	if _, err := RunCreate(t.Context(), small(config)); err == nil || !strings.Contains(err.Error(), "not made by a benchmark") {
		t.Errorf("RunCreate: %v", err)
	}
	s.objects["/api/v1/namespaces/bench/configmaps/mine"] = "{}"
	if err := Cleanup(t.Context(), small(config)); err != nil {
		t.Error(err)
	}
	if len(s.objects) != 1 || len(s.namespaces) != 1 {
		t.Error("Cleanup touched a namespace that it did not create")
	}
}

func TestCleanup(t *testing.T) {
	s, config := startFake(t, faults{})
	run(t, small(config), RunCreate)
	for range 2 { // the second finds nothing
		if err := Cleanup(t.Context(), small(config)); err != nil {
			t.Fatal(err)
		}
	}
	if len(s.objects)+len(s.namespaces) != 0 {
		t.Errorf("%d objects and %d namespaces are left", len(s.objects), len(s.namespaces))
	}
}

func TestConfigIsChecked(t *testing.T) {
	_, config := startFake(t, faults{})
	for name, change := range map[string]func(*Config){
		"no server to load":     func(c *Config) { c.REST = nil },
		"clients is -1":         func(c *Config) { c.Clients = -1 },
		"size is 2000000":       func(c *Config) { c.Size = 2_000_000 },
		"duration is -1s":       func(c *Config) { c.Duration = -time.Second },
		"no process 2000000000": func(c *Config) { c.PID = 2_000_000_000 },
	} {
		c := small(config)
		change(&c)
		if _, err := RunCreate(t.Context(), c); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestCancelledRun(t *testing.T) {
	_, config := startFake(t, faults{})
	ctx, cancel := context.WithCancel(t.Context())
	c := small(config)
	c.Duration, c.Events = time.Hour, 0
	time.AfterFunc(50*time.Millisecond, cancel)
	if _, err := RunWatch(ctx, c); !errors.Is(err, context.Canceled) {
		t.Errorf("RunWatch: %v", err)
	}
}

// TestStart starts programs that are not servers; the fake server answers for them.
func TestStart(t *testing.T) {
	_, config := startFake(t, faults{})
	kubeconfig := t.TempDir() + "/kubeconfig"
	err := os.WriteFile(kubeconfig, fmt.Appendf(nil, `{"current-context":"a","contexts":[{"name":"a","context":{"cluster":"a"}}],
		"clusters":[{"name":"a","cluster":{"server":%q,"insecure-skip-tls-verify":true}}]}`, config.Host), 0o600)
	if err != nil {
		t.Fatal(err)
	}
	r := run(t, Config{Command: []string{"sleep", "60"}, Kubeconfig: kubeconfig, Rounds: 2}, RunStart)
	// sleep does not end with success on SIGTERM, and that is an error.
	if m := r.Measures[0]; m.Errors != 2 || !strings.Contains(m.FirstError, "signal: terminated") {
		t.Errorf("got %+v", m)
	}
	// The kubeconfig appears once the trap is set, as a server's does once it listens.
	late := kubeconfig + "-late"
	r = run(t, Config{
		Command:    []string{"sh", "-c", "trap 'exit 0' TERM; cp " + kubeconfig + " " + late + ".new; mv " + late + ".new " + late + "; while :; do sleep 0.01; done"},
		Kubeconfig: late, Rounds: 1,
	}, RunStart)
	if m := r.Measures[0]; m.Operations != 1 || m.Errors != 0 || m.Latency.P50 <= 0 || m.Server.Resident == 0 {
		t.Errorf("got %+v", m)
	}
	r = run(t, Config{Command: []string{"false"}, Kubeconfig: kubeconfig + "-absent", Rounds: 1}, RunStart)
	if m := r.Measures[0]; m.Errors != 1 || !strings.Contains(m.FirstError, "ended while starting") {
		t.Errorf("got %+v", m)
	}
}

// TestNamespaceIsNotArchived: the namespace of a run is annotated so that a server
// archives nothing of it.
func TestNamespaceIsNotArchived(t *testing.T) {
	s, config := startFake(t, faults{})
	if _, err := RunCreate(t.Context(), small(config)); err != nil {
		t.Fatal(err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for name, body := range s.namespaces {
		if !strings.Contains(body, `"annotations":{"lifecycle.exeunt.dev/archive-for":"0s"}`) {
			t.Errorf("namespace %s: %s", name, body)
		}
	}
	if len(s.namespaces) != 1 {
		t.Errorf("%d namespaces", len(s.namespaces))
	}
}

// TestExpiry: each object that is gone counts, and a watch that ends is noticed.
func TestExpiry(t *testing.T) {
	s, config := startFake(t, faults{expires: true})
	r := run(t, small(config), RunExpiry)
	if err := r.Err(); err != nil || len(s.objects) == 0 { // those of the writers
		t.Errorf("%d objects are left; %v", len(s.objects), err)
	}
	if m := r.Measures[2]; m.Operations != 40 || r.Measures[0].Operations == 0 || r.Measures[1].Yardstick == nil {
		t.Errorf("got %+v", r)
	}
	_, config = startFake(t, faults{expires: true, ended: func(http.ResponseWriter, int64) error { return errors.New("closed") }})
	if _, err := RunExpiry(t.Context(), small(config)); err == nil || !strings.Contains(err.Error(), "0 of 40 objects are gone") {
		t.Errorf("a watch that ends: %v", err)
	}
}
