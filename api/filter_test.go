package api

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/tidwall/gjson"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/access"
	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/access/directory"
	"github.com/exeunt/exeunt/api/health"
	"github.com/exeunt/exeunt/internal/inflight"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// TestAuthentication: unauthenticated clients can read health and version only; clients with
// invalid credentials can read nothing.
func TestAuthentication(t *testing.T) {
	w := newWorld(t, store.Options{})
	public := []string{"/healthz", "/livez", "/readyz", "/readyz/", "/livez/ping", "/version"}
	private := []string{
		"/", "/api", "/apis", "/apis/apps/v1", "/metrics", "/openapi/v2", "/openapi/v3", "/debug/pprof/", SettingsPath, "/nowhere", "/version/x",
		"/healthzz", "/api/v1/namespaces", configMaps, configMaps + "?watch=true", "/exeunt/x", "//healthz",
	}
	i := 0
	for _, method := range []string{"GET", "POST", "PUT", "PATCH", "DELETE", "HEAD", "OPTIONS"} {
		for _, path := range append(slices.Clone(public), private...) {
			allowed := slices.Contains(public, path) && (method == "GET" || method == "HEAD")
			i++
			for _, credentials := range []string{"", "Bearer abc", "Basic YTpi"} {
				req := httptest.NewRequest(method, path, strings.NewReader(""))
				req.RemoteAddr = fmt.Sprintf("192.0.2.%d:1", i%256) // failures are slowed per address
				if credentials != "" {
					req.Header.Set("Authorization", credentials)
				}
				want := http.StatusUnauthorized
				if allowed && credentials == "" {
					want = http.StatusOK
				}
				r := w.answer(req)
				if r.code != want {
					t.Errorf("%s %s with %q answered %d, want %d", method, path, credentials, r.code, want)
				}
				if r.code == http.StatusUnauthorized && (r.get("reason") != "Unauthorized" || r.header.Get("WWW-Authenticate") == "") {
					t.Errorf("%s %s: %v %s", method, path, r.header, r.body)
				}
			}
		}
	}
	// The certificate decides, whatever other credentials are sent.
	w.want(http.StatusOK, "GET", configMaps, "", "Authorization: Bearer abc")
}

// TestGuessesAreSlowed: many wrong tokens of one address are answered 429, those of others
// and certificates of the same address are not.
func TestGuessesAreSlowed(t *testing.T) {
	w := newWorld(t, store.Options{})
	guess := func(i int, address string) reply {
		req := httptest.NewRequest("GET", configMaps, nil)
		req.RemoteAddr = address
		req.Header.Set("Authorization", fmt.Sprintf("Bearer guess-%d", i))
		return w.answer(req)
	}
	last := guess(0, "192.0.2.1:1")
	for i := 1; i < 1000 && last.code == http.StatusUnauthorized; i++ {
		last = guess(i, fmt.Sprintf("192.0.2.1:%d", i))
	}
	if last.code != http.StatusTooManyRequests || last.header.Get("Retry-After") != "1" || last.get("reason") != "TooManyRequests" {
		t.Errorf("after many guesses: %d %v %s", last.code, last.header, last.body)
	}
	if other := guess(0, "192.0.2.2:1"); other.code != http.StatusUnauthorized {
		t.Errorf("another address: %d", other.code)
	}
	w.want(http.StatusOK, "GET", configMaps, "", "Authorization: Bearer guess-1")
}

// TestOpenPath: below OpenPath, and only there, every client reaches the handler that
// authenticates by itself, with the credentials that it sent.
func TestOpenPath(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.api.Open = http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		http.Error(w, "you are "+req.Header.Get("Authorization"), http.StatusTeapot)
	})
	for path, want := range map[string]int{
		OpenPath: http.StatusTeapot, OpenPath + "x": http.StatusTeapot, OpenPath + "../../gc": http.StatusTeapot,
		"/exeunt/mesh/node": http.StatusUnauthorized, "/exeunt/mesh/tokens": http.StatusUnauthorized, "/exeunt/": http.StatusUnauthorized,
		"/exeunt//mesh/node/x": http.StatusUnauthorized, "/" + OpenPath: http.StatusUnauthorized,
	} {
		req := httptest.NewRequest("POST", path, nil)
		req.Header.Set("Authorization", "Bearer me")
		r := w.answer(req)
		if r.code != want || want == http.StatusTeapot && r.body != "you are Bearer me\n" {
			t.Errorf("%s answered %d %s, want %d", path, r.code, r.body, want)
		}
	}
}

