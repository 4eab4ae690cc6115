// Package broker_test provisions and tears down resources with the real server, on both
// engines: a double of Crossplane builds machines, machines enrol, kubectl reads and
// writes.
package broker_test

import (
	"context"
	"flag"
	"fmt"
	"net/http"
	"os"
	"runtime"
	"strconv"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/internal/tracing/otlp/otlptest"
	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
)

// TestMain runs more tests in parallel than there are processors: they spend most of their
// time waiting.
func TestMain(m *testing.M) {
	flag.Parse()
	if f := flag.Lookup("test.parallel"); f.Value.String() == f.DefValue {
		_ = f.Value.Set(strconv.Itoa(2 * runtime.GOMAXPROCS(0)))
	}
	os.Exit(m.Run())
}

// world is a server that is its own management cluster, reached through a gate, with a
// double of Crossplane on it and a webhook that receives its events.
type world struct {
	*testing.T
	server  *harness.Server
	double  *crossplane.Double
	gate    *gate
	webhook *webhook
	traces  *otlptest.Receiver // nil if the server sends none
}

// each runs a test with a world on each engine, and expects that no machine was destroyed
// while its node was in the mesh.
func each(t *testing.T, test func(w *world)) {
	t.Helper()
	eachWith(t, func(*world) []string { return nil }, test)
}

// eachWith is each with further flags of the server.
func eachWith(t *testing.T, flags func(w *world) []string, test func(w *world)) {
	t.Helper()
	t.Parallel()
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			t.Parallel()
			w := newWorld(t, engine, flags)
			test(w)
			for _, violation := range w.double.Violations() {
				t.Error(violation)
			}
		})
	}
}

func newWorld(t *testing.T, engine string, flags func(w *world) []string) *world {
	t.Helper()
	w := emptyWorld(t, engine, flags)
	w.startDouble(crossplane.Start)
	w.apply(crossplane.Definitions())
	w.kubectl("wait", "crd", "--all", "--for=condition=Established", "--timeout=60s")
	w.apply(blueprint + "---" + credential)
	return w
}

// emptyWorld is a world without Crossplane.
func emptyWorld(t *testing.T, engine string, flags func(w *world) []string) *world {
	t.Helper()
	w := &world{T: t, gate: newGate(t), webhook: newWebhook(t)}
	w.server = harness.Start(t, engine, append([]string{"--management-kubeconfig", w.gate.kubeconfig, "--events-webhook", w.webhook.url}, flags(w)...)...)
	w.gate.open(w.server.Config())
	return w
}

// startDouble runs a double, or a part of it, until the test ends.
func (w *world) startDouble(start func(context.Context, *rest.Config) (*crossplane.Double, error)) {
	w.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	var err error
	if w.double, err = start(ctx, w.server.Config()); err != nil {
		w.Fatal(err)
	}
	w.Cleanup(func() { cancel(); w.double.Wait() })
}

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
    parameters:
    - {name: size, type: integer, default: 2, minimum: 1, maximum: 8}
    - {name: region, type: string, required: true, enum: [north, south]}
    xr:
      apiVersion: infra.example.org/v1
      kind: XNode
      spec: {size: "${parameters.size}", region: "${parameters.region}", providerConfigRef: {name: "${providerConfig.name}"}, tokenSecret: "${token.secretName}"}
    providerConfig:
      apiVersion: cloud.example.org/v1
      kind: ProviderConfig
      spec: {credentials: {source: Secret, secretRef: {name: "${credential.name}", namespace: "${resource.namespace}"}}}
`

const credential = `
apiVersion: v1
kind: Secret
metadata: {name: cloud, namespace: default, labels: {provisioning.exeunt.dev/provider: hetzner}}
`

func resource(name string) string {
	return fmt.Sprintf(`
apiVersion: provisioning.exeunt.dev/v1alpha1
kind: ProvisionedResource
metadata: {name: %s, namespace: default}
spec:
  blueprintRef: {name: node, version: 1.0.0}
  credentialRef: {name: cloud}
  parameters: {region: north}
