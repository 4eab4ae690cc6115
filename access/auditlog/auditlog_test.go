package auditlog

import (
	"bytes"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
)

func event(id string) *auditinternal.Event {
	return &auditinternal.Event{Level: auditinternal.LevelMetadata, AuditID: types.UID(id), Stage: auditinternal.StageResponseComplete, Verb: "get"}
}

// TestCloseFlushes: Close writes the events that are queued, to the file and to the
// webhook.
func TestCloseFlushes(t *testing.T) {
	var mu sync.Mutex
	var received bytes.Buffer
	hook := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) {
		mu.Lock()
		defer mu.Unlock()
		_, _ = io.Copy(&received, req.Body)
	}))
	defer hook.Close()
	dir := t.TempDir()
	kubeconfig := fmt.Sprintf("apiVersion: v1\nkind: Config\ncurrent-context: c\ncontexts: [{name: c, context: {cluster: c, user: c}}]\nusers: [{name: c}]\nclusters: [{name: c, cluster: {server: %q}}]\n", hook.URL)
	o := Options{
		LogPath: filepath.Join(dir, "deep", "audit.log"), LogMaxSize: 100, LogMode: Batch, WebhookConfigFile: filepath.Join(dir, "hook"),
		WebhookBatch: buffered.BatchConfig{BufferSize: 1000, MaxBatchSize: 400, MaxBatchWait: time.Hour, AsyncDelegate: true},
	}
	if err := os.WriteFile(o.WebhookConfigFile, []byte(kubeconfig), 0o600); err != nil {
		t.Fatal(err)
	}
	l, err := Open(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 100 {
		if !l.Sink().ProcessEvents(event(fmt.Sprint("id-", i))) {
			t.Fatal("an event was refused")
		}
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(o.LogPath)
	if err != nil {
		t.Fatal(err)
	}
	mu.Lock()
	defer mu.Unlock()
	for name, text := range map[string]string{"file": string(file), "webhook": received.String()} {
		if n := strings.Count(text, `"auditID":"id-`); n != 100 {
			t.Errorf("the %s has %d of 100 events", name, n)
		}
	}
	if info, err := os.Stat(o.LogPath); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// TestRotation: the file is rotated at its maximum size, and old files are removed.
func TestRotation(t *testing.T) {
	dir := t.TempDir()
	l, err := Open(Options{LogPath: filepath.Join(dir, "audit.log"), LogMaxSize: 1, LogMaxBackup: 5}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	e := event("large")
	e.UserAgent = strings.Repeat("x", 600<<10)
	for range 3 {
		l.Sink().ProcessEvents(e)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	if files, _ := filepath.Glob(filepath.Join(dir, "audit*.log")); len(files) != 3 {
		t.Errorf("files: %v", files)
	}
}

// TestFullDisk: strict mode refuses requests whose event cannot be written, blocking
// mode serves them, and both say so in the log.
func TestFullDisk(t *testing.T) {
	for mode, want := range map[string]bool{BlockingStrict: false, Blocking: true} {
		var log bytes.Buffer
		l, err := Open(Options{LogPath: "/dev/full", LogMode: mode}, slog.New(slog.NewTextHandler(&log, nil)))
		if err != nil {
			t.Fatal(err)
		}
		if got := l.Sink().ProcessEvents(event("lost")); got != want {
			t.Errorf("%s: %v", mode, got)
		}
		if !strings.Contains(log.String(), "audit events could not be written") || !strings.Contains(log.String(), "first=lost") {
			t.Errorf("%s: the log says %q", mode, log.String())
		}
		_ = l.Close()
	}
}

func TestCheck(t *testing.T) {
	for want, o := range map[string]Options{
		"":                       {},
		"there is no audit log":  {PolicyFile: "p"},
		"--audit-log-mode":       {LogPath: "-", LogMode: "never"},
		"must not be negative":   {LogPath: "-", LogMaxAge: -1},
		"must be positive":       {WebhookConfigFile: "w"},
		"--audit-policy-file: ":  {LogPath: "-", PolicyFile: "/missing"},
		"--audit-webhook-config": {WebhookConfigFile: "/missing", WebhookMode: Blocking},
		"--audit-log-path: ":     {LogPath: "/dev/null/x"},
	} {
		l, err := Open(o, slog.New(slog.DiscardHandler))
		if want == "" && (l != nil || err != nil) || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%+v: %v, want %q", o, err, want)
		}
	}
}

// TestRules: deletions are recorded at Metadata at least, secrets at Metadata at most.
func TestRules(t *testing.T) {
	for _, c := range []struct {
		level         auditinternal.Level
		verb, request string // GROUP/RESOURCE/SUBRESOURCE; empty: a path
		want          auditinternal.Level
	}{
		{"None", "get", "/pods/", "None"},
		{"None", "delete", "/pods/", "Metadata"},
		{"None", "delete", "/secrets/", "Metadata"},
		{"None", "deletecollection", "apps/deployments/", "Metadata"},
		{"None", "delete", "", "Metadata"},
		{"None", "create", "lifecycle.exeunt.dev/finalizerremovals/", "Metadata"},
		{"RequestResponse", "delete", "/pods/", "RequestResponse"},
		{"RequestResponse", "create", "/serviceaccounts/", "RequestResponse"},
		{"RequestResponse", "create", "/serviceaccounts/token", "Metadata"},
		{"RequestResponse", "create", "authentication.k8s.io/tokenreviews/", "Metadata"},
		{"RequestResponse", "list", "/secrets/", "Metadata"},
		{"RequestResponse", "deletecollection", "/secrets/", "Metadata"},
		{"Request", "get", "lifecycle.exeunt.dev/archivedobjects/", "Metadata"},
		{"RequestResponse", "update", "access.exeunt.dev/users/", "Metadata"},
	} {
		a := authorizer.AttributesRecord{Verb: c.verb, Path: "/exeunt/x"}
		if c.request != "" {
			parts := strings.Split(c.request, "/")
			a.ResourceRequest, a.APIGroup, a.Resource, a.Subresource = true, parts[0], parts[1], parts[2]
		}
		rules := rulesOf(&auditinternal.Policy{OmitStages: []auditinternal.Stage{"ResponseComplete"}, Rules: []auditinternal.PolicyRule{{Level: c.level}}})
		got := rules.EvaluatePolicyRule(a)
		if got.Level != c.want {
			t.Errorf("%s %s at %s: %s, want %s", c.verb, c.request, c.level, got.Level, c.want)
		}
		if deletes(a) && len(got.OmitStages) > 0 {
			t.Errorf("%s %s: stages %v are omitted", c.verb, c.request, got.OmitStages)
		}
	}
}

// TestRedact: an event about a secret resource has no bodies and no messages, even if
// a handler added them, and the original is not changed.
func TestRedact(t *testing.T) {
	e := event("x")
	e.RequestURI = "/api/v1/secrets?limit=1&access_token=hush"
	e.ObjectRef = &auditinternal.ObjectReference{Resource: "secrets", APIVersion: "v1"}
	e.RequestObject, e.ResponseObject = &runtime.Unknown{Raw: []byte("hush")}, &runtime.Unknown{Raw: []byte("hush")}
	e.ResponseStatus = &metav1.Status{Code: 400, Reason: "BadRequest", Message: "hush", Details: &metav1.StatusDetails{Name: "hush"}}
	got := redact(e)
	if text := fmt.Sprintf("%+v %+v", *got, got.ResponseStatus); strings.Contains(text, "hush") || got.RequestObject != nil || got.ResponseObject != nil || got.ResponseStatus.Code != 400 {
		t.Errorf("redacted: %s", text)
	}
	if e.RequestObject == nil || e.ResponseStatus.Message != "hush" {
		t.Error("the original was changed")
	}
	e.ObjectRef.Resource = "configmaps"
	if got := redact(e); got.RequestObject == nil || got.ResponseStatus.Message != "hush" || strings.Contains(got.RequestURI, "hush") {
		t.Errorf("another resource: %+v", got)
	}
}
