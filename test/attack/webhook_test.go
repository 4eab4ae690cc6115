package attack_test

import (
	"crypto/tls"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// hook is a webhook that never answers. It records the credentials that it gets.
type hook struct {
	*httptest.Server
	mu          sync.Mutex
	calls       int      // guarded by mu
	credentials []string // guarded by mu
}

func newHook(t *testing.T) *hook {
	h := &hook{}
	stop := make(chan struct{})
	h.Server = httptest.NewUnstartedServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		h.mu.Lock()
		h.calls++
		for name := range req.Header {
			if name == "Authorization" || name == "Cookie" || strings.HasPrefix(name, "X-Remote") || strings.HasPrefix(name, "Impersonate") {
				h.credentials = append(h.credentials, name)
			}
		}
		for _, c := range req.TLS.PeerCertificates {
			h.credentials = append(h.credentials, "certificate of "+c.Subject.String())
		}
		h.mu.Unlock()
		select {
		case <-stop:
		case <-req.Context().Done():
		}
	}))
	h.TLS = &tls.Config{ClientAuth: tls.RequestClientCert}
	h.StartTLS()
	t.Cleanup(func() { close(stop); h.Close() })
	return h
}

func (h *hook) called() (n int, credentials []string) {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.calls, slices.Clone(h.credentials)
}

func bundle(s *httptest.Server) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: s.Certificate().Raw})
}

func text(t testing.TB, value any) string {
	t.Helper()
	out, err := json.Marshal(value)
	if err != nil {
		t.Fatal(err)
	}
	return string(out)
}

type fields = map[string]any

// judge configures a webhook that is asked about everything of a name, and fails closed.
func (a *target) judge(t *testing.T, sort, name, url string, ca []byte, timeout int) {
	t.Helper()
	a.create(t, "/apis/admissionregistration.k8s.io/v1/"+strings.ToLower(sort)+"webhookconfigurations", text(t, fields{
		"apiVersion": "admissionregistration.k8s.io/v1", "kind": sort + "WebhookConfiguration", "metadata": fields{"name": name},
		"webhooks": []fields{{
			"name": name + ".example.com", "clientConfig": fields{"url": url, "caBundle": ca}, "sideEffects": "None",
			"admissionReviewVersions": []string{"v1"}, "failurePolicy": "Fail", "timeoutSeconds": timeout,
			"rules":           []fields{{"operations": []string{"*"}, "apiGroups": []string{"*"}, "apiVersions": []string{"*"}, "resources": []string{"*/*"}}},
			"matchConditions": []fields{{"name": "mine", "expression": `request.name == "` + name + `" || request.resource.resource == "selfsubjectaccessreviews"`}},
		}},
	}))
}

// refused creates an object of a name until a webhook refuses it, and returns the refusal.
func (a *target) refused(t *testing.T, name string) harness.Answer {
	t.Helper()
	body := text(t, fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": name}})
	var answer harness.Answer
	harness.Until(t, "the webhook is asked", func() error {
		if answer = a.http.Do(t, harness.Request{Method: "POST", Path: configMaps, Body: body}); answer.Code != http.StatusCreated {
			return nil
		}
		a.http.Do(t, harness.Request{Method: "DELETE", Path: configMaps + "/" + name})
		return fmt.Errorf("it was created")
	})
	return answer
}

// posts is how many POST requests the API has served.
func (a *target) posts(t *testing.T) (n int) {
	t.Helper()
	for line := range strings.Lines(string(a.http.Do(t, harness.Request{Method: "GET", Path: "/metrics"}).Body)) {
		if strings.HasPrefix(line, "apiserver_request_total{") && strings.Contains(line, `verb="POST"`) {
			var more int
			if _, err := fmt.Sscan(line[strings.LastIndex(line, " "):], &more); err != nil {
				t.Fatal(err)
			}
			n += more
		}
	}
	return n
}

// TestWebhookToTheServer: a webhook whose address is the server itself ends in a refusal, also if
// unknown clients may create everything: the server sends no credential, and takes the question
// for no object.
func TestWebhookToTheServer(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		a := newTarget(t, s)
		a.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"}}`)
		a.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", `{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"open"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"edit"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"Group","name":"system:unauthenticated"}]}`)
		ca := s.Config().CAData
		p := a.probe(t)
		for _, sort := range []string{"Validating", "Mutating"} {
			for i, path := range []string{configMaps, "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews", "/exeunt/console/links", "/console/session", "/readyz"} {
				name := fmt.Sprintf("%s-%d", strings.ToLower(sort), i)
				a.judge(t, sort, name, "https://"+a.host+path, ca, 10)
				before := a.posts(t)
				answer := a.refused(t, name)
				if answer.Code < 400 || answer.Code == http.StatusGatewayTimeout {
					t.Errorf("%s to %s: %d %.300s", sort, path, answer.Code, answer.Body)
				}
				if n := a.posts(t) - before; n > 200 { // refused may try some times
					t.Errorf("%s to %s: one create became %d requests", sort, path, n)
				}
				if answer := a.http.Do(t, harness.Request{Method: "DELETE", Path: "/apis/admissionregistration.k8s.io/v1/" + strings.ToLower(sort) + "webhookconfigurations/" + name}); answer.Code != http.StatusOK {
					t.Errorf("delete the webhook: %d %.300s", answer.Code, answer.Body)
				}
			}
		}
		p.end()
	})
}

