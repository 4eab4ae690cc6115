package broker_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/internal/tracing/otlp/otlptest"
	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
)

// TestLife: apply provisions, wait waits, delete tears down in order, the webhook
// receives every event, and one trace has the delete, the rounds and the sending of the events.
func TestLife(t *testing.T) {
	traced := func(w *world) []string {
		w.traces = otlptest.NewReceiver(w)
		return []string{"--otlp-endpoint", w.traces.URL}
	}
	eachWith(t, traced, func(w *world) {
		since := w.now()
		w.up("web")
		if out := w.kubectl("get", "pr", "web"); !strings.Contains(out, "Ready") || !strings.Contains(out, "node") {
			w.Errorf("kubectl get:\n%s", out)
		}
		uid, xr := w.uid("web"), w.status("web", "xr.name")
		w.awaitEvents(uid, "Requested", "Ready")
		const trace, span = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
		if answer := w.server.HTTP().Do(w, harness.Request{Method: "DELETE", Path: resources + "web", Trace: "00-" + trace + "-" + span + "-01"}); answer.Code != 200 {
			w.Fatalf("DELETE: %d %s", answer.Code, answer.Body)
		}
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
		w.awaitEvents(uid, "Requested", "Ready", "Deleting", "Deleted")
		w.checkOrder(since, xr)
		harness.Until(w, "the trace of the delete, with the broker's rounds and its events", func() error {
			names := w.traces.Names(trace)
			if names["HTTP DELETE"] != 1 || names["review provisioned-resources"] == 0 || names["review provisioned-resource-events"] == 0 {
				return errorf("the trace has the spans %v", names)
			}
			return nil
		})
		harness.Until(w, "Kubernetes Events", func() error {
			out := w.kubectl("get", "events", "-o", "custom-columns=R:.reason", "--field-selector", "involvedObject.uid="+uid, "--no-headers")
			for _, reason := range []string{"Requested", "Ready", "Deleting", "Deleted"} {
				if strings.Count(out, reason+"\n") != 1 {
					return errorf("events are\n%s", out)
				}
			}
			return nil
		})
		w.checkEmpty(uid)
	})
}

// TestRefused: a declaration that cannot be provisioned is refused with the name of its
// field, and nothing is stored.
func TestRefused(t *testing.T) {
	each(t, func(w *world) {
		w.kubectl("create", "ns", "leaving")
		w.kubectl("create", "configmap", "held", "-n", "leaving")
		w.kubectl("patch", "configmap", "held", "-n", "leaving", "--type=merge", "-p", `{"metadata":{"finalizers":["example.org/held"]}}`)
		w.kubectl("delete", "ns", "leaving", "--wait=false")
		w.kubectl("create", "secret", "generic", "other")
		for _, test := range []struct{ name, old, new, want string }{
			{"unknown blueprint", "name: node", "name: nope", "spec.blueprintRef: Not found: there is no blueprint nope@1.0.0"},
			{"unknown version", "version: 1.0.0", "version: 9.9.9", "spec.blueprintRef: Not found: there is no blueprint node@9.9.9"},
			{"a value that is not allowed", "north", "west", "spec.parameters.region: Invalid value: must be one of [north south]"},
			{"a value of another type", "region: north", "region: north, size: big", "spec.parameters.size: Invalid value: must be of type integer"},
			{"a value that is an object", "region: north", "region: {a: b}", "spec.parameters.region: Invalid value: must be of type string, is an object"},
			{"a parameter that is none", "region: north", "region: north, colour: red", "spec.parameters.colour: Invalid value: the blueprint has no such parameter"},
			{"a parameter that is missing", "region: north", "", "spec.parameters.region: Required value: is required"},
			{"no such credential", "name: cloud", "name: nope", "spec.credentialRef.name: Not found: the project has no credential nope"},
			{"a Secret that is no credential", "name: cloud", "name: other", "spec.credentialRef.name: Not found: the project has no credential other"},
			{"a namespace that is leaving", "namespace: default", "namespace: leaving", "because it is being terminated"},
			{"no such namespace", "namespace: default", "namespace: nowhere", `namespaces "nowhere" not found`},
			{"a name with a dot", "name: web", "name: web.shop", "metadata.name: Invalid value"},
			{"no blueprint", "blueprintRef: {name: node, version: 1.0.0}", "", "spec.blueprintRef: Required value"},
			{"a field that is none", "credentialRef:", "colour: red\n  credentialRef:", `unknown field "spec.colour"`},
		} {
			r := w.try(strings.Replace(resource("web"), test.old, test.new, 1))
			if r.Code == 0 || !strings.Contains(r.Stderr, test.want) {
				w.Errorf("%s: code %d, %q; want %q", test.name, r.Code, r.Stderr, test.want)
			}
		}
		big := w.try(strings.Replace(resource("web"), "region: north", "region: "+strings.Repeat("n", 4<<20), 1))
		if big.Code == 0 || !strings.Contains(big.Stderr, "too large") && !strings.Contains(big.Stderr, "limit") {
			w.Errorf("a body of 4 MiB: code %d, %.300s", big.Code, big.Stderr)
		}
		if out := w.kubectl("get", "pr", "-A", "-o", "name"); out != "" {
			w.Errorf("a refused declaration was stored: %s", out)
		}
		w.gate.set(down)
		if r := w.try(resource("web")); r.Code == 0 || !strings.Contains(r.Stderr, "the management cluster cannot be asked") {
			w.Errorf("without a management cluster: code %d, %s", r.Code, r.Stderr)
		}
		w.gate.set(nil)
		w.kubectl("patch", "configmap", "held", "-n", "leaving", "--type=merge", "-p", `{"metadata":{"finalizers":null}}`)
	})
}

