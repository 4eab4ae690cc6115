package auditlog

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	authenticationv1 "k8s.io/api/authentication/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	auditinternal "k8s.io/apiserver/pkg/apis/audit"
	"k8s.io/apiserver/pkg/audit"
	"k8s.io/apiserver/pkg/authentication/user"
	"k8s.io/apiserver/pkg/authorization/authorizer"
	"k8s.io/apiserver/plugin/pkg/audit/buffered"
)

func event(id string) *auditinternal.Event {
	return &auditinternal.Event{
		Level: auditinternal.LevelMetadata, AuditID: types.UID(id), Stage: auditinternal.StageResponseComplete, Verb: "get",
		User: authenticationv1.UserInfo{Username: "someone"},
	}
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
	e.RequestObject = &runtime.Unknown{Raw: []byte(`"` + strings.Repeat("x", 600<<10) + `"`), ContentType: runtime.ContentTypeJSON}
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
		verb, request string // GROUP/RESOURCE/SUBRESOURCE; empty means a path
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
		a := authorizer.AttributesRecord{Verb: c.verb, Path: "/exeunt/x", User: &user.DefaultInfo{Name: "someone"}}
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

// long is one text for all fields.
var long = strings.Repeat("%20x", 300_000)

// largest fills every text, list and map of a value with more than an event may hold.
func largest(v reflect.Value) {
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		largest(v.Elem())
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).IsExported() {
				largest(v.Field(i))
			}
		}
	case reflect.String:
		v.SetString(long)
	case reflect.Slice:
		length := 150
		if v.Type().Elem().Kind() == reflect.Uint8 {
			length = 20 << 20
		}
		v.Set(reflect.MakeSlice(v.Type(), length, length))
		for i := range length {
			if v.Type().Elem().Kind() != reflect.Uint8 {
				largest(v.Index(i))
			}
		}
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for i := range 150 {
			key, element := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			key.SetString(strings.Repeat("k", i*50))
			largest(element)
			v.SetMapIndex(key, element)
		}
	}
}

// TestBoundedEvent: whatever a client sends, an event is bounded in every field, and says
// that it was shortened. A usual event is not changed.
func TestBoundedEvent(t *testing.T) {
	var e auditinternal.Event
	largest(reflect.ValueOf(&e).Elem())
	e.User.Username = "someone" // whose requests are recorded in full
	before := e.DeepCopy()
	text, err := json.Marshal(bounded(&e))
	if err != nil {
		t.Fatal(err)
	}
	if most := 400 << 10; len(text) > most {
		t.Errorf("the event has %d bytes, want %d at most", len(text), most)
	}
	if !strings.Contains(string(text), truncatedAnnotation) {
		t.Error("the event does not say that it was shortened")
	}
	if !reflect.DeepEqual(&e, before) {
		t.Error("the original was changed")
	}
	usual := event("usual")
	usual.RequestURI = "/api/v1/pods?limit=%20x"
	usual.RequestObject = &runtime.Unknown{Raw: []byte("{}")}
	if got := bounded(usual); !reflect.DeepEqual(got, usual) {
		t.Errorf("a usual event became %+v", got)
	}
	usual.RequestURI = "/api?a=" + strings.Repeat("%20", 4000) + "&token=hush"
	if got := redact(bounded(usual)); len(got.RequestURI) > maxText+len("…") || strings.Contains(got.RequestURI, "invalid") || strings.Contains(got.RequestURI, "hush") {
		t.Errorf("a long query became %s", got.RequestURI)
	}
}

// TestFailedAuthentications: of any number only some are recorded, each with less than a
// kilobyte; the others are counted. Known clients are recorded meanwhile.
func TestFailedAuthentications(t *testing.T) {
	path := filepath.Join(t.TempDir(), "audit.log")
	l, err := Open(Options{LogPath: path}, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	start := time.Now()
	for i := range 20_000 {
		e := event(fmt.Sprint("id-", i))
		e.RequestURI, e.UserAgent = "/api/v1/pods?x="+strings.Repeat("x", 100_000), strings.Repeat("y", 100_000)
		e.ResponseStatus = &metav1.Status{Code: 401}
		e.User.Username = []string{"", "system:anonymous"}[i%2]
		l.Sink().ProcessEvents(e)
	}
	most := failedBurst + int(failedRate*time.Since(start).Seconds()) + 1
	known, public := event("known"), event("public")
	known.ResponseStatus = &metav1.Status{Code: 403}
	public.User.Username, public.ResponseStatus = "system:anonymous", &metav1.Status{Code: 200}
	l.Sink().ProcessEvents(known, public)
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	recorded := strings.Count(string(text), `"code":401`)
	if recorded == 0 || recorded > most || int64(recorded)+l.Dropped() != 20_000 || len(text) > 1500*(most+2) {
		t.Errorf("%d are recorded, want %d at most, in %d bytes; %d are counted", recorded, most, len(text), l.Dropped())
	}
	for _, id := range []string{"known", "public"} {
		if !strings.Contains(string(text), `"auditID":"`+id) {
			t.Errorf("the event %s is missing", id)
		}
	}
}

// TestFailed: a request of a client that is not known counts as refused until its answer is known, and after that by the
// answer; one of a known client never does. A client without a name, or with that of anonymous clients, is not known.
func TestFailed(t *testing.T) {
	for name, unknown := range map[string]bool{"": true, "system:anonymous": true, "jane": false, "system:anonymous2": false} {
		for code, refused := range map[int32]bool{0: true, 200: false, 302: false, 399: false, 400: true, 401: true, 500: true} {
			e := event("x")
			e.User.Username, e.ResponseStatus = name, nil
			if code != 0 {
				e.ResponseStatus = &metav1.Status{Code: code}
			}
			if got := failed(e); got != (unknown && refused) {
				t.Errorf("client %q, code %d: %v", name, code, got)
			}
			if bounded(e) == nil {
				t.Errorf("client %q, code %d: no event", name, code)
			}
		}
	}
}

// TestUnrecorded: an event says how many failed authentications before it are not in the
// log.
func TestUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var got []*auditinternal.Event
		r := &redacting{Backend: collecting{events: &got}, failed: rate.NewLimiter(failedRate, failedBurst)}
		e := event("x")
		e.User.Username, e.ResponseStatus = "", &metav1.Status{Code: 401}
		for range failedBurst + 7 {
			r.ProcessEvents(e)
		}
		time.Sleep(time.Second)
		r.ProcessEvents(e)
		if last := got[len(got)-1]; len(got) != failedBurst+1 || last.Annotations[unrecordedAnnotation] != "7" {
			t.Errorf("%d events; the last has %v", len(got), last.Annotations)
		}
	})
}

type collecting struct {
	audit.Backend
	events *[]*auditinternal.Event
}

func (c collecting) ProcessEvents(events ...*auditinternal.Event) bool {
	*c.events = append(*c.events, events...)
	return true
}