// things is the path of the kind that convertBy defines, in a version.
const things = "/apis/example.com/%s/namespaces/default/things"

// convertBy defines a kind that is stored as v1 and whose v2 a webhook makes.
func (a *target) convertBy(t *testing.T, hook *httptest.Server) {
	t.Helper()
	schema := fields{"openAPIV3Schema": fields{"type": "object", "x-kubernetes-preserve-unknown-fields": true}}
	a.create(t, "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", text(t, fields{
		"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition", "metadata": fields{"name": "things.example.com"},
		"spec": fields{
			"group": "example.com", "scope": "Namespaced", "names": fields{"plural": "things", "kind": "Thing"},
			"versions": []fields{{"name": "v1", "served": true, "storage": true, "schema": schema}, {"name": "v2", "served": true, "storage": false, "schema": schema}},
			"conversion": fields{"strategy": "Webhook", "webhook": fields{
				"conversionReviewVersions": []string{"v1"}, "clientConfig": fields{"url": hook.URL + "/convert", "caBundle": bundle(hook)},
			}},
		},
	}))
	harness.Until(t, "the kind is served", func() error {
		if answer := a.http.Do(t, harness.Request{Method: "GET", Path: fmt.Sprintf(things, "v2")}); answer.Code != http.StatusOK {
			return fmt.Errorf("%d %s", answer.Code, answer.Body)
		}
		return nil
	})
}