func TestProbes(t *testing.T) {
	w := newWorld(t, store.Options{})
	if r := w.want(http.StatusOK, "GET", "/readyz?verbose", ""); r.body != "[+]ping ok\n[+]database ok\n[+]admission ok\n[+]shutdown ok\nreadyz check passed\n" {
		t.Errorf("in words, readyz is %q", r.body)
	}
	w.want(http.StatusNotFound, "GET", "/readyz/unheard-of", "")
	w.want(http.StatusMethodNotAllowed, "POST", "/version", "")
	for _, path := range []string{"/healthz", "/livez", "/readyz", "/livez/ping", "/readyz/ping"} {
		if r := w.want(http.StatusOK, "GET", path, ""); r.body != "ok" {
			t.Errorf("GET %s answered %q", path, r.body)
		}
	}
	w.api.Checks = func() []health.Check {
		return []health.Check{{Name: "database", Run: func(context.Context) error { return errors.New("the password is hunter2") }}}
	}
	for path, want := range map[string]int{"/healthz": 503, "/readyz": 503, "/livez": 200} {
		if r := w.want(want, "GET", path, ""); strings.Contains(r.body, "hunter2") {
			t.Errorf("GET %s shows the cause to unauthenticated clients: %q", path, r.body)
		}
	}
}

func TestRootPaths(t *testing.T) {
	w := newWorld(t, store.Options{})
	for _, path := range gjson.Get(w.want(http.StatusOK, "GET", "/", "").body, "paths").Array() {
		if path.String() != "/metrics" { // the server's, not ours
			w.want(http.StatusOK, "GET", path.String(), "", "Accept: application/json")
		}
	}
	for _, path := range []string{"/apis/apps", "/apis/apps/v1", "/readyz/database", "/openapi/v3"} {
		if !strings.Contains(w.want(http.StatusOK, "GET", "/", "").body, `"`+path+`"`) {
			t.Errorf("%s is not listed", path)
		}
	}
	if got := w.want(http.StatusOK, "GET", "/api", "").get("serverAddressByClientCIDRs.0.serverAddress"); got != "example.com" {
		t.Errorf("/api says that the server is at %q", got) // httptest's host
	}
	// The value is that of a kube-apiserver.
	if got := w.want(http.StatusOK, "GET", "/api/v1", "").get(`resources.#(name=="pods").storageVersionHash`); got != "xPOwRZ+Yhw8=" {
		t.Errorf("the hash of the stored version of Pods is %q", got)
	}
	if got := w.want(http.StatusMethodNotAllowed, "POST", "/api/v1/configmaps", "{}").get("message"); got != "the server does not allow this method on the requested resource" {
		t.Errorf("405 says %q", got)
	}
	version := w.want(http.StatusOK, "GET", "/version", "")
	if version.get("major") != "1" || version.get("minor") != KubernetesMinor || version.get("gitVersion") != "v1."+KubernetesMinor+".0+exeunt-test" {
		t.Errorf("version is %s", version.body)
	}
	if r := w.want(http.StatusNotFound, "GET", "/nowhere", ""); !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
		t.Errorf("outside the API the answer is plain text, not %s", r.header.Get("Content-Type"))
	}
	w.want(http.StatusNotFound, "GET", "/exeunt/anything", "")
}

