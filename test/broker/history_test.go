package broker_test

import (
	"os"
	"strings"

	"github.com/exeunt/exeunt/test/crossplane"
)

// historyFile has what the real Crossplane did in a life like that of TestStuck. TestCrossplane
// writes it.
const historyFile = "../crossplane/testdata/history.txt"

// hold deletes a resource whose machines are not destroyed, and waits until Crossplane has done its
// part: from then on only the machine holds the XR, so the order of the rest is fixed.
func (w *world) hold(name string) {
	w.Helper()
	w.double.Set(crossplane.Behaviour{HoldMachines: true})
	w.kubectl("delete", "pr", name, "--wait=false")
	w.holds(name, "Deprovisioning", "waiting for the XR to be gone", "finalizer foregroundDeletion on XNode/", "condition Ready on XNode/", "Deleting")
}

// release lets the machines go and waits until the resource is gone.
func (w *world) release(name string) {
	w.Helper()
	w.double.Set(crossplane.Behaviour{})
	w.kubectl("wait", "pr/"+name, "--for=delete", "--timeout=60s")
}

func (w *world) history(since string) []string {
	w.Helper()
	lines, err := crossplane.History(w.Context(), w.server.Config(), "default", since)
	if err != nil {
		w.Fatal(err)
	}
	return lines
}

// checkHistory compares what happened since a revision with what the real Crossplane did.
func (w *world) checkHistory(since string) {
	w.Helper()
	want, err := os.ReadFile(historyFile)
	if err != nil {
		w.Fatal(err)
	}
	for _, difference := range crossplane.Compare(w.history(since), strings.Split(strings.TrimSpace(string(want)), "\n")) {
		w.Errorf("the history differs: %s", difference)
	}
}
