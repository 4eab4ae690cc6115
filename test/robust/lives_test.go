package robust_test

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
)

// management is the broker's management cluster: the replicas themselves, through their
// links, behind a load balancer that asks them in turn.
type management struct {
	url        string
	kubeconfig string
	next       atomic.Int64
	replicas   atomic.Pointer[[]http.Handler]
}

func newManagement(t *testing.T) *management {
	t.Helper()
	m := &management{kubeconfig: filepath.Join(t.TempDir(), "management")}
	server := httptest.NewServer(m)
	t.Cleanup(server.Close)
	m.url = server.URL
	text := fmt.Sprintf(`{"apiVersion":"v1","kind":"Config","clusters":[{"name":"m","cluster":{"server":%q}}],"contexts":[{"name":"m","context":{"cluster":"m"}}],"current-context":"m"}`, m.url)
	if err := os.WriteFile(m.kubeconfig, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return m
}

// open forwards requests to the replicas, as their administrator.
func (m *management) open(replicas []api) {
	var all []http.Handler
	for _, r := range replicas {
		target, err := url.Parse(r.base)
		if err != nil {
			panic(err) // the address of a link
		}
		proxy := httputil.NewSingleHostReverseProxy(target)
		proxy.Transport = r.http.Transport
		proxy.ErrorHandler = func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) }
		all = append(all, proxy)
	}
	m.replicas.Store(&all)
}

func (m *management) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	all := m.replicas.Load()
	if all == nil {
		panic(http.ErrAbortHandler)
	}
	if r.URL.Query().Get("watch") == "" {
		ctx, cancel := context.WithTimeout(r.Context(), answerWithin/2)
		defer cancel()
		r = r.WithContext(ctx)
	}
	(*all)[int(m.next.Add(1))%len(*all)].ServeHTTP(w, r)
}

// lives are provisioned resources: each is declared, gets a machine from the double of
// Crossplane, whose node joins the mesh, and is deleted.
type lives struct {
	double   *crossplane.Double
	watchers []*watcher // of nodes, XRs, ProviderConfigs and resources, in the order in which they must go

	mu    sync.Mutex
	names []string // guarded by mu; whose deletion was acknowledged
	ended int      // set by check
}

const (
	resources       = "/apis/provisioning.exeunt.dev/v1alpha1/namespaces/default/provisionedresources"
	nodes           = "/apis/mesh.exeunt.dev/v1alpha1/namespaces/default/meshnodes"
	xrs             = "/apis/infra.example.org/v1/namespaces/default/xnodes"
	machines        = "/apis/infra.example.org/v1/namespaces/default/machines"
	providerConfigs = "/apis/cloud.example.org/v1/namespaces/default/providerconfigs"
)

const blueprint = `
apiVersion: provisioning.exeunt.dev/v1alpha1
kind: Blueprint
metadata: {name: node}
spec:
  provider: hetzner
  versions:
  - name: 1.0.0
    injection: cloud-init-user-data
    deadline: 10m
    xr:
      apiVersion: infra.example.org/v1
      kind: XNode
      spec: {providerConfigRef: {name: "${providerConfig.name}"}, tokenSecret: "${token.secretName}"}
    providerConfig:
      apiVersion: cloud.example.org/v1
      kind: ProviderConfig
      spec: {credentials: {source: Secret, secretRef: {name: "${credential.name}", namespace: "${resource.namespace}"}}}
`

const provisioned = `{"apiVersion":"provisioning.exeunt.dev/v1alpha1","kind":"ProvisionedResource","metadata":{"name":%q},
	"spec":{"blueprintRef":{"name":"node","version":"1.0.0"},"credentialRef":{"name":"cloud"}}}`

// prepare installs the double, its kinds and a blueprint, and begins to watch.
func (l *lives) prepare(w *world) {
	w.Helper()
	h := w.servers[0].HTTP()
	create := func(path, text string) {
		w.Helper()
		body, err := yaml.YAMLToJSON([]byte(text))
		if err != nil {
			w.Fatal(err)
		}
		if a := h.Do(w, harness.Request{Method: "POST", Path: path, Body: string(body)}); a.Code != http.StatusCreated {
			w.Fatalf("POST %s: %d %s", path, a.Code, a.Body)
		}
	}
	for _, definition := range strings.Split(crossplane.Definitions(), "---\n")[1:] {
		create("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", definition)
	}
	var from int64
	for _, s := range w.servers {
		for _, path := range []string{xrs, machines, providerConfigs} {
			harness.Until(w, path, func() error {
				a, err := s.HTTP().Try(harness.Request{Method: "GET", Path: path})
				if err == nil && a.Code != http.StatusOK {
					err = fmt.Errorf("answers %d", a.Code)
				}
				from = answer{a.Code, a.Body}.object().version()
				return err
			})
		}
	}
	create("/apis/provisioning.exeunt.dev/v1alpha1/blueprints", blueprint)
	create("/api/v1/namespaces/default/secrets", `{apiVersion: v1, kind: Secret, metadata: {name: cloud, labels: {provisioning.exeunt.dev/provider: hetzner}}}`)
	for i, path := range []string{nodes, xrs, providerConfigs, resources} {
		l.watchers = append(l.watchers, &watcher{replica: w.apis[i%replicas], path: path, from: from})
	}
	ctx, cancel := context.WithCancel(context.Background())
	double, err := crossplane.Start(ctx, &rest.Config{Host: w.management.url})
	if err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { cancel(); double.Wait() })
	l.double = double
}