// TestRefusedRoutes: each unknown path and method is answered with a Status.
func TestRefusedRoutes(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.configMap("a", "")
	for _, test := range []struct {
		method, path string
		code         int
	}{
		{"GET", "/api/v1/nothings", 404},
		{"GET", "/api/v9/pods", 404},
		{"GET", "/apis/apps/v1/things", 404},
		{"GET", "/apis/apps/v1/namespaces/shop/pods", 404},
		{"GET", "/api/v1/namespaces/shop/namespaces", 404},
		{"DELETE", "/api/v1/namespaces/shop/namespaces", 404},
		{"GET", "/api/v1/namespaces/shop/namespaces/other", 404},
		{"GET", "/api/v1/namespaces/shop/nodes", 404},
		{"GET", configMaps + "/none", 404},
		{"GET", configMaps + "/a/status", 404},
		{"GET", configMaps + "/a/scale", 404},
		{"GET", configMaps + "/a/b/c", 404},
		{"GET", "/api/v1/namespaces/shop/pods/a/log", 404},
		{"DELETE", "/api/v1/namespaces", 405},
		{"DELETE", "/api/v1/configmaps", 405},
		{"POST", configMaps + "/a", 405},
		{"POST", "/api/v1/configmaps", 405},
		{"PUT", configMaps, 405},
		{"PATCH", configMaps, 405},
		{"HEAD", configMaps, 405},
		{"HEAD", configMaps + "/a", 405},
		{"OPTIONS", configMaps, 405},
		{"TRACE", configMaps, 405},
		{"BREW", configMaps, 405},
		{"DELETE", "/apis/apps/v1/namespaces/shop/deployments/a/scale", 405},
		{"GET", "/apis/authentication.k8s.io/v1/selfsubjectreviews", 405},
	} {
		r := w.send(test.method, test.path, "")
		if r.code != test.code || r.get("kind") != "Status" || gjson.Get(r.body, "code").Int() != int64(test.code) {
			t.Errorf("%s %s answered %d %s, want a Status with %d", test.method, test.path, r.code, r.body, test.code)
		}
	}
}

// TestMissingSubresourceIsNamed: kubectl shows only the message.
func TestMissingSubresourceIsNamed(t *testing.T) {
	w := newWorld(t, store.Options{})
	for path, want := range map[string]string{
		"/api/v1/namespaces/shop/pods/a/log":                   `this server has no "log" of pods`,
		"/api/v1/namespaces/shop/pods/a/exec?command=ls":       `this server has no "exec" of pods`,
		"/apis/apps/v1/namespaces/shop/deployments/a/rollback": `this server has no "rollback" of deployments`,
	} {
		r := w.want(http.StatusNotFound, "POST", path, "{}")
		if !strings.HasSuffix(r.get("message"), want) || r.get("reason") != "NotFound" {
			t.Errorf("%s: %s", path, r.body)
		}
	}
}

// TestTooManyRequests: above the limit of requests in flight, clients get 429; watches and
// probes are still answered.
func TestTooManyRequests(t *testing.T) {
	w := newWorld(t, store.Options{})
	var serving []*inflight.Request
	for range inflight.DefaultRequests {
		r, _ := w.api.inFlight.Begin(nil, httptest.NewRequest("GET", "/", nil))
		serving = append(serving, r)
	}
	r := w.want(http.StatusTooManyRequests, "GET", configMaps, "")
	if r.header.Get("Retry-After") != "1" || r.get("reason") != "TooManyRequests" || r.get("details.retryAfterSeconds") != "1" {
		t.Errorf("no Retry-After: %v %s", r.header, r.body)
	}
	w.want(http.StatusOK, "GET", "/healthz", "")
	x := w.watch(configMaps + "?watch=true")
	if x.code != http.StatusOK {
		t.Errorf("a watch answered %d", x.code)
	}
	serving[0].End()
	w.want(http.StatusOK, "GET", configMaps, "")
	w.want(http.StatusNotFound, "GET", configMaps+"/none", "") // the slot is free again
	for _, r := range serving[1:] {
		r.End()
	}
}

