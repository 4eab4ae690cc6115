package main

import (
	"bytes"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/cmd/exeunt/explain"
	"github.com/exeunt/exeunt/server"
)

// TestProblems: each finding that needs a person is named, and nothing else is.
func TestProblems(t *testing.T) {
	t.Parallel()
	now := time.Date(2026, 3, 1, 0, 0, 0, 0, time.UTC)
	well := func() *server.Status {
		return &server.Status{
			Disk: server.Disk{Bytes: 1000, Free: 100}, Queues: []server.Queue{{Name: "objects", Depth: 9, Overdue: 9, Lag: 300}},
			Certificates: []server.Certificate{{Name: "serving", Expires: now.Add(30 * 24 * time.Hour)}},
		}
	}
	for name, tt := range map[string]struct {
		change func(h *server.Status)
		want   []string
	}{
		"well":      {func(*server.Status) {}, nil},
		"not ready": {func(h *server.Status) { h.NotReady = []string{"store failed"} }, []string{"not ready: store failed"}},
		"failing":   {func(h *server.Status) { h.Queues[0].Failing = 2 }, []string{"queue objects: 2 reviews failing; the log and exeunt gc status say why"}},
		"late":      {func(h *server.Status) { h.Queues[0].Lag = 301 }, []string{"queue objects: 5m1s late"}},
		"full":      {func(h *server.Status) { h.Disk.Free = 99 }, []string{"the disk is nearly full: 99B of 1kB free"}},
		"no disk":   {func(h *server.Status) { h.Disk = server.Disk{} }, nil}, // the system does not say
		"expiring":  {func(h *server.Status) { h.Certificates[0].Expires = now.Add(30*24*time.Hour - time.Second) }, []string{"the serving certificate expires on 2026-03-30"}},
		"a backup":  {func(h *server.Status) { h.BackupDue, h.LastBackup = &now, &now }, nil},
		"old backup": {
			func(h *server.Status) { at := now.Add(-time.Second); h.BackupDue, h.LastBackup = &at, &at },
			[]string{"the last backup is from " + now.Add(-time.Second).Format("2006-01-02 15:04") + " UTC: exeunt backup create; the log says why the server made none"},
		},
		"no backup": {
			func(h *server.Status) { at := now.Add(-time.Second); h.BackupDue = &at },
			[]string{"there is no backup: exeunt backup create, or the setting backup-to"},
		},
		"refusals": {func(h *server.Status) { h.Collector.Refused = 1 }, []string{"1 delete of the collector refused by webhooks or policies, or without an answer: exeunt gc status"}},
		"paused": { // what waits because of a pause is not reported as late
			func(h *server.Status) { h.Collector.Paused, h.Collector.Reason, h.Queues[0].Lag = true, "a test", 9000 },
			[]string{"the collector is paused (a test): exeunt gc resume"},
		},
	} {
		h := well()
		tt.change(h)
		if got := problems(h, now); !slices.Equal(got, tt.want) {
			t.Errorf("%s: got %q, want %q", name, got, tt.want)
		}
	}
}

// TestStatusWithoutRegistry: a server without a registry has no line about one.
func TestStatusWithoutRegistry(t *testing.T) {
	t.Parallel()
	for _, registry := range []*server.Images{nil, {GivenBackBytes: 1}} {
		var out bytes.Buffer
		writeStatus(&printer{out: &out}, &server.Status{Registry: registry, Database: server.Database{Engine: "sqlite"}}, time.Now())
		if got := strings.Contains(out.String(), "given back today"); got != (registry != nil) {
			t.Errorf("with the registry %v:\n%s", registry, &out)
		}
	}
}

// TestStatusWithoutDatabase: nothing is printed that is not known.
func TestStatusWithoutDatabase(t *testing.T) {
	t.Parallel()
	var out bytes.Buffer
	writeStatus(&printer{out: &out}, &server.Status{Server: "there", Problems: []string{"the database does not answer"}}, time.Now())
	if got := out.String(); strings.Count(got, "\n") != 2 || !strings.HasPrefix(got, "PROBLEM     the database does not answer\nserver      there") {
		t.Errorf("got:\n%s", got)
	}
}

// TestHint: a client that lacks a right learns what gives it.
func TestHint(t *testing.T) {
	t.Parallel()
	forbidden := func(text string) error {
		return fmt.Errorf("list: %w", &apierrors.StatusError{ErrStatus: metav1.Status{Reason: metav1.StatusReasonForbidden, Message: text}})
	}
	for _, test := range []struct {
		err  error
		want string
	}{
		{errors.New("broken at the cluster scope"), ""},
		{forbidden(`User "ann" cannot list resource "pods" in API group "" in the namespace "shop"`), ""},
		{forbidden(`User "ann" cannot list resource "pods" in API group "" at the cluster scope`), "-n NAMESPACE"},
		{forbidden(`User "ann" cannot get path "/exeunt/status"`), "system:exeunt-operator"},
	} {
		if got := explain.Hint(test.err); (got == "") != (test.want == "") || !strings.Contains(got, test.want) {
			t.Errorf("%v: %q, want %q", test.err, got, test.want)
		}
	}
}

// TestReady: status --ready prints nothing, and its exit code reports whether /readyz is 200.
func TestReady(t *testing.T) {
	status := http.StatusOK
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/readyz" {
			t.Errorf("it asks for %s", r.URL.Path)
		}
		w.WriteHeader(status)
		if status != http.StatusOK {
			_, _ = w.Write([]byte("[+]ping ok\n[-]database failed\n"))
		}
	}))
	defer server.Close()
	kubeconfig := kubeconfigFor(t, server.URL)
	if code, stdout, stderr := run(t, "status", "--ready", "--kubeconfig", kubeconfig); code != 0 || stdout != "" || stderr != "" {
		t.Errorf("ready: exit %d, %q, %q", code, stdout, stderr)
	}
	status = http.StatusInternalServerError
	if code, stdout, stderr := run(t, "status", "--ready", "--kubeconfig", kubeconfig); code != 1 || stdout != "" || stderr != "exeunt: not ready: database failed\n" {
		t.Errorf("not ready: exit %d, %q, %q", code, stdout, stderr)
	}
}
