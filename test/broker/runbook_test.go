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

// The four cases of the runbook in docs/broker.md, and related faults.

// TestDeregistrationFails is case 1: the database refuses the write that requests the
// drain. Status, Event, report and log say so, the XR is not touched, and the teardown
// continues once the cause is fixed.
func TestDeregistrationFails(t *testing.T) {
	each(t, func(w *world) {
		since := w.now()
		w.up("web")
		uid, xr := w.uid("web"), w.status("web", "xr.name")
		mend := w.server.Break(harness.Fault{
			Table: "objects", Event: "UPDATE", Message: "the mesh takes no drains",
			When: "NEW.kind = 'meshnodes.mesh.exeunt.dev' AND OLD.deletion_time IS NULL AND NEW.deletion_time IS NOT NULL",
		})
		w.kubectl("delete", "pr", "web", "--wait=false")
		w.holds("web", "Deregistering", "DeregisterNode: deregister node of "+uid+": broker: node deregistration failed", "the mesh takes no drains")
		w.untouched("web")
		if out := w.kubectl("get", "pr", "web", "-o", `jsonpath={.status.conditions[?(@.type=="Synced")].status}`); out != "False" {
			w.Errorf("Synced is %s", out)
		}
		w.says("Event", w.kubectl("describe", "pr", "web"), "Warning  RoundFailed", "Deregistering: DeregisterNode: ", "the mesh takes no drains")
		w.says("report", w.why("pr/web"), "finalizer provisioning.exeunt.dev/teardown is the broker's: Deregistering: ", "the mesh takes no drains",
			"(since ", "Review: its review failed ", "; next attempt in ", "to resolve: mend what the error names")
		w.says("log", w.server.Said(), `msg="review failed" queue=provisioned-resources key=`+uid, "the mesh takes no drains")
		mend()
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
		w.awaitEvents(uid, "Requested", "Ready", "Deleting", "Deleted")
		w.checkOrder(since, xr)
	})
}

// untouched fails the test if the XR of a resource is being deleted.
func (w *world) untouched(name string) {
	w.Helper()
	xr, found := w.get(w.xr(name))
	if at := xr.Field("metadata.deletionTimestamp"); !found || at != "" {
		w.Errorf("the XR is being deleted since %s, while its node is in the mesh", at)
	}
}

// why returns the output of exeunt why.
func (w *world) why(what string) string {
	w.Helper()
	r := w.server.Exeunt(w, "why", what)
	if r.Code != 0 {
		w.Fatalf("exeunt why %s: %s", what, r.Stderr)
	}
	return r.Stdout
}

// says expects each part in a text.
func (w *world) says(what, text string, parts ...string) {
	w.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			w.Errorf("the %s does not say %q:\n%s", what, part, text)
		}
	}
}

// TestDrainHangs is case 1 without an error: the node was asked to leave and does not. The
// XR is not touched meanwhile.
func TestDrainHangs(t *testing.T) {
	each(t, func(w *world) {
		w.up("web")
		w.double.Set(crossplane.Behaviour{MuteNodes: true})
		w.kubectl("delete", "pr", "web", "--wait=false")
		xr := w.status("web", "xr.name")
		w.holds("web", "Deregistering", "waiting for the node to leave the mesh", "peer "+xr, "it sends heartbeats; draining, removed without acknowledgement at ")
		w.untouched("web")
		w.says("report", w.why("pr/web"), "is the broker's: Deregistering: waiting for the node to leave the mesh",
			"WaitsFor: MeshNode "+xr+" in namespace default is being deleted",
			"finalizer mesh.exeunt.dev/drain is the mesh's: Draining: asked to finish its connections and leave", "the mesh looks at it again in ")
		w.double.Set(crossplane.Behaviour{})
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
	})
}

// TestSubstrateDeleteFails is case 2: the cluster refuses the deletion or cannot be
// reached. The message says why, and the teardown continues once the cause is fixed.
func TestSubstrateDeleteFails(t *testing.T) {
	each(t, func(w *world) {
		for i, test := range []struct {
			name   string
			refuse func(*http.Request) (int, string)
			phase  string // the step that fails; without facts it is the first
			want   string
		}{
			{"RBAC denial", deny("DELETE", "xnodes", 403, "Forbidden", `xnodes "x" is forbidden: User "broker" cannot delete resource`), "Deprovisioning", "DeleteSubstrate: delete XR: XNode"},
			{"webhook rejection", deny("DELETE", "xnodes", 400, "BadRequest", `admission webhook "usages.example.org" denied the request: in use`), "Deprovisioning", `admission webhook "usages.example.org" denied the request`},
			{"ProviderConfig", deny("DELETE", "providerconfigs", 403, "Forbidden", "no"), "Deprovisioning", "DeleteProviderConfig: delete ProviderConfig: ProviderConfig"},
			{"no read", deny("GET", "xnodes", 403, "Forbidden", "no"), "Deregistering", "observe substrate: get XNode"},
			{"kind not served", deny("GET", "xnodes", 404, "NotFound", "the server could not find the requested resource"), "Deregistering", "observe substrate: get XNode"},
			{"cluster down", down, "Deregistering", "observe namespace: get Namespace default"},
		} {
			name := fmt.Sprintf("web-%d", i)
			w.up(name)
			uid := w.uid(name)
			w.gate.set(test.refuse)
			w.kubectl("delete", "pr", name, "--wait=false")
			harness.Until(w, test.name+" is shown", func() error {
				// What the broker cannot read, it may have failed to read while it was Ready.
				if phase, got := w.status(name, "phase"), w.status(name, "message"); phase != test.phase || !strings.Contains(got, test.want) {
					return errorf("it is %s: %q, want %s: %q", phase, got, test.phase, test.want)
				}
				return nil
			})
			harness.Until(w, test.name+" is reported", func() error { // between two attempts
				report := w.why("pr/" + name)
				for _, part := range []string{"is the broker's: " + test.phase + ": ", test.want, "mend what the error names"} {
					if !strings.Contains(report, part) {
						return errorf("the report does not say %q:\n%s", part, report)
					}
				}
				return nil
			})
			w.gate.set(nil)
			w.kubectl("wait", "pr/"+name, "--for=delete", "--timeout=120s")
			w.awaitEvents(uid, "Requested", "Ready", "Deleting", "Deleted")
		}
	})
}