// TestWatchesCountByCost: a watch takes slots of its client's share for the terms of its
// selectors, and gives them back at its end. Other watches and other clients are served.
func TestWatchesCountByCost(t *testing.T) {
	terms := func(n int) string { return "a0!=x" + strings.Repeat(",a0!=x", n-1) }
	for name, query := range map[string]string{
		"labels, stored bytes": "&labelSelector=" + terms(350),
		"labels, library":      "&pretty=false&labelSelector=" + terms(350),
		"values of one label":  "&labelSelector=" + url.QueryEscape("a0 notin (x"+strings.Repeat(",y", 350)+")"),
		"fields":               "&fieldSelector=" + strings.ReplaceAll(terms(350), "a0", "metadata.name"),
		"both":                 "&labelSelector=" + terms(175) + "&fieldSelector=" + strings.ReplaceAll(terms(175), "a0", "metadata.name"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel() // it waits more than it works
			w := newWorld(t, store.Options{})
			w.api.selectors = inflight.New(20)
			watch := configMaps + "?watch=true&resourceVersion=1&timeoutSeconds=1"
			costly := w.watch(configMaps + "?watch=true" + query)
			for range 5 { // 18 slots together
				w.watch(configMaps + "?watch=true" + query)
			}
			r := w.want(http.StatusTooManyRequests, "GET", watch+query, "")
			if r.header.Get("Retry-After") != "1" || !strings.Contains(r.get("message"), "selectors") {
				t.Errorf("refused with %v %s", r.header, r.body)
			}
			w.want(http.StatusOK, "GET", watch+"&labelSelector="+terms(100), "")
			w.want(http.StatusOK, "GET", configMaps+"?labelSelector="+terms(350), "")
			if r := w.as("bob", []string{"system:masters"}, "GET", watch+"&labelSelector="+terms(201), ""); r.code != http.StatusOK {
				t.Errorf("another client gets %d %s", r.code, r.body)
			}
			_ = costly.body.Close()
			dbtest.Until(w.t, "the ended watch gives back", func() error {
				if r := w.send("GET", watch+query, ""); r.code != http.StatusOK {
					return fmt.Errorf("%d %s", r.code, r.body)
				}
				return nil
			})
		})
	}
}

// TestExtraCounts: requests to /exeunt/ count like others. Long polls do not, and a
// request has no slot while its client sends the body.
func TestExtraCounts(t *testing.T) {
	w := newWorld(t, store.Options{})
	begun := make(chan struct{}, 1)
	handler := http.HandlerFunc(func(out http.ResponseWriter, req *http.Request) {
		begun <- struct{}{}
		if body, err := io.ReadAll(req.Body); err != nil || req.Method == "POST" && string(body) != "body" {
			t.Errorf("the handler read %q, %v", body, err)
		}
		if got := w.api.inFlight.Serving(); req.Method == "POST" && got != 1 {
			t.Errorf("%d slots are taken while the request is served, want 1", got)
		}
		_, _ = io.WriteString(out, "served")
	})
	w.api.Extra, w.api.Open = handler, handler
	paths := []string{"/exeunt/gc", OpenPath + "peers"}
	var serving []*inflight.Request
	for range inflight.DefaultRequests {
		r, _ := w.api.inFlight.Begin(nil, httptest.NewRequest("GET", "/", nil))
		serving = append(serving, r)
	}
	for _, path := range paths {
		w.want(http.StatusTooManyRequests, "GET", path, "")
		w.want(http.StatusTooManyRequests, "POST", path+"?wait=1s", "body")
		w.want(http.StatusOK, "GET", path+"?wait=1s", "")
		<-begun
	}
	for _, r := range serving {
		r.End()
	}
	for _, path := range paths {
		client, server := io.Pipe()
		answered := make(chan reply)
		go func() { answered <- w.answer(known(httptest.NewRequest("POST", path, client))) }()
		<-begun
		dbtest.Await(t, path+": a body that does not arrive holds no slot", func() bool { return w.api.inFlight.Serving() == 0 })
		_, _ = io.WriteString(server, "body") // the handler reports what it read
		_ = server.Close()
		if r := <-answered; r.code != http.StatusOK || r.body != "served" || w.api.inFlight.Serving() != 0 {
			t.Errorf("%s answered %d %s; %d slots are taken", path, r.code, r.body, w.api.inFlight.Serving())
		}
	}
}

