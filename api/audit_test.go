package api

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	auditv1 "k8s.io/apiserver/pkg/apis/audit/v1"
	"k8s.io/apiserver/pkg/audit"

	"github.com/exeunt/exeunt/access/auditlog"
	"github.com/exeunt/exeunt/api/record"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// audited is a world with an audit log.
type audited struct {
	*world
	path string
}

// newAudited has an audit log with these rules, in the YAML of a policy.
func newAudited(t *testing.T, rules string) *audited {
	t.Helper()
	w := newWorld(t, store.Options{})
	dir := t.TempDir()
	o := auditlog.Options{LogPath: filepath.Join(dir, "audit.log"), LogMaxSize: 100}
	if rules != "" {
		o.PolicyFile = filepath.Join(dir, "policy.yaml")
		text := "apiVersion: audit.k8s.io/v1\nkind: Policy\nomitStages: [RequestReceived]\nrules:\n" + rules
		if err := os.WriteFile(o.PolicyFile, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	log, err := auditlog.Open(o, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = log.Close() })
	w.api.audit.Log = log
	w.api.handler = w.api.filters(http.HandlerFunc(w.api.route))
	return &audited{w, o.LogPath}
}

// events returns the events of a request.
func (w *audited) events(id string) (out []auditv1.Event) {
	w.t.Helper()
	text, err := os.ReadFile(w.path)
	if err != nil {
		w.t.Fatal(err)
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	lines.Buffer(nil, 4<<20)
	for lines.Scan() {
		var e auditv1.Event
		if err := json.Unmarshal(lines.Bytes(), &e); err != nil {
			w.t.Fatalf("%s: %v", lines.Text(), err)
		}
		if string(e.AuditID) == id {
			out = append(out, e)
		}
	}
	return out
}

// event returns the event that ends a request. A delete has one more event, written before
// the decision; the policies of these tests omit that stage of other requests.
func (w *audited) event(r reply) auditv1.Event {
	w.t.Helper()
	want := []auditv1.Stage{auditv1.StageResponseComplete}
	got := w.events(r.header.Get("Audit-Id"))
	if len(got) > 0 && strings.HasPrefix(got[0].Verb, "delete") {
		want = []auditv1.Stage{auditv1.StageRequestReceived, auditv1.StageResponseComplete}
	}
	var stages []auditv1.Stage
	for _, e := range got {
		stages = append(stages, e.Stage)
	}
	if !slices.Equal(stages, want) {
		w.t.Fatalf("the log has the stages %v, want %v: %+v", stages, want, got)
	}
	return got[len(got)-1]
}

const (
	audConfigMap = `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}`
	byLibrary    = "Accept: application/yaml, application/json"
)

// TestAuditPathsAgree: the fast paths and the library's handlers write the same event,
// at every level.
func TestAuditPathsAgree(t *testing.T) {
	for _, level := range []string{"Metadata", "Request", "RequestResponse"} {
		t.Run(level, func(t *testing.T) {
			w := newAudited(t, "- level: "+level+"\n")
			for _, step := range []struct{ method, path, body, kind string }{
				{"POST", configMaps, audConfigMap, "application/json"},
				{"GET", configMaps + "/a", "", ""},
				{"GET", configMaps, "", ""},
				{"PUT", configMaps + "/a", audConfigMap, "application/json"},
				{"PATCH", configMaps + "/a", `{"data":{"k":"w"}}`, "application/merge-patch+json"},
				{"GET", configMaps + "/missing", "", ""},
				{"DELETE", configMaps + "/a", "", "application/json"},
			} {
				fast := w.event(w.send(step.method, step.path, step.body, "Content-Type: "+step.kind))
				slowPath := strings.Replace(step.path, "/shop/", "/shop2/", 1)
				if step.method == "POST" {
					w.want(201, "POST", "/api/v1/namespaces", `{"metadata":{"name":"shop2"}}`)
				}
				slow := w.event(w.send(step.method, slowPath, step.body, byLibrary, "Content-Type: "+step.kind))
				compareEvents(t, step.method+" "+step.path, level, &fast, &slow)
			}
		})
	}
}

// compareEvents compares what the policy's level asks for.
func compareEvents(t *testing.T, name, level string, fast, slow *auditv1.Event) {
	t.Helper()
	for _, e := range []*auditv1.Event{fast, slow} {
		writes := e.Verb == "create" || e.Verb == "update" || e.Verb == "patch"
		switch {
		case e.User.Username != "tester" || e.ObjectRef == nil || e.ObjectRef.Resource != "configmaps" || e.ObjectRef.Namespace == "":
			t.Errorf("%s: %+v", name, e)
		case e.Annotations["authorization.k8s.io/decision"] != "allow":
			t.Errorf("%s: annotations %v", name, e.Annotations)
		case (e.RequestObject != nil) != (writes && level != "Metadata") && e.Verb != "delete":
			t.Errorf("%s at %s: request object %v", name, level, e.RequestObject)
		case (e.ResponseObject != nil) != (level == "RequestResponse"):
			t.Errorf("%s at %s: response object %v", name, level, e.ResponseObject)
		}
	}
	if fast.ResponseStatus.Code != slow.ResponseStatus.Code || fast.ResponseStatus.Reason != slow.ResponseStatus.Reason ||
		fast.ObjectRef.Name != slow.ObjectRef.Name || fast.Verb != slow.Verb || len(fast.Annotations) != len(slow.Annotations) {
		t.Errorf("%s: the paths differ:\n%+v\n%+v", name, fast, slow)
	}
}

// TestAuditDeletions: deletions are recorded whatever the policy says, with their
// cascade, policy and counts.
func TestAuditDeletions(t *testing.T) {
	for _, rules := range []string{"", "- level: None\n", "- level: Request\n  omitStages: [ResponseComplete]\n"} {
		w := newAudited(t, rules)
		uid := w.want(201, "POST", configMaps, audConfigMap).get("metadata.uid")
		held := w.want(201, "POST", configMaps, `{"metadata":{"name":"held","finalizers":["x/y"]}}`).get("metadata.uid")
		want := func(r reply, cascade, policy, removed, marked string) {
			t.Helper()
			e := w.event(r)
			got := [4]string{e.Annotations[record.CascadeAnnotation], e.Annotations[record.PolicyAnnotation], e.Annotations[record.RemovedAnnotation], e.Annotations[record.MarkedAnnotation]}
			if cascade == "" {
				cascade = got[0]
			}
			if expected := [4]string{cascade, policy, removed, marked}; got != expected || got[0] == "" || e.User.Username != "tester" {
				t.Errorf("%q: %v of %s, want %v", rules, got, e.User.Username, expected)
			}
		}
		want(w.want(200, "DELETE", configMaps+"/a?dryRun=All", ""), uid, "Background", "0", "0")
		want(w.want(200, "DELETE", configMaps+"/a", ""), uid, "Background", "1", "0")
		want(w.want(200, "DELETE", configMaps+"/held?propagationPolicy=Foreground", "", byLibrary), held, "Foreground", "0", "1")
		want(w.want(200, "DELETE", configMaps+"/held", ""), held, "Foreground", "0", "0")
		for _, name := range []string{"c1", "c2"} {
			w.want(201, "POST", configMaps, strings.Replace(audConfigMap, `"a"`, `"`+name+`"`, 1))
		}
		want(w.want(200, "DELETE", configMaps+"?fieldSelector=metadata.name!=held", ""), "", "Background", "2", "0")
		if e := w.event(w.as("eve", nil, "DELETE", configMaps+"/held", "")); e.ResponseStatus.Code != 403 || e.Annotations["authorization.k8s.io/decision"] != "forbid" {
			t.Errorf("a denied delete: %+v", e)
		}
		if e := w.event(w.want(200, "DELETE", configMaps+"/held", "", "Impersonate-User: jo", "Impersonate-Group: system:masters")); e.ImpersonatedUser == nil || e.ImpersonatedUser.Username != "jo" || e.User.Username != "tester" {
			t.Errorf("an impersonated delete: %+v", e)
		}
	}
}

// TestAuditByContent: a policy that records nothing records updates that release a held
// deletion, remove finalizers of a DELETING object or change a namespace's settings, also if
// they are refused, and no others.
func TestAuditByContent(t *testing.T) {
	w := newAudited(t, "")
	shop := "/api/v1/namespaces/shop"
	merge := "Content-Type: application/merge-patch+json"
	none := func(r reply) {
		t.Helper()
		if got := w.events(r.header.Get("Audit-Id")); len(got) > 0 || r.code != 200 && r.code != 201 {
			t.Errorf("%d, the log has %+v", r.code, got)
		}
	}
	want := func(r reply, code int, name, value string) {
		t.Helper()
		if e := w.event(r); r.code != code || int(e.ResponseStatus.Code) != code || e.Annotations[name] != value || e.User.Username == "" || e.ObjectRef == nil {
			t.Errorf("%d %s: the event is %+v", r.code, r.body, e)
		}
	}
	for i, path := range []string{"X-Path: fast", byLibrary} {
		owner := fmt.Sprint("owner-", i)
		none(w.send("PATCH", shop, `{"metadata":{"labels":{"a":"b"}}}`, merge, path))
		want(w.send("PATCH", shop, `{"metadata":{"annotations":{"`+lifecycle.MaxCascade+`":"1"}}}`, merge, path), 200, record.SettingsAnnotation, `max-cascade from "" to "1"`)
		uid := w.want(201, "POST", configMaps, strings.Replace(audConfigMap, `"a"`, `"`+owner+`"`, 1)).get("metadata.uid")
		w.configMap("child-"+owner, `,"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"`+owner+`","uid":"`+uid+`"}]`)
		w.want(200, "DELETE", configMaps+"/"+owner, "")
		none(w.send("PATCH", configMaps+"/"+owner, `{"data":{"k":"w"}}`, merge, path))
		want(w.send("PATCH", configMaps+"/"+owner, `{"metadata":{"annotations":{"`+lifecycle.ConfirmCascade+`":"2"}}}`, merge, path), 200, record.ReleasedAnnotation, "2")
		want(w.send("PATCH", shop, `{"metadata":{"annotations":{"`+lifecycle.MaxCascade+`":null}}}`, merge, path), 200, record.SettingsAnnotation, `max-cascade from "1" to ""`)
		w.want(201, "POST", configMaps, `{"metadata":{"name":"held","finalizers":["x/y","x/z"]}}`)
		none(w.send("PATCH", configMaps+"/held", `{"metadata":{"finalizers":["x/y","x/z","x/w"]}}`, merge, path))
		w.want(200, "DELETE", configMaps+"/held", "")
		want(w.send("PATCH", configMaps+"/held", `{"metadata":{"finalizers":["x/y"]}}`, merge, path), 200, record.FinalizersAnnotation, "x/z, x/w")
		want(w.send("PUT", configMaps+"/held", `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"held"}}`, "Content-Type: application/json", path), 200, record.FinalizersAnnotation, "x/y")
	}
}

// TestAuditKillBetweenEvents: when a delete is committed, its first event is in the log,
// and the last is not. So a server that is killed at this moment leaves a record of who
// deleted what, with the Audit-Id that the archive has.
func TestAuditKillBetweenEvents(t *testing.T) {
	w := newAudited(t, "- level: None\n")
	w.want(201, "POST", configMaps, audConfigMap)
	var between []auditv1.Event
	var left error
	w.api.handler = w.api.filters(http.HandlerFunc(func(rw http.ResponseWriter, req *http.Request) {
		w.api.route(rw, req)
		between = w.events(rw.Header().Get("Audit-Id"))
		_, left = w.api.Store.Get(req.Context(), object.Key{Kind: object.ConfigMaps, Namespace: "shop", Name: "a"})
	}))
	w.want(200, "DELETE", configMaps+"/a", "")
	if !object.Is(left, object.NotFound) || len(between) != 1 || between[0].Stage != auditv1.StageRequestReceived ||
		between[0].User.Username != "tester" || between[0].ObjectRef == nil || between[0].ObjectRef.Name != "a" {
		t.Errorf("after the commit (%v) the log has %+v", left, between)
	}
}

// TestAuditSecrets: no policy makes the log contain secrets or tokens.
func TestAuditSecrets(t *testing.T) {
	w := newAudited(t, "- level: RequestResponse\n")
	const planted, encoded = "hunter2-planted", "aHVudGVyMi1wbGFudGVk"
	secrets := "/api/v1/namespaces/shop/secrets"
	body := `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"s"},"stringData":{"p":"` + planted + `"}}`
	for _, header := range []string{"X-Path: fast", byLibrary} {
		w.send("POST", secrets, body, header)
		w.want(200, "GET", secrets+"/s", "", header)
		w.want(200, "GET", secrets, "", header)
		w.send("PATCH", secrets+"/s", `{"stringData":{"q":"`+planted+`"}}`, header, "Content-Type: application/merge-patch+json")
		w.want(400, "POST", secrets, `{"apiVersion":"v1","kind":"Secret","data":"`+planted+`"}`, header)
		w.want(422, "POST", secrets, `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"t"},"data":{"`+planted+`!":""}}`, header)
		w.want(200, "DELETE", secrets+"/s", "", header)
	}
	w.want(201, "POST", "/apis/authentication.k8s.io/v1/tokenreviews", `{"spec":{"token":"`+planted+`"}}`)
	req := httptest.NewRequest("GET", configMaps+"?access_token="+planted+"&%74oken="+planted, nil)
	req.Header.Set("Authorization", "Bearer "+planted)
	if r := w.answer(req); r.code != 401 || len(w.events(r.header.Get("Audit-Id"))) != 1 {
		t.Errorf("a refused login: %d, events %v", r.code, w.events(r.header.Get("Audit-Id")))
	}
	text, err := os.ReadFile(w.path)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.Contains(line, planted) || strings.Contains(line, encoded) {
			t.Errorf("the log has a secret: %s", line)
		}
	}
	if n := strings.Count(string(text), `"resource":"secrets"`); n != 16 { // two for each delete
		t.Errorf("the log has %d events about secrets, want 16", n)
	}
}

// TestAuditWatch: a watch is recorded when it begins and when it ends, and streams.
func TestAuditWatch(t *testing.T) {
	t.Parallel()
	w := newAudited(t, "- level: RequestResponse\n")
	for _, header := range []string{"X-Path: fast", "Accept: application/vnd.kubernetes.protobuf"} {
		r := w.want(200, "GET", configMaps+"?watch=1&timeoutSeconds=1", "", header)
		got := w.events(r.header.Get("Audit-Id"))
		if len(got) != 2 || got[0].Stage != auditv1.StageResponseStarted || got[1].Stage != auditv1.StageResponseComplete || got[1].ResponseStatus.Code != 200 {
			t.Errorf("%s: %+v", header, got)
		}
	}
}

// TestAuditOff: without a log, a read pays for no audit context, and a delete has its id.
func TestAuditOff(t *testing.T) {
	w := newWorld(t, store.Options{})
	var seen *audit.AuditContext
	w.api.Extra = http.HandlerFunc(func(_ http.ResponseWriter, req *http.Request) { seen = audit.AuditContextFrom(req.Context()) })
	w.want(200, "GET", "/exeunt/x", "")
	if seen != nil {
		t.Error("a GET has an audit context")
	}
	w.want(200, "DELETE", "/exeunt/x", "", "Audit-Id: mine")
	if seen == nil || seen.AuditID() != "mine" {
		t.Errorf("a DELETE has the audit context %+v", seen)
	}
}