// TestHangingWebhooks: webhooks of admission and of conversion that never answer hold their own
// kind, for a bounded time. All others are served. They get no credentials of the server.
func TestHangingWebhooks(t *testing.T) {
	t.Parallel() // it waits more than it works
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		a := newTarget(t, s)
		a.create(t, configMaps, `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"probe"}}`)
		h := newHook(t)
		a.convertBy(t, h.Server)
		for i := range 3 {
			a.create(t, fmt.Sprintf(things, "v1"), text(t, fields{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": fields{"name": fmt.Sprint("thing-", i)}}))
		}
		a.judge(t, "Validating", "hangs", h.URL+"/judge", bundle(h.Server), 3)
		p := a.probe(t)
		var wait sync.WaitGroup
		for _, query := range []string{"", "?limit=1", "?labelSelector=a%3Db", "/thing-0", "?watch=true&timeoutSeconds=5&resourceVersion=0"} {
			for range 4 {
				wait.Go(func() {
					start := time.Now()
					answer, err := a.http.Try(harness.Request{Method: "GET", Path: fmt.Sprintf(things, "v2") + query})
					t.Logf("%q: %d after %v: %.200s", query, answer.Code, time.Since(start).Round(time.Second), answer.Body)
					if err != nil || answer.Code == http.StatusOK && !strings.Contains(query, "watch") {
						t.Errorf("%q: %d %v", query, answer.Code, err) // the client waits for two minutes
					}
				})
			}
		}
		if answer := a.refused(t, "hangs"); answer.Code != http.StatusInternalServerError {
			t.Errorf("a create that a webhook judges: %d %.300s", answer.Code, answer.Body)
		}
		// Others write and read meanwhile, the same kind in its stored version too.
		for i := range 5 {
			a.create(t, configMaps, text(t, fields{"apiVersion": "v1", "kind": "ConfigMap", "metadata": fields{"name": fmt.Sprint("other-", i)}}))
			a.create(t, fmt.Sprintf(things, "v1"), text(t, fields{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": fields{"name": fmt.Sprint("later-", i)}}))
		}
		if answer := a.http.Do(t, harness.Request{Method: "GET", Path: fmt.Sprintf(things, "v1")}); answer.Code != http.StatusOK {
			t.Errorf("list in the stored version: %d %.300s", answer.Code, answer.Body)
		}
		wait.Wait()
		p.end()
		if n, credentials := h.called(); n == 0 || len(credentials) > 0 {
			t.Errorf("%d calls, with credentials %q", n, credentials)
		}
	})
}

// TestTenantsConfigureNoWebhooks: the roles of tenants make the server call nobody.
func TestTenantsConfigureNoWebhooks(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	a := newTarget(t, s)
	for _, role := range []string{"view", "edit", "admin"} {
		a.create(t, "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings", fmt.Sprintf(`{"apiVersion":"rbac.authorization.k8s.io/v1","kind":"ClusterRoleBinding","metadata":{"name":"t-%[1]s"},
			"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"ClusterRole","name":"%[1]s"},"subjects":[{"apiGroup":"rbac.authorization.k8s.io","kind":"User","name":"t-%[1]s"}]}`, role))
		for _, resource := range []string{
			"validatingwebhookconfigurations.admissionregistration.k8s.io", "mutatingwebhookconfigurations.admissionregistration.k8s.io",
			"validatingadmissionpolicies.admissionregistration.k8s.io", "mutatingadmissionpolicies.admissionregistration.k8s.io",
			"customresourcedefinitions.apiextensions.k8s.io", "apiservices.apiregistration.k8s.io",
		} {
			plural, group, _ := strings.Cut(resource, ".")
			for _, verb := range []string{"create", "update", "patch"} {
				review := a.http.Do(t, harness.Request{Method: "POST", Path: "/apis/authorization.k8s.io/v1/subjectaccessreviews", Body: text(t, fields{
					"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview",
					"spec": fields{"user": "t-" + role, "resourceAttributes": fields{"verb": verb, "group": group, "resource": plural}},
				})})
				if !strings.Contains(string(review.Body), `"allowed":false`) {
					t.Errorf("%s may %s %s: %d %s", role, verb, resource, review.Code, review.Body)
				}
			}
		}
	}
}

// TestSlowConversion: a conversion webhook that answers, but slowly, holds a list until the list's
// own time is over, however many objects there are.
func TestSlowConversion(t *testing.T) {
	t.Parallel() // it waits more than it works
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		a := newTarget(t, s)
		stop := make(chan struct{})
		slow := httptest.NewTLSServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			var review struct {
				Request struct {
					UID     string
					Objects []fields
				}
			}
			if err := json.NewDecoder(req.Body).Decode(&review); err != nil {
				return
			}
			for _, o := range review.Request.Objects {
				o["apiVersion"] = "example.com/v2"
			}
			select {
			case <-time.After(time.Second):
			case <-stop:
			}
			_ = json.NewEncoder(w).Encode(fields{"apiVersion": "apiextensions.k8s.io/v1", "kind": "ConversionReview", "response": fields{
				"uid": review.Request.UID, "result": fields{"status": "Success"}, "convertedObjects": review.Request.Objects,
			}})
		}))
		t.Cleanup(func() { close(stop); slow.Close() })
		a.convertBy(t, slow)
		for i := range 200 { // more than two minutes, if each is asked about
			a.create(t, fmt.Sprintf(things, "v1"), text(t, fields{"apiVersion": "example.com/v1", "kind": "Thing", "metadata": fields{"name": fmt.Sprint("thing-", i)}}))
		}
		answer := a.http.Do(t, harness.Request{Method: "GET", Path: fmt.Sprintf(things, "v2") + "?timeout=2s&labelSelector=a%3Db"})
		if answer.Code != http.StatusGatewayTimeout {
			t.Errorf("a list for two seconds: %d %.300s", answer.Code, answer.Body)
		}
		if answer := a.http.Do(t, harness.Request{Method: "GET", Path: fmt.Sprintf(things, "v2")}); answer.Code != http.StatusOK {
			t.Errorf("a list by one call: %d %.300s", answer.Code, answer.Body)
		}
	})
}