// TestPanicIsAnswered: a panic becomes a 500 without details and is counted, and the server
// continues.
func TestPanicIsAnswered(t *testing.T) {
	var mu sync.Mutex
	var seen []int
	w := newWorld(t, store.Options{})
	w.api.Observer = func(o Observation) {
		mu.Lock()
		defer mu.Unlock()
		seen = append(seen, o.Code)
	}
	w.api.Extra = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { panic("secret") })
	if r := w.want(http.StatusInternalServerError, "GET", "/exeunt/x", ""); strings.Contains(r.body, "secret") || r.get("kind") != "Status" {
		t.Errorf("answered %s", r.body)
	}
	w.want(http.StatusOK, "GET", configMaps, "")
	if !slices.Equal(seen, []int{500, 200}) {
		t.Errorf("the observer saw %v", seen)
	}
}

func TestAuditID(t *testing.T) {
	w := newWorld(t, store.Options{})
	if got := w.want(http.StatusOK, "GET", configMaps, "", "Audit-Id: mine").header.Get("Audit-Id"); got != "mine" {
		t.Errorf("Audit-Id is %q", got)
	}
	long := strings.Repeat("x", 65)
	for _, bad := range []string{long, "caf\xe9", "two words"} {
		if got := w.want(http.StatusOK, "GET", configMaps, "", "Audit-Id: "+bad).header.Get("Audit-Id"); got == bad || got == "" {
			t.Errorf("Audit-Id is %q", got)
		}
	}
}

// TestClientDisconnected: a request whose client has disconnected is not an internal error.
func TestClientDisconnected(t *testing.T) {
	w := newWorld(t, store.Options{})
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	for _, path := range []string{configMaps, configMaps + "?pretty=false", configMaps + "/a"} {
		req := known(httptest.NewRequest("GET", path, nil)).WithContext(ctx)
		if r := w.answer(req); r.code == http.StatusInternalServerError {
			t.Errorf("GET %s answered %d %s", path, r.code, r.body)
		}
	}
}

// TestImpersonation: a client acts as another user only with the verb impersonate on the user
// and on each group, uid and extra; headers that Kubernetes ignores are refused.
func TestImpersonation(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.api.Open = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the open path was reached") })
	w.api.Extra = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the extra handlers were reached") })
	w.configMap("kept", "")
	for header, want := range map[string]string{
		"Impersonate-User: nobody":                         `forbidden: User "bob" cannot impersonate-on:user-info:`,
		"Impersonate-User: system:serviceaccount:shop:web": `forbidden: User "bob" cannot impersonate-on:serviceaccount:`,
		"Impersonate-Something-New: x":                     `the header Impersonate-Something-New is unknown or empty`,
		"impersonate-user: ":                               `the header Impersonate-User is unknown or empty`,
	} {
		for _, to := range []string{
			"GET " + configMaps, "GET " + configMaps + "/kept", "GET " + configMaps + "?watch=true", "DELETE " + configMaps + "/kept",
			"DELETE " + configMaps, "POST " + configMaps, "GET /version", "GET /api", "GET /metrics", "POST /exeunt/gc", "POST " + OpenPath + "enrol",
		} {
			method, path, _ := strings.Cut(to, " ")
			r := w.as("bob", nil, method, path, "", header)
			said := strings.Contains(r.get("message"), want) || strings.HasSuffix(to, "enrol") && strings.Contains(r.get("message"), "a node of the mesh acts as itself")
			if r.code != http.StatusForbidden || r.get("reason") != "Forbidden" || !said {
				t.Errorf("%s with %s: %d %s", to, header, r.code, r.body)
			}
		}
	}
	for _, header := range []string{"Impersonate-Group: dev", "Impersonate-Uid: 7", "Impersonate-Extra-Scopes: view"} {
		w.want(http.StatusBadRequest, "GET", configMaps, "", header) // without a user
	}
	w.want(http.StatusOK, "GET", configMaps+"/kept", "")
	req := httptest.NewRequest("GET", "/version", nil)
	req.Header.Set("Impersonate-User", "admin")
	if r := w.answer(req); r.code != http.StatusForbidden || !strings.Contains(r.get("message"), `User "system:anonymous" cannot impersonate`) {
		t.Errorf("a client without a certificate: %d %s", r.code, r.body)
	}
	req = httptest.NewRequest("GET", configMaps, nil)
	req.Header.Set("Impersonate-User", "admin")
	if r := w.answer(req); r.code != http.StatusUnauthorized {
		t.Errorf("a client without a certificate: %d %s", r.code, r.body)
	}

	// An administrator acts as others, with their rights.
	who := w.want(http.StatusCreated, "POST", "/apis/authentication.k8s.io/v1/selfsubjectreviews", `{}`,
		"Impersonate-User: jane", "Impersonate-Group: dev", "Impersonate-Uid: 7", "Impersonate-Extra-Scopes: view")
	for path, want := range map[string]string{"username": "jane", "uid": "7", "groups.0": "dev", "groups.1": "system:authenticated", "extra.scopes.0": "view"} {
		if got := who.get("status.userInfo." + path); got != want {
			t.Errorf("%s is %q, want %q: %s", path, got, want, who.body)
		}
	}
	r := w.want(http.StatusForbidden, "GET", configMaps+"/kept", "", "Impersonate-User: jane")
	if want := `configmaps "kept" is forbidden: User "jane" cannot get resource "configmaps" in API group "" in the namespace "shop"`; r.get("message") != want {
		t.Errorf("denied with %q, want %q", r.get("message"), want)
	}
}

