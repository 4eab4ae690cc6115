//go:build crossplane

package broker_test

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/crossplane"
	"github.com/exeunt/exeunt/test/harness"
)

var record = flag.Bool("record", false, "write the history of the real Crossplane to "+historyFile)

// TestCrossplane runs the real Crossplane on the server, installed from its chart, with the rights
// that the chart gives it: its package manager pulls a function from the server's registry, its core
// composes, and the server is its broker's management cluster. Nothing but the machines and the
// provider is a double.
func TestCrossplane(t *testing.T) {
	for _, engine := range []string{harness.SQLite, harness.Postgres} {
		t.Run(engine, func(t *testing.T) { onReal(t, engine) })
	}
}

func onReal(t *testing.T, engine string) {
	w := emptyWorld(t, engine, func(*world) []string { return nil })
	w.startDouble(crossplane.StartProvider)
	w.apply(crossplane.ProviderDefinitions())
	c := w.installCrossplane()
	w.installFunction(c)
	w.define()
	w.apply(blueprint)
	w.apply(credential)
	for _, step := range []struct {
		name string
		test func(*world)
	}{
		{"XR", xrByHand}, {"Broker", brokerOnReal}, {"Usage", usages}, {"Definition", removeDefinition},
	} {
		t.Run(step.name, func(t *testing.T) {
			part := *w
			part.T = t
			step.test(&part)
		})
	}
	for _, violation := range w.double.Violations() {
		t.Error(violation)
	}
}

const byHand = `
apiVersion: infra.example.org/v1
kind: XNode
metadata: {name: by-hand, namespace: default}
spec: {size: 1, region: north, tokenSecret: none}
`

// xrByHand: an XR without the broker is composed; deleted in the foreground, it stays until its
// machine is gone.
func xrByHand(w *world) {
	w.double.Set(crossplane.Behaviour{NoBoot: true, HoldMachines: true})
	defer w.double.Set(crossplane.Behaviour{})
	w.apply(byHand)
	w.kubectl("wait", "xnode/by-hand", "--for=condition=Ready", "--timeout=60s")
	w.kubectl("delete", "xnode", "by-hand", "--cascade=foreground", "--wait=false")
	w.kubectl("wait", "machine/by-hand", "--for=jsonpath={.metadata.deletionTimestamp}", "--timeout=60s")
	harness.Until(w, "Crossplane has finished its part", func() error {
		if out := w.kubectl("get", "xnode", "by-hand", "-o", "jsonpath={.metadata.finalizers}"); out != `["foregroundDeletion"]` {
			return errorf("finalizers %s", out)
		}
		return nil
	})
	w.double.Set(crossplane.Behaviour{NoBoot: true})
	w.kubectl("wait", "xnode/by-hand", "--for=delete", "--timeout=60s")
	if out := w.kubectl("get", "machines", "-o", "name"); out != "" {
		w.Errorf("the XR is gone, and there is %s", out)
	}
}

// brokerOnReal is the life of TestStuck with the real Crossplane: the node leaves before its
// substrate, and the history is the recorded one.
func brokerOnReal(w *world) {
	since := w.now()
	w.up("web")
	uid, xr := w.uid("web"), w.status("web", "xr.name")
	w.awaitEvents(uid, "Requested", "Ready")
	w.hold("web")
	w.release("web")
	w.awaitEvents(uid, "Requested", "Ready", "Deleting", "Deleted")
	w.checkOrder(since, xr)
	w.checkEmpty(uid)
	if *record {
		text := strings.Join(w.history(since), "\n") + "\n"
		if err := os.WriteFile(historyFile, []byte(text), 0o644); err != nil {
			w.Fatal(err)
		}
	}
	w.checkHistory(since)
}

const usage = `
apiVersion: v1
kind: ConfigMap
metadata: {name: substrate, namespace: default}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: node, namespace: default}
---
apiVersion: protection.crossplane.io/v1beta1
kind: Usage
metadata: {name: node-uses-substrate, namespace: default}
spec:
  replayDeletion: true
  of: {apiVersion: v1, kind: ConfigMap, resourceRef: {name: substrate}}
  by: {apiVersion: v1, kind: ConfigMap, resourceRef: {name: node}}
`

// usages: Crossplane's webhook refuses the deletion of a substrate that a node uses, and Crossplane
// repeats that deletion when the node is gone.
func usages(w *world) {
	w.apply(usage)
	w.kubectl("wait", "usages.protection.crossplane.io/node-uses-substrate", "--for=condition=Ready", "--timeout=60s")
	r := w.server.Kubectl(w, "delete", "configmap", "substrate")
	if r.Code == 0 || !strings.Contains(r.Stderr, "nousages.protection.crossplane.io") || !strings.Contains(r.Stderr, "in-use by 1 usage") {
		w.Fatalf("the deletion of a substrate in use: %d %s%s", r.Code, r.Stdout, r.Stderr)
	}
	w.kubectl("delete", "configmap", "node", "--timeout=60s")
	w.kubectl("wait", "configmap/substrate", "--for=delete", "--timeout=60s")
	w.kubectl("wait", "usages.protection.crossplane.io/node-uses-substrate", "--for=delete", "--timeout=60s")
}

// removeDefinition: an XRD stays while there are XRs, which Crossplane does not delete if they have
// namespaces; when they are gone, it goes with the definition of its kind.
func removeDefinition(w *world) {
	w.double.Set(crossplane.Behaviour{NoBoot: true})
	w.apply(byHand)
	w.kubectl("wait", "xnode/by-hand", "--for=condition=Ready", "--timeout=60s")
	w.kubectl("delete", "xrd", "xnodes.infra.example.org", "--wait=false")
	w.kubectl("wait", "xrd/xnodes.infra.example.org", "--for=jsonpath={.status.conditions[?(@.type=='Established')].reason}=TerminatingCompositeResource", "--timeout=60s")
	w.kubectl("delete", "xnode", "by-hand", "--cascade=foreground", "--timeout=60s")
	w.kubectl("wait", "xrd/xnodes.infra.example.org", "--for=delete", "--timeout=60s")
	w.kubectl("wait", "crd/xnodes.infra.example.org", "--for=delete", "--timeout=60s")
	if out := w.kubectl("get", "machines", "-o", "name"); out != "" {
		w.Errorf("left behind: %s", out)
	}
	w.kubectl("delete", "function", "function-node", "--cascade=foreground", "--timeout=60s")
	// Crossplane creates a missing revision even for a Function that is being deleted; the collector then
	// deletes that one, too.
	harness.Until(w, "no revision is left", func() error {
		if out := w.kubectl("get", "functionrevisions,xrd", "-o", "name"); out != "" {
			return errorf("left behind: %s", out)
		}
		return nil
	})
}
