package crossplane_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/crossplane"
)

// cluster is a minimal API server: discovery, and objects by path.
type cluster struct {
	*testing.T
	mu      sync.Mutex
	objects map[string]map[string]any
	calls   []string // writes, in order, with their relevant fields
	answer  func(*http.Request) (int, string)
	*crossplane.Cluster
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	c := &cluster{T: t, objects: map[string]map[string]any{}}
	server := httptest.NewServer(c)
	t.Cleanup(server.Close)
	var err error
	c.Cluster, err = crossplane.Connect(&rest.Config{Host: server.URL}, crossplane.Enrolment{Server: "https://exeunt.example", CA: []byte("pem")})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(c.Close)
	return c
}

const discovery = `{"kind":"APIResourceList","apiVersion":"v1","groupVersion":%q,"resources":[%s]}`

func (c *cluster) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	c.mu.Lock()
	defer c.mu.Unlock()
	w.Header().Set("Content-Type", "application/json")
	if c.answer != nil {
		if code, body := c.answer(r); code != 0 {
			w.WriteHeader(code)
			_, _ = io.WriteString(w, body)
			return
		}
	}
	switch r.URL.Path {
	case "/api":
		_, _ = io.WriteString(w, `{"kind":"APIVersions","versions":["v1"]}`)
		return
	case "/apis":
		const group = `{"name":"%[1]s.example","versions":[{"groupVersion":"%[1]s.example/v1","version":"v1"}],"preferredVersion":{"groupVersion":"%[1]s.example/v1","version":"v1"}}`
		fmt.Fprintf(w, `{"kind":"APIGroupList","apiVersion":"v1","groups":[%s,%s]}`, fmt.Sprintf(group, "a"), fmt.Sprintf(group, "b"))
		return
	case "/api/v1":
		fmt.Fprintf(w, discovery, "v1", `{"name":"secrets","kind":"Secret","namespaced":true},{"name":"namespaces","kind":"Namespace","namespaced":false}`)
		return
	case "/apis/a.example/v1":
		fmt.Fprintf(w, discovery, "a.example/v1", `{"name":"xnodes","kind":"XNode","namespaced":true}`)
		return
	case "/apis/b.example/v1":
		fmt.Fprintf(w, discovery, "b.example/v1", `{"name":"providerconfigs","kind":"ProviderConfig","namespaced":false}`)
		return
	}
	c.serveObject(w, r)
}