// TestConstrainedImpersonation: with the verbs of constrained impersonation a client acts as
// another user for what these verbs name, and for nothing else.
func TestConstrainedImpersonation(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.configMap("a", "")
	o := accesstest.Objects()
	o.ClusterRoles["agents"] = &rbacv1.ClusterRole{ObjectMeta: metav1.ObjectMeta{Name: "agents"}, Rules: []rbacv1.PolicyRule{
		{APIGroups: []string{"authentication.k8s.io"}, Resources: []string{"users"}, ResourceNames: []string{"jane"}, Verbs: []string{"impersonate:user-info"}},
		{APIGroups: []string{""}, Resources: []string{"configmaps"}, Verbs: []string{"impersonate-on:user-info:get"}},
	}}
	for name, role := range map[string]string{"agent": "agents", "jane": "admin"} {
		o.ClusterRoleBindings[name] = &rbacv1.ClusterRoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name}, RoleRef: rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: role},
			Subjects: []rbacv1.Subject{{Kind: rbacv1.UserKind, APIGroup: rbacv1.GroupName, Name: name}},
		}
	}
	w.api.Access = access.NewControl(directory.Of(o), access.Config{})
	w.api.handler = w.api.filters(http.HandlerFunc(w.api.route)) // with that access
	for _, c := range []struct {
		method, path, user string
		code               int
	}{
		{"GET", configMaps + "/a", "jane", http.StatusOK},
		{"GET", configMaps, "jane", http.StatusForbidden}, // no impersonate-on:user-info:list
		{"DELETE", configMaps + "/a", "jane", http.StatusForbidden},
		{"GET", configMaps + "/a", "bob", http.StatusForbidden},
	} {
		if r := w.as("agent", nil, c.method, c.path, "", "Impersonate-User: "+c.user); r.code != c.code {
			t.Errorf("%s %s as %s: %d %s, want %d", c.method, c.path, c.user, r.code, r.body, c.code)
		}
	}
}

