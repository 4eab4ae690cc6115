package broker_test

import (
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
)

var errorf = fmt.Errorf

// The four cases of the runbook in docs/operating.md, and the faults around them.

// TestDrainHangs is case 1 as far as it can be seen from outside: the node does
// not leave. The XR is not touched meanwhile.
func TestDrainHangs(t *testing.T) {
	each(t, func(w *world) {
		w.up("web")
		w.double.Set(crossplane.Behaviour{MuteNodes: true})
		w.kubectl("delete", "pr", "web", "--wait=false")
		w.holds("web", "Deregistering", "waiting for the node to leave the mesh", "peer "+w.status("web", "xr.name"))
		if xr, found := w.get(w.xr("web")); !found || xr.Field("metadata.deletionTimestamp") != "" {
			at := xr.Field("metadata.deletionTimestamp")
			w.Errorf("the XR is being deleted since %s, under its node", at)
		}
		w.double.Set(crossplane.Behaviour{})
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
	})
}

// TestSubstrateDeleteFails is case 2: the cluster refuses the deletion, or cannot
// be reached. The message says why, and all goes on once it is mended.
func TestSubstrateDeleteFails(t *testing.T) {
	each(t, func(w *world) {
		for i, test := range []struct {
			name   string
			refuse func(*http.Request) (int, string)
			want   string
		}{
			{"RBAC denial", deny("DELETE", "xnodes", 403, "Forbidden", `xnodes "x" is forbidden: User "broker" cannot delete resource`), "DeleteSubstrate: delete XR: XNode"},
			{"webhook rejection", deny("DELETE", "xnodes", 400, "BadRequest", `admission webhook "usages.example.org" denied the request: in use`), `admission webhook "usages.example.org" denied the request`},
			{"ProviderConfig", deny("DELETE", "providerconfigs", 403, "Forbidden", "no"), "DeleteProviderConfig: delete ProviderConfig: ProviderConfig"},
			{"no read", deny("GET", "xnodes", 403, "Forbidden", "no"), "observe substrate: get XNode"},
			{"kind not served", deny("GET", "xnodes", 404, "NotFound", "the server could not find the requested resource"), "observe substrate: get XNode"},
			{"cluster down", down, "observe namespace: get Namespace default"},
		} {
			name := fmt.Sprintf("web-%d", i)
			w.up(name)
			uid := w.uid(name)
			w.gate.set(test.refuse)
			w.kubectl("delete", "pr", name, "--wait=false")
			harness.Until(w, test.name+" is shown", func() error {
				if got := w.status(name, "message"); !strings.Contains(got, test.want) {
					return errorf("the message is %q, want %q", got, test.want)
				}
				return nil
			})
			if phase := w.status(name, "phase"); phase == "Deleted" || phase == "gone" {
				w.Errorf("%s: it is %s all the same", test.name, phase)
			}
			w.gate.set(nil)
			w.kubectl("wait", "pr/"+name, "--for=delete", "--timeout=120s")
			w.told(uid, "Requested", "Ready", "Deleting", "Deleted")
		}
	})
}

// TestStuck is case 3: no error, and nothing moves. The status names the
// finalizer that holds it.
func TestStuck(t *testing.T) {
	each(t, func(w *world) {
		w.up("web")
		w.double.Set(crossplane.Behaviour{HoldMachines: true})
		w.kubectl("delete", "pr", "web", "--wait=false")
		w.holds("web", "Deprovisioning", "waiting for the XR to be gone", "finalizer foregroundDeletion on XNode/")
		out := w.kubectl("get", "pr", "web", "-o", `jsonpath={.status.conditions[?(@.type=="Synced")].status} {.status.waitingFor[*].holder}`)
		if !strings.HasPrefix(out, "True ") || !strings.Contains(out, "finalizer") {
			w.Errorf("status: %s", out)
		}
		w.double.Set(crossplane.Behaviour{})
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
	})
}

// TestDeletedOutOfBand is case 4: somebody deletes the XR. With a node that is
// registered, the node is drained first all the same.
func TestDeletedOutOfBand(t *testing.T) {
	each(t, func(w *world) {
		w.up("web")
		w.double.Set(crossplane.Behaviour{MuteNodes: true, HoldMachines: true})
		w.kubectl("delete", "pr", "web", "--wait=false")
		w.holds("web", "Deregistering")
		xr := w.status("web", "xr.name")
		w.kubectl("delete", "xnode", xr, "--cascade=background", "--timeout=60s")
		w.holds("web", "Deregistering", "waiting for the node to leave the mesh")
		w.double.Set(crossplane.Behaviour{HoldMachines: true})
		w.holds("web", "Deprovisioning", "waiting for the ProviderConfig", "finalizer in-use.crossplane.io on ProviderConfig/")
		w.double.Set(crossplane.Behaviour{})
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
	})
}

// TestWebhookDown: events wait for their sink, and come in order.
func TestWebhookDown(t *testing.T) {
	each(t, func(w *world) {
		w.webhook.set(true)
		w.up("web")
		uid := w.uid("web")
		w.kubectl("delete", "pr", "web", "--timeout=60s")
		if got := w.webhook.of(uid); len(got) != 0 {
			w.Errorf("a sink that refuses was told %v", got)
		}
		w.webhook.set(false)
		w.told(uid, "Requested", "Ready", "Deleting", "Deleted")
	})
}