func (c *cluster) serveObject(w http.ResponseWriter, r *http.Request) {
	body, _ := io.ReadAll(r.Body)
	path := r.URL.Path
	name := path[strings.LastIndex(path, "/")+1:]
	switch r.Method {
	case "POST", "PATCH":
		var o map[string]any
		if err := json.Unmarshal(body, &o); err != nil {
			c.Errorf("body %s: %v", body, err)
		}
		if r.Method == "POST" {
			path += "/" + o["metadata"].(map[string]any)["name"].(string)
		}
		c.calls = append(c.calls, r.Method+" "+path)
		if _, found := c.objects[path]; found && r.Method == "POST" {
			w.WriteHeader(http.StatusConflict)
			_, _ = io.WriteString(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":409,"reason":"AlreadyExists","message":"exists"}`)
			return
		}
		c.objects[path] = o
		_ = json.NewEncoder(w).Encode(o)
		return
	case "DELETE":
		c.calls = append(c.calls, "DELETE "+path+" "+string(body))
	}
	o, found := c.objects[path]
	if !found {
		w.WriteHeader(http.StatusNotFound)
		fmt.Fprintf(w, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","message":"not found","details":{"name":%q,"kind":"x"}}`, name)
		return
	}
	_ = json.NewEncoder(w).Encode(o)
}

func (c *cluster) put(path, kind, version, metadata, rest string) {
	c.Helper()
	var o map[string]any
	text := fmt.Sprintf(`{"apiVersion":%q,"kind":%q,"metadata":%s%s}`, version, kind, metadata, rest)
	if err := json.Unmarshal([]byte(text), &o); err != nil {
		c.Fatalf("%s: %v", text, err)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.objects[path] = o
}

func resource(t *testing.T) broker.ProvisionedResource {
	t.Helper()
	r, err := broker.Restore(broker.State{
		ID: "id-1", Project: "shop", Name: "web", Credential: "cloud", Deadline: time.Hour, Phase: broker.PhasePending,
		Parameters:     broker.Parameters{"size": int64(3)},
		XR:             broker.ObjectType{APIVersion: "a.example/v1", Kind: "XNode"},
		ProviderConfig: broker.ObjectType{APIVersion: "b.example/v1", Kind: "ProviderConfig"},
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func version(r broker.ProvisionedResource) broker.BlueprintVersion {
	s := r.State()
	return broker.BlueprintVersion{
		XR:             broker.Template{ObjectType: s.XR, Spec: []byte(`{"size":"${parameters.size}"}`)},
		ProviderConfig: broker.Template{ObjectType: s.ProviderConfig, Spec: []byte(`{"secret":"${credential.name}"}`)},
		Injection:      broker.InjectCloudInitUserData,
	}
}

func paths(r broker.ProvisionedResource) (xr, config, secret string) {
	return "/apis/a.example/v1/namespaces/shop/xnodes/" + r.XRName(), "/apis/b.example/v1/providerconfigs/" + r.XRName(),
		"/api/v1/namespaces/shop/secrets/" + r.XRName()
}

const mine = `"labels":{"provisioning.exeunt.dev/resource-id":"id-1"}`

func TestObserve(t *testing.T) {
	c, r := newCluster(t), resource(t)
	seen, err := c.Observe(t.Context(), r)
	if err != nil || seen.XRExists || seen.ProviderConfigExists || seen.SecretExists {
		t.Fatalf("without objects: %+v, %v", seen, err)
	}
	xr, config, secret := paths(r)
	c.put(secret, "Secret", "v1", `{"name":"s",`+mine+`,"annotations":{"provisioning.exeunt.dev/bootstrap-token-id":"t1"}}`, "")
	c.put(config, "ProviderConfig", "b.example/v1", `{"name":"p",`+mine+`,"deletionTimestamp":"2026-01-01T00:00:00Z","finalizers":["in-use.example"]}`, "")
	c.put(xr, "XNode", "a.example/v1", `{"name":"x",`+mine+`}`, `,"status":{"conditions":[{"type":"Ready","status":"False","reason":"Creating","message":"soon"},{"type":"Synced","status":"True"},{"type":"Other","status":"False"}]}`)
	seen, err = c.Observe(t.Context(), r)
	if err != nil || !seen.XRExists || seen.XRReady || seen.XRFailed || seen.XRDeleting || !seen.ProviderConfigExists || seen.DeliveredToken != "t1" {
		t.Errorf("not ready yet: %+v, %v", seen, err)
	}
	if got := fmt.Sprint(seen.Reasons); got != "[finalizer in-use.example on ProviderConfig/p condition Ready on XNode/x: Creating: soon]" {
		t.Errorf("reasons %s", got)
	}
	c.put(xr, "XNode", "a.example/v1", `{"name":"x",`+mine+`}`, `,"status":{"conditions":[{"type":"Ready","status":"True"},{"type":"Failed","status":"True","reason":"Quota"}]}`)
	if seen, err = c.Observe(t.Context(), r); err != nil || !seen.XRReady || !seen.XRFailed {
		t.Errorf("ready and failed: %+v, %v", seen, err)
	}
}

// TestGoneIsSaidByTheCluster: a substrate counts as gone only if the cluster answers that
// the object does not exist.
func TestGoneIsSaidByTheCluster(t *testing.T) {
	for name, answer := range map[string]struct {
		code int
		body string
	}{
		"denied":             {403, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":403,"reason":"Forbidden","message":"no","details":{"name":"x"}}`},
		"not served":         {404, "404 page not found\n"},
		"not served, worded": {404, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":404,"reason":"NotFound","message":"the server could not find the requested resource","details":{}}`},
		"broken":             {500, `{"kind":"Status","apiVersion":"v1","status":"Failure","code":500,"message":"oops"}`},
	} {
		t.Run(name, func(t *testing.T) {
			c, r := newCluster(t), resource(t)
			c.answer = func(req *http.Request) (int, string) {
				if strings.Contains(req.URL.Path, "/xnodes/") {
					return answer.code, answer.body
				}
				return 0, ""
			}
			if seen, err := c.Observe(t.Context(), r); err == nil {
				t.Errorf("observed %+v without an answer", seen)
			}
		})
	}
	t.Run("an unknown kind", func(t *testing.T) {
		c := newCluster(t)
		s := resource(t).State()
		s.XR.Kind = "XUnknown"
		r, err := broker.Restore(s)
		if err != nil {
			t.Fatal(err)
		}
		if seen, err := c.Observe(t.Context(), r); err == nil {
			t.Errorf("observed %+v without an answer", seen)
		}
	})
}

// TestStrangers: an object of the same name that the broker did not create is
// neither used nor changed nor deleted.
func TestStrangers(t *testing.T) {
	c, r := newCluster(t), resource(t)
	xr, config, secret := paths(r)
	c.put(xr, "XNode", "a.example/v1", `{"name":"x"}`, "")
	c.put(config, "ProviderConfig", "b.example/v1", `{"name":"p","labels":{"provisioning.exeunt.dev/resource-id":"other"}}`, "")
	c.put(secret, "Secret", "v1", `{"name":"s"}`, "")
	v := version(r)
	for name, err := range map[string]error{
		"observe":               second(c.Observe(t.Context(), r)),
		"deliver":               c.DeliverToken(t.Context(), r, v, broker.BootstrapToken{ID: "t"}),
		"apply":                 c.ApplyProviderConfig(t.Context(), r, v),
		"create":                c.CreateXR(t.Context(), r, v),
		"delete":                c.DeleteXR(t.Context(), r),
		"delete ProviderConfig": c.DeleteProviderConfig(t.Context(), r),
	} {
		if err == nil || !strings.Contains(err.Error(), "is left alone") {
			t.Errorf("%s: %v", name, err)
		}
	}
	for _, call := range c.calls {
		if !strings.HasPrefix(call, "POST") {
			t.Errorf("written: %s", call)
		}
	}
}

func second[A any](_ A, err error) error { return err }

// TestWrites: the objects that are created, and how they are deleted. Every call is
// idempotent.
func TestWrites(t *testing.T) {
	c, r := newCluster(t), resource(t)
	v := version(r)
	xr, config, secret := paths(r)
	for range 2 {
		for name, err := range map[string]error{
			"deliver": c.DeliverToken(t.Context(), r, v, broker.BootstrapToken{ID: "t1", Secret: broker.NewTokenSecret("s3cret")}),
			"apply":   c.ApplyProviderConfig(t.Context(), r, v),
			"create":  c.CreateXR(t.Context(), r, v),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	}
	if got := fmt.Sprint(c.objects[xr]["spec"], c.objects[config]["spec"]); got != "map[size:3] map[secret:cloud]" {
		t.Errorf("specs %s", got)
	}
	if refs := c.objects[xr]["metadata"].(map[string]any)["ownerReferences"]; refs != nil {
		t.Errorf("the XR has owners %v: the collector could delete it while its node is in the mesh", refs)
	}
	if seen, err := c.Observe(t.Context(), r); err != nil || seen.DeliveredToken != "t1" {
		t.Errorf("observed %+v, %v", seen, err)
	}
	c.calls = nil
	if err := errors.Join(c.DeleteXR(t.Context(), r), c.DeleteProviderConfig(t.Context(), r)); err != nil {
		t.Fatal(err)
	}
	if len(c.calls) != 3 || !strings.HasPrefix(c.calls[0], "DELETE "+xr) || !strings.Contains(c.calls[0], `"propagationPolicy":"Foreground"`) ||
		!strings.HasPrefix(c.calls[1], "DELETE "+config) || !strings.HasPrefix(c.calls[2], "DELETE "+secret) {
		t.Errorf("deletions %q", c.calls)
	}
	clear(c.objects)
	if err := errors.Join(c.DeleteXR(t.Context(), r), c.DeleteProviderConfig(t.Context(), r)); err != nil {
		t.Errorf("without objects: %v", err)
	}
}

func TestNamespaceAndCredential(t *testing.T) {
	c := newCluster(t)
	for want, object := range map[broker.NamespaceState]string{
		broker.NamespaceMissing:     "",
		broker.NamespaceReady:       `{"name":"shop"}|,"status":{"phase":"Active"}`,
		broker.NamespacePending:     `{"name":"shop"}|`,
		broker.NamespaceTerminating: `{"name":"shop","deletionTimestamp":"2026-01-01T00:00:00Z"}|,"status":{"phase":"Terminating"}`,
	} {
		clear(c.objects)
		if metadata, rest, ok := strings.Cut(object, "|"); ok {
			c.put("/api/v1/namespaces/shop", "Namespace", "v1", metadata, rest)
		}
		if got, err := c.State(t.Context(), "shop"); err != nil || got != want {
			t.Errorf("%s: %s, %v", want, got, err)
		}
	}
	if _, err := c.Find(t.Context(), "shop", "cloud"); !errors.Is(err, broker.ErrCloudCredentialNotFound) {
		t.Errorf("no Secret: %v", err)
	}
	c.put("/api/v1/namespaces/shop/secrets/cloud", "Secret", "v1", `{"name":"cloud"}`, "")
	if _, err := c.Find(t.Context(), "shop", "cloud"); !errors.Is(err, broker.ErrCloudCredentialNotFound) {
		t.Errorf("a Secret that is not a credential: %v", err)
	}
	c.put("/api/v1/namespaces/shop/secrets/cloud", "Secret", "v1", `{"name":"cloud","labels":{"provisioning.exeunt.dev/provider":"aws"}}`, "")
	if got, err := c.Find(t.Context(), "shop", "cloud"); err != nil || got.Provider != "aws" {
		t.Errorf("a credential: %+v, %v", got, err)
	}
}