// TestWebPages: a page of another origin is refused, with or without the certificate of the
// browser's owner.
func TestWebPages(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.api.Open = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the open path was reached") })
	w.api.Extra = http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the extra handlers were reached") })
	for _, to := range []string{
		"GET " + configMaps, "POST " + configMaps, "DELETE /api/v1/namespaces/shop", "GET /version", "POST /exeunt/gc", "POST " + OpenPath + "enrol",
	} {
		method, path, _ := strings.Cut(to, " ")
		for _, header := range []string{"Origin: http://evil.example", "Origin: null", "Sec-Fetch-Site: cross-site", "Sec-Fetch-Site: same-site"} {
			if r := w.want(http.StatusForbidden, method, path, "", header); r.get("reason") != "Forbidden" || !strings.Contains(r.get("message"), "other origins are refused") {
				t.Errorf("%s with %s: %s", to, header, r.body)
			}
		}
	}
	w.want(http.StatusOK, "GET", configMaps, "", "Sec-Fetch-Site: none")
	w.want(http.StatusOK, "GET", configMaps, "", "Sec-Fetch-Site: same-origin")
	w.want(http.StatusOK, "GET", configMaps, "", "Origin: https://example.com") // the tests' own Host
}

// TestNamespacesThatStay: like Kubernetes, the server refuses every form of delete for these
// three namespaces, with the same message.
func TestNamespacesThatStay(t *testing.T) {
	w := newWorld(t, store.Options{})
	for _, name := range []string{"default", "kube-system", "kube-public", "kube-node-lease"} {
		w.want(http.StatusCreated, "POST", "/api/v1/namespaces", `{"metadata":{"name":"`+name+`"}}`)
	}
	for _, name := range []string{"default", "kube-system", "kube-public"} {
		path := "/api/v1/namespaces/" + name
		for _, r := range []reply{
			w.want(http.StatusForbidden, "DELETE", path, ""),
			w.want(http.StatusForbidden, "DELETE", path+"?dryRun=All", ""),
			w.want(http.StatusForbidden, "DELETE", path, `{"propagationPolicy":"Orphan","gracePeriodSeconds":0}`),
			w.want(http.StatusForbidden, "DELETE", path, "", "Accept: application/yaml"), // the library's handler
			w.want(http.StatusForbidden, "DELETE", path, `{"preconditions":{"uid":"another"}}`),
		} {
			if want := `namespaces "` + name + `" is forbidden: this namespace may not be deleted`; !strings.Contains(r.body, strings.ReplaceAll(want, `"`, `\"`)) && !strings.Contains(r.body, want) {
				t.Errorf("%s: %s; want %s", name, r.body, want)
			}
		}
		w.want(http.StatusOK, "PUT", path+"/finalize", `{"metadata":{"name":"`+name+`"},"spec":{"finalizers":[]}}`)
		w.want(http.StatusForbidden, "DELETE", path, "")
		if r := w.want(http.StatusOK, "GET", path, ""); r.get("metadata.deletionTimestamp") != "" || r.get("status.phase") != "Active" {
			t.Errorf("%s is not as it was: %s", name, r.body)
		}
	}
	w.want(http.StatusMethodNotAllowed, "DELETE", "/api/v1/namespaces", "")
	w.want(http.StatusOK, "DELETE", "/api/v1/namespaces/kube-node-lease", "")
}

// TestCustomInNoNamespace: as in Kubernetes, a custom kind with namespaces has only list and
// watch across all of them. Crossplane deletes all XRs of a kind that way, and takes a 404, but no 405,
// for "there are none".
func TestCustomInNoNamespace(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.define()
	const all = "/apis/test.dev/v1/widgets"
	body := `{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":"a"}}`
	w.want(http.StatusCreated, "POST", widgets, body)
	w.want(http.StatusOK, "GET", all, "")
	for _, r := range []struct{ method, path, body string }{
		{"DELETE", all, ""}, {"POST", all, body}, {"GET", all + "/a", ""}, {"PUT", all + "/a", body}, {"DELETE", all + "/a", ""},
	} {
		if r := w.want(http.StatusNotFound, r.method, r.path, r.body); !strings.HasPrefix(r.header.Get("Content-Type"), "text/plain") {
			t.Errorf("%s: %s", r.header.Get("Content-Type"), r.body)
		}
	}
	w.want(http.StatusOK, "GET", widgets+"/a", "")
}