// start runs clients that each declare and delete one resource after the other.
func (l *lives) start(ctx context.Context, group *sync.WaitGroup, replicas []api, random func() *rand.Rand) {
	for i := range 2 {
		b := &breeder{replicas: replicas, rng: random()}
		group.Go(func() {
			for n := 0; ctx.Err() == nil; n++ {
				l.live(ctx, b, fmt.Sprintf("node-%d-%d", i, n))
			}
		})
	}
}

func (l *lives) live(ctx context.Context, b *breeder, name string) {
	b.must(ctx, "POST", resources, fmt.Sprintf(provisioned, name))
	for ctx.Err() == nil {
		var o struct{ Status struct{ Phase string } }
		if a := b.must(ctx, "GET", resources+"/"+name, ""); json.Unmarshal(a.body, &o) == nil && (o.Status.Phase == "Ready" || o.Status.Phase == "Failed") {
			break
		}
		time.Sleep(100 * time.Millisecond)
	}
	if b.must(ctx, "DELETE", resources+"/"+name, "").code == 0 {
		return
	}
	l.mu.Lock()
	l.names = append(l.names, name)
	l.mu.Unlock()
	for b.must(ctx, "GET", resources+"/"+name, "").code == 200 {
		time.Sleep(100 * time.Millisecond)
	}
}

// end deletes what is left, without faults, and waits until it is gone.
func (l *lives) end(w *world) {
	w.Helper()
	h := w.servers[0].HTTP()
	if a := h.Do(w, harness.Request{Method: "DELETE", Path: resources}); a.Code != http.StatusOK {
		w.Fatalf("delete the provisioned resources: %d %s", a.Code, a.Body)
	}
	w.patiently("the provisioned resources", func() error {
		for _, path := range []string{resources, nodes, xrs, machines, providerConfigs} {
			a, err := h.Try(harness.Request{Method: "GET", Path: path})
			if err != nil {
				return err
			}
			var list struct{ Items []json.RawMessage }
			if err := json.Unmarshal(a.Body, &list); err != nil {
				return err
			}
			if len(list.Items) > 0 {
				return fmt.Errorf("%s has %d objects: %.600s", path, len(list.Items), list.Items[0])
			}
		}
		return nil
	})
}

// check: each resource went in order. The node left the mesh, then its XR was deleted and
// went, then its ProviderConfig, then the resource.
func (l *lives) check(t *testing.T) {
	t.Helper()
	for _, violation := range l.double.Violations() {
		t.Error(violation)
	}
	type change struct{ kind, name string }
	at := map[change]int64{}
	for i, kind := range []string{"node", "XR", "ProviderConfig", "resource"} {
		for _, problem := range l.watchers[i].problems {
			t.Errorf("watch of %s: %s", l.watchers[i].path, problem)
		}
		for _, e := range l.watchers[i].events {
			name := e.Name
			if kind != "resource" {
				name = name[:max(0, strings.LastIndex(name, "-"))] // RESOURCE-SUFFIX
			}
			if e.Deleting && at[change{kind + " is deleted", name}] == 0 {
				at[change{kind + " is deleted", name}] = e.Version
			}
			if e.Type == "DELETED" {
				at[change{kind + " is gone", name}] = e.Version
			}
		}
	}
	for _, name := range l.names {
		if at[change{"XR is gone", name}] == 0 {
			continue // it was deleted before it had one
		}
		last := int64(0)
		for _, kind := range []string{"node is gone", "XR is deleted", "XR is gone", "ProviderConfig is gone", "resource is gone"} {
			v := at[change{kind, name}]
			if v <= last {
				t.Errorf("%s: %s at version %d, not after %d", name, kind, v, last)
			}
			last = v
		}
		l.ended++
	}
}
