package wire_test

import (
	"encoding/base64"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// TestPlantedSecrets: after a run at the most verbose audit policy and log level, no
// secret or token is in the log, the audit log or the database, and one command leads
// from a removed object to the request that removed it.
func TestPlantedSecrets(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) { plantSecrets(t, engine) })
	}
}

func plantSecrets(t *testing.T, engine string) {
	dir := t.TempDir()
	policy, log := filepath.Join(dir, "policy.yaml"), filepath.Join(dir, "audit.log")
	if err := os.WriteFile(policy, []byte("apiVersion: audit.k8s.io/v1\nkind: Policy\nrules:\n- level: RequestResponse\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	s := harness.Start(t, engine, "--audit-policy-file", policy, "--audit-log-path", log, "--audit-log-mode", "batch", "--log-level", "DEBUG")
	do := func(r harness.Request, code int) harness.Answer {
		t.Helper()
		answer := s.HTTP().Do(t, r)
		if answer.Code != code {
			t.Fatalf("%s %s: %d %s", r.Method, r.Path, answer.Code, answer.Body)
		}
		return answer
	}
	const planted = "planted-correct-horse-battery"
	encoded := base64.StdEncoding.EncodeToString([]byte(planted))
	const protobuf = "application/vnd.kubernetes.protobuf, application/json"
	configMaps := "/api/v1/namespaces/default/configmaps"
	do(harness.Request{Method: "POST", Path: configMaps, Body: `{"metadata":{"name":"c"},"data":{"k":"plain-for-comparison"}}`}, 201)
	for i, accept := range []string{"", protobuf} {
		name := fmt.Sprint("s", i)
		do(harness.Request{Method: "POST", Path: secretsPath, Accept: accept, Body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"` + name + `"},"stringData":{"p":"` + planted + `"}}`}, 201)
		do(harness.Request{Method: "GET", Path: secretsPath, Accept: accept}, 200)
		do(harness.Request{Method: "PATCH", Path: secretsPath + "/" + name, Accept: accept, ContentType: "application/merge-patch+json", Body: `{"data":{"q":"` + encoded + `"}}`}, 200)
		do(harness.Request{Method: "POST", Path: secretsPath, Accept: accept, Body: `{"apiVersion":"v1","kind":"Secret","metadata":{"name":"bad"},"data":{"p":"` + planted + ` not base64"}}`}, 400)
		do(harness.Request{Method: "DELETE", Path: secretsPath + "/" + name, Accept: accept}, 200)
	}
	do(harness.Request{Method: "GET", Path: "/apis/lifecycle.exeunt.dev/v1/archivedobjects"}, 200)
	do(harness.Request{Method: "POST", Path: "/apis/authentication.k8s.io/v1/tokenreviews", Body: `{"spec":{"token":"` + planted + `"}}`}, 201)
	do(harness.Request{Method: "GET", Path: configMaps + "?access_token=" + planted, Anonymous: true, Token: planted}, 401)
	accounts := "/api/v1/namespaces/default/serviceaccounts"
	do(harness.Request{Method: "POST", Path: accounts, Body: `{"metadata":{"name":"robot"}}`}, 201)
	issued := do(harness.Request{
		Method: "POST", Path: accounts + "/robot/token",
		Body: `{"apiVersion":"authentication.k8s.io/v1","kind":"TokenRequest","spec":{}}`,
	}, 201)
	token := strings.Trim(issued.Field("status.token"), `"`)
	if len(token) < 100 {
		t.Fatalf("token %q", token)
	}
	do(harness.Request{Method: "GET", Path: configMaps, Anonymous: true, Token: token}, 403)
	id := do(harness.Request{Method: "DELETE", Path: configMaps + "/c"}, 200).Header.Get("Audit-Id")
	s.Stop() // writes the events that are queued
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	if !strings.Contains(string(text), "plain-for-comparison") || !strings.Contains(string(text), `"resource":"secrets"`) {
		t.Fatal("the audit log lacks the expected events")
	}
	for _, value := range []string{planted, encoded, token, token[strings.LastIndex(token, ".")+1:]} {
		for name, text := range map[string]string{"log": s.Said(), "audit log": string(text)} {
			if at := strings.Index(text, value); at >= 0 {
				t.Errorf("%s is in the %s: %s", value, name, text[max(0, at-600):at+len(value)])
			}
		}
		if found := atRest(t, s, value); len(found) > 0 {
			t.Errorf("%s is in %v", value, found)
		}
	}
	s.Start()
	r := s.Exeunt(t, "archive", "show", "configmap/c", "-n", "default", "--request", "--audit-log", log)
	for _, want := range []string{"Request:    " + id + "\n", "User:       exeunt-admin\n", "delete " + configMaps + "/c", `"lifecycle.exeunt.dev/removed":"1"`} {
		if r.Code != 0 || !strings.Contains(r.Stdout, want) {
			t.Errorf("%q is not in: %s%s", want, r.Stdout, r.Stderr)
		}
	}
	if r := s.Exeunt(t, "why", "configmap/c", "-n", "default"); !strings.Contains(r.Stdout+r.Stderr, "by exeunt-admin (request "+id+")") {
		t.Errorf("why: %s%s", r.Stdout, r.Stderr)
	}
}

// TestAuditSecondThoughts: without a policy the audit log of the real server has an entry for each
// restore, call-back, release of a held deletion, forced removal of a finalizer and change of a
// namespace's guard, and none for other writes.
func TestAuditSecondThoughts(t *testing.T) {
	log := filepath.Join(t.TempDir(), "audit.log")
	s := harness.Start(t, harness.SQLite, "--audit-log-path", log)
	configMaps, merge := "/api/v1/namespaces/default/configmaps", "application/merge-patch+json"
	var wanted, unwanted []string
	do := func(into *[]string, method, path, kind, body string, code int) {
		t.Helper()
		answer := s.HTTP().Do(t, harness.Request{Method: method, Path: path, ContentType: kind, Body: body})
		if answer.Code != code {
			t.Fatalf("%s %s: %d %s", method, path, answer.Code, answer.Body)
		}
		*into = append(*into, answer.Header.Get("Audit-Id"))
	}
	second := func(kind, spec string) {
		t.Helper()
		do(&wanted, "POST", "/apis/lifecycle.exeunt.dev/v1/"+strings.ToLower(kind)+"s", "application/json", `{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"`+kind+`","spec":`+spec+`}`, 201)
	}
	do(&unwanted, "POST", configMaps, "application/json", `{"metadata":{"name":"c","finalizers":["x.dev/a","x.dev/b"]}}`, 201)
	do(&unwanted, "PATCH", configMaps+"/c", merge, `{"data":{"a":"b"}}`, 200)
	do(&unwanted, "PATCH", "/api/v1/namespaces/default", merge, `{"metadata":{"labels":{"a":"b"}}}`, 200)
	do(&wanted, "PATCH", "/api/v1/namespaces/default", merge, `{"metadata":{"annotations":{"lifecycle.exeunt.dev/max-cascade":"1"}}}`, 200)
	do(&wanted, "DELETE", configMaps+"/c", "", "", 200)
	do(&wanted, "PATCH", configMaps+"/c", merge, `{"metadata":{"finalizers":["x.dev/b"]}}`, 200)
	second("FinalizerRemoval", `{"object":{"apiVersion":"v1","kind":"ConfigMap","namespace":"default","name":"c"},"finalizer":"x.dev/b","reason":"test"}`)
	second("Restore", `{"object":{"kind":"ConfigMap","namespace":"default","name":"c"}}`)
	for i := range 2 {
		owner := s.HTTP().Do(t, harness.Request{Method: "POST", Path: configMaps, Body: fmt.Sprintf(`{"metadata":{"name":"owner-%d"}}`, i)})
		do(&unwanted, "POST", configMaps, "application/json", fmt.Sprintf(`{"metadata":{"name":"child-%d","ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner-%d","uid":%s}]}}`, i, i, owner.Field("metadata.uid")), 201)
		do(&wanted, "DELETE", fmt.Sprintf("%s/owner-%d", configMaps, i), "", "", 200)
	}
	second("Restore", `{"object":{"kind":"ConfigMap","namespace":"default","name":"owner-0"}}`) // called off
	do(&wanted, "PATCH", configMaps+"/owner-1", merge, `{"metadata":{"annotations":{"lifecycle.exeunt.dev/confirm-cascade":"2"}}}`, 200)
	s.Stop()
	text, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	for i, id := range wanted {
		if id == "" || !strings.Contains(string(text), id) {
			t.Errorf("request %d (%q) is not in the audit log", i, id)
		}
	}
	for i, id := range unwanted {
		if strings.Contains(string(text), id) {
			t.Errorf("request %d (%q) is in the audit log", i, id)
		}
	}
	for _, annotation := range []string{`released":"2"`, `finalizers-removed":"x.dev/a"`, `settings-changed":"max-cascade from \"\" to \"1\""`} {
		if !strings.Contains(string(text), `"lifecycle.exeunt.dev/`+annotation) {
			t.Errorf("no %s in the audit log", annotation)
		}
	}
}