`, name)
}

// kubectl runs a command that must succeed.
func (w *world) kubectl(args ...string) string {
	w.Helper()
	r := w.server.Kubectl(w, args...)
	if r.Code != 0 {
		w.Fatalf("kubectl %s: %s%s", strings.Join(args, " "), r.Stdout, r.Stderr)
	}
	return r.Stdout
}

func (w *world) apply(text string) {
	w.Helper()
	if r := w.try(text); r.Code != 0 {
		w.Fatalf("kubectl apply: %s%s", r.Stdout, r.Stderr)
	}
}

func (w *world) try(text string) harness.Result {
	w.Helper()
	return w.server.KubectlCommand(w, harness.Command{Args: []string{"apply", "-f", "-"}, Stdin: text})
}

// up declares a resource and waits until it is ready.
func (w *world) up(name string) {
	w.Helper()
	w.apply(resource(name))
	w.kubectl("wait", "pr/"+name, "--for=condition=Ready", "--timeout=60s")
}

const resources = "/apis/provisioning.exeunt.dev/v1alpha1/namespaces/default/provisionedresources/"

// get reads an object; found is false if it does not exist.
func (w *world) get(path string) (answer harness.Answer, found bool) {
	w.Helper()
	answer = w.server.HTTP().Do(w, harness.Request{Method: "GET", Path: path})
	if answer.Code != http.StatusOK && answer.Code != http.StatusNotFound {
		w.Fatalf("GET %s: %d %s", path, answer.Code, answer.Body)
	}
	return answer, answer.Code == http.StatusOK
}

// text unquotes a JSON string; other values stay as they are.
func text(value string) string {
	if unquoted, err := strconv.Unquote(value); err == nil {
		return unquoted
	}
	return value
}

// status reads a field of a resource's status. It returns "gone" if the resource does not
// exist.
func (w *world) status(name, field string) string {
	w.Helper()
	answer, found := w.get(resources + name)
	if !found {
		return "gone"
	}
	return text(answer.Field("status." + field))
}

// now returns the server's newest revision.
func (w *world) now() string {
	w.Helper()
	return text(w.server.HTTP().Get(w, "/api/v1/namespaces").Field("metadata.resourceVersion"))
}

// holds waits until a resource is in a phase, with a message that contains the parts.
func (w *world) holds(name, phase string, message ...string) {
	w.Helper()
	harness.Until(w, fmt.Sprintf("%s is %s", name, phase), func() error {
		got, why := w.status(name, "phase"), w.status(name, "message")
		for _, part := range message {
			if !strings.Contains(why, part) {
				return fmt.Errorf("it is %s: %s; want %q", got, why, part)
			}
		}
		if got != phase {
			return fmt.Errorf("it is %s: %s", got, why)
		}
		return nil
	})
}

func (w *world) exists(path string) bool {
	w.Helper()
	_, found := w.get(path)
	return found
}

func (w *world) xr(name string) string {
	w.Helper()
	return "/apis/infra.example.org/v1/namespaces/default/xnodes/" + w.status(name, "xr.name")
}

// checkOrder reads from the server's log when the objects of a resource changed: the
// revisions must increase.
func (w *world) checkOrder(since string, xr string) {
	w.Helper()
	changes := []struct{ what, path, kind string }{
		{"the node leaves", "/apis/mesh.exeunt.dev/v1alpha1/namespaces/default/meshnodes", "DELETED"},
		{"the XR is deleted", "/apis/infra.example.org/v1/namespaces/default/xnodes", "deleting"},
		{"the XR is gone", "/apis/infra.example.org/v1/namespaces/default/xnodes", "DELETED"},
		{"the ProviderConfig is gone", "/apis/cloud.example.org/v1/namespaces/default/providerconfigs", "DELETED"},
		{"the resource is gone", strings.TrimSuffix(resources, "/"), "DELETED"},
	}
	last := 0
	for _, c := range changes {
		name := xr
		if strings.Contains(c.path, "provisionedresources") {
			name = xr[:strings.LastIndex(xr, "-")]
		}
		at := w.revision(c.path, name, since, c.kind)
		if at == 0 {
			w.Errorf("%s: not in the log", c.what)
		}
		if at <= last {
			w.Errorf("%s at revision %d, not after %d", c.what, at, last)
		}
		last = at
	}
}

// revision finds the first event of a type in the server's log.
func (w *world) revision(path, name, since, kind string) int {
	w.Helper()
	stream := w.server.HTTP().Watch(w, path+"?watch=1&timeoutSeconds=1&fieldSelector=metadata.name="+name+"&resourceVersion="+since)
	for _, e := range stream.Rest(w) {
		if e.Type == kind || kind == "deleting" && e.Type == "MODIFIED" && e.Field("metadata.deletionTimestamp") != "" {
			n, err := strconv.Atoi(text(e.Field("metadata.resourceVersion")))
			if err != nil {
				w.Fatal(err)
			}
			return n
		}
	}
	return 0
}

func (w *world) uid(name string) string {
	w.Helper()
	return text(w.server.HTTP().Get(w, resources+name).Field("metadata.uid"))
}