// TestBuildFails: the cluster or the mesh refuses a step on the way up, or cannot be
// reached. The status says so, and the resource becomes ready once the cause is fixed,
// without a new declaration and without a repeated event.
func TestBuildFails(t *testing.T) {
	each(t, func(w *world) {
		for i, test := range []struct {
			name   string
			refuse func(*http.Request) (int, string)
			fault  harness.Fault
			want   string
		}{
			{"RBAC denial", deny("POST", "xnodes", 403, "Forbidden", `User "broker" cannot create resource`), harness.Fault{}, "ApplySubstrate: create XR: "},
			{"webhook rejection", deny("POST", "xnodes", 400, "BadRequest", `admission webhook "quota.example.org" denied the request`), harness.Fault{}, `admission webhook "quota.example.org" denied the request`},
			{"ProviderConfig", deny("PATCH", "providerconfigs", 403, "Forbidden", "no"), harness.Fault{}, "ApplySubstrate: apply ProviderConfig: "},
			{"secret", deny("PATCH", "secrets", 403, "Forbidden", "no"), harness.Fault{}, "MintToken: deliver token: "},
			{"mesh down", nil, harness.Fault{Table: "bootstrap_tokens", Event: "INSERT", When: "NEW.resource <> ''", Message: "the mesh mints nothing"}, "broker: bootstrap token failed: "},
			{"cluster down", down, harness.Fault{}, "observe namespace: get Namespace default"},
		} {
			name := fmt.Sprintf("web-%d", i)
			mend := func() { w.gate.set(nil) }
			if test.fault.Table != "" {
				mend = w.server.Break(test.fault)
			}
			// The server checks a declaration with the cluster, so it must accept this one
			// before the fault.
			w.gate.set(deny("PATCH", "secrets", 503, "ServiceUnavailable", "not yet"))
			w.apply(resource(name))
			harness.Until(w, name+" to be taken up", func() error {
				if w.status(name, "phase") == "" {
					return errorf("it is not")
				}
				return nil
			})
			w.gate.set(test.refuse)
			harness.Until(w, test.name+" is shown", func() error {
				if got := w.status(name, "message"); !strings.Contains(got, test.want) {
					return errorf("the message is %q, want %q", got, test.want)
				}
				return nil
			})
			mend()
			w.within(name, "Ready")
			w.awaitEvents(w.uid(name), "Requested", "Ready")
		}
		w.kubectl("delete", "pr", "--all", "--timeout=100s")
	})
}

// TestRevokeFails: the server cannot revoke a usable token. It does not touch the XR until
// the token is revoked.
func TestRevokeFails(t *testing.T) {
	each(t, func(w *world) {
		w.double.Set(crossplane.Behaviour{NoBoot: true})
		w.apply(resource("web"))
		w.holds("web", "Enrolling")
		mend := w.server.Break(harness.Fault{Table: "bootstrap_tokens", Event: "UPDATE", When: "NEW.state = 'revoked'", Message: "the mesh revokes nothing"})
		w.kubectl("delete", "pr", "web", "--wait=false")
		w.holds("web", "Deregistering", "RevokeToken: ", "broker: bootstrap token failed", "the mesh revokes nothing")
		w.untouched("web")
		mend()
		w.kubectl("wait", "pr/web", "--for=delete", "--timeout=60s")
	})
}

// TestStuck is case 3: no error, and no progress. The status names the finalizer that
// holds the resource. The double's history is that of the real Crossplane.
func TestStuck(t *testing.T) {
	each(t, func(w *world) {
		since := w.now()
		w.up("web")
		w.hold("web")
		out := w.kubectl("get", "pr", "web", "-o", `jsonpath={.status.conditions[?(@.type=="Synced")].status} {.status.waitingFor[*].holder}`)
		if !strings.HasPrefix(out, "True ") || !strings.Contains(out, "finalizer") {
			w.Errorf("status: %s", out)
		}
		// The management cluster is this server, so the report descends to the object that
		// holds the deletion.
		w.says("report", w.why("pr/web"), "is the broker's: Deprovisioning: waiting for the XR to be gone",
			"WaitsFor: XNode ", "Dependent: Machine ", "finalizer finalizer.managedresource.crossplane.io has not been removed")
		w.release("web")
		w.checkHistory(since)
	})
}

// TestDeletedOutOfBand is case 4: an operator deletes the XR. The server still drains a
// registered node first.
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

// TestWebhookDown: events wait until the webhook accepts them, and arrive in order.
func TestWebhookDown(t *testing.T) {
	each(t, func(w *world) {
		w.webhook.set(true)
		w.up("web")
		uid := w.uid("web")
		w.kubectl("delete", "pr", "web", "--timeout=60s")
		if got := w.webhook.typesOf(uid); len(got) != 0 {
			w.Errorf("a webhook that refuses received %v", got)
		}
		w.webhook.set(false)
		w.awaitEvents(uid, "Requested", "Ready", "Deleting", "Deleted")
	})
}