// TestBlueprint: a version of a Blueprint never changes, and a Blueprint stays as long as
// resources built from it exist.
func TestBlueprint(t *testing.T) {
	each(t, func(w *world) {
		for _, test := range []struct{ name, old, new, want string }{
			{"a changed template", "tokenSecret:", "secret:", "spec.versions[0]: Forbidden: version 1.0.0 cannot be changed"},
			{"another version in its place", "name: 1.0.0", "name: 1.0.1", "spec.versions[1.0.0]: Required value: a version cannot be taken back"},
			{"another provider", "provider: hetzner", "provider: aws", "spec.provider: Invalid value"},
			{"a placeholder for nothing", "${parameters.size}", "${parameters.sise}", "spec.versions[0].xr.spec: Invalid value: ${parameters.sise}"},
			{"a deadline that is none", "10m", "soon", "spec.versions[0].deadline: Invalid value"},
			{"an unknown injection", "cloud-init-user-data", "pigeon", "spec.versions[0].injection: Unsupported value"},
		} {
			if r := w.try(strings.Replace(blueprint, test.old, test.new, 1)); r.Code == 0 || !strings.Contains(r.Stderr, test.want) {
				w.Errorf("%s: code %d, %s; want %q", test.name, r.Code, r.Stderr, test.want)
			}
		}
		w.up("web")
		w.apply(strings.Replace(blueprint, "- name: 1.0.0", "- withdrawn: true\n    name: 1.0.0", 1))
		if r := w.try(resource("late")); r.Code == 0 || !strings.Contains(r.Stderr, "spec.blueprintRef: Not found") {
			w.Errorf("a resource of a withdrawn version: %s%s", r.Stdout, r.Stderr)
		}
		w.kubectl("delete", "blueprint", "node", "--wait=false")
		if !w.exists("/apis/provisioning.exeunt.dev/v1alpha1/blueprints/node") {
			w.Error("the Blueprint is gone before the resource that was built from it")
		}
		w.kubectl("delete", "pr", "web", "--timeout=60s")
		w.kubectl("wait", "blueprint/node", "--for=delete", "--timeout=60s")
	})
}

// TestFailed: a failure that the composition reports as final is shown and sent to the
// webhook, and the resource can be deleted.
func TestFailed(t *testing.T) {
	each(t, func(w *world) {
		w.double.Set(crossplane.Behaviour{Fail: true})
		w.apply(resource("web"))
		w.holds("web", "Failed", "the XR has failed", "condition Failed on XNode/", "QuotaExceeded: no machines left")
		uid := w.uid("web")
		w.awaitEvents(uid, "Requested", "Failed")
		w.double.Set(crossplane.Behaviour{})
		w.kubectl("delete", "pr", "web", "--timeout=60s")
		w.awaitEvents(uid, "Requested", "Failed", "Deleting", "Deleted")
	})
}

// TestLateBoot: a machine that boots after its deletion was requested cannot enrol.
func TestLateBoot(t *testing.T) {
	each(t, func(w *world) {
		w.double.Set(crossplane.Behaviour{NoBoot: true, HoldMachines: true})
		w.apply(resource("web"))
		w.holds("web", "Enrolling", "waiting for the node to enrol")
		w.kubectl("delete", "pr", "web", "--wait=false")
		w.holds("web", "Deprovisioning")
		w.double.Set(crossplane.Behaviour{HoldMachines: true}) // now it boots
		w.double.Set(crossplane.Behaviour{})
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
		if n := w.double.Enrolled(); n != 0 {
			w.Errorf("%d nodes have enrolled", n)
		}
	})
}

// TestWatched: a change of the substrate triggers a round at once. Without the watch the
// next round of a ready resource is much later.
func TestWatched(t *testing.T) {
	each(t, func(w *world) {
		w.up("web")
		for _, kind := range []string{"xnode", "providerconfig"} {
			// The watch begins shortly after the kind is first used.
			n := 0
			harness.Until(w, "a change of a "+kind+" to be noticed", func() error {
				n++
				w.kubectl("annotate", kind, w.status("web", "xr.name"), fmt.Sprintf("example.org/changed=%d", n), "--overwrite")
				if why := w.server.Query("SELECT event FROM provisioned_resource_reviews"); len(why) != 1 || why[0] != "substrate_changed" {
					return errorf("the last event is %v", why)
				}
				return nil
			})
			if phase := w.status("web", "phase"); phase != "Ready" {
				w.Errorf("it is %s", phase)
			}
			// The server must notice a second kind too.
			w.server.Execute("UPDATE provisioned_resource_reviews SET event = 'test'")
		}
		if got := w.gate.watches(); !slices.Contains(got, "xnodes") || !slices.Contains(got, "providerconfigs") || len(got) != 2 {
			w.Errorf("watched on the cluster: %v", got)
		}
	})
}

// TestNamespace: a namespace is deleted with its content. Its resources are torn down
// first, while the credentials and composite resources that they need exist.
func TestNamespace(t *testing.T) {
	each(t, func(w *world) {
		in := func(text string) string { return strings.Replace(text, "namespace: default", "namespace: shop", 1) }
		w.kubectl("create", "ns", "shop")
		w.apply(in(credential))
		w.apply(in(resource("web")))
		w.kubectl("wait", "pr/web", "-n", "shop", "--for=condition=Ready", "--timeout=60s")
		uid := w.kubectl("get", "pr", "web", "-n", "shop", "-o", "jsonpath={.metadata.uid}")
		w.kubectl("delete", "ns", "shop", "--timeout=100s")
		w.awaitEvents(uid, "Requested", "Ready", "Deleting", "Deleted")
	})
}
