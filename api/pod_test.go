package api

import (
	"fmt"
	"net/http"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/exeunt/exeunt/store"
)

// pod creates a pod with a label, and spec merged into its spec.
func (w *world) pod(name, spec string) {
	w.t.Helper()
	w.want(http.StatusCreated, "POST", pods, fmt.Sprintf(
		`{"metadata":{"name":%q,"labels":{"app":"web"}},"spec":{"containers":[{"name":"a","image":"b","resources":{"requests":{"cpu":"1"}}}]%s}}`, name, spec))
}

// running marks a pod as running, and healthy or not.
func (w *world) running(name, ready string) {
	w.t.Helper()
	w.want(http.StatusOK, "PATCH", pods+"/"+name+"/status",
		`{"status":{"phase":"Running","conditions":[{"type":"Ready","status":"`+ready+`"}]}}`, "Content-Type: application/strategic-merge-patch+json")
}

func binding(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"v1","kind":"Binding","metadata":{"name":%q%s},"target":{"kind":"Node","name":"n1"}}`, name, more)
}

func TestBinding(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.pod("a", "")
	if r := w.want(http.StatusCreated, "POST", pods+"/a/binding", binding("a", `,"annotations":{"x":"y"}`)); r.get("status") != "Success" {
		t.Errorf("the answer is %s", r.body)
	}
	bound := w.want(http.StatusOK, "GET", pods+"/a", "")
	if bound.get("spec.nodeName") != "n1" || bound.get("metadata.annotations.x") != "y" ||
		bound.get(`status.conditions.#(type=="PodScheduled").status`) != "True" || bound.get("metadata.generation") != "1" {
		t.Errorf("the bound pod is %s", bound.body)
	}
	r := w.want(http.StatusConflict, "POST", pods+"/a/binding", binding("a", ""))
	if want := `Operation cannot be fulfilled on pods/binding "a": pod a is already assigned to node "n1"`; r.get("message") != want {
		t.Errorf("the second binding says %s", r.body)
	}

	w.pod("b", "")
	w.want(http.StatusCreated, "POST", "/api/v1/namespaces/shop/bindings", binding("b", ""))
	if got := w.want(http.StatusOK, "GET", pods+"/b", "").get("spec.nodeName"); got != "n1" {
		t.Errorf("bindings gave the node %q", got)
	}

	w.pod("c", `,"schedulingGates":[{"name":"x.io/wait"}]`)
	w.want(http.StatusConflict, "POST", pods+"/c/binding", binding("c", ""))
	w.pod("d", "")
	w.want(http.StatusConflict, "POST", pods+"/d/binding", binding("d", `,"uid":"other"`))
	w.want(http.StatusConflict, "POST", pods+"/d/binding", binding("d", `,"resourceVersion":"1"`))
	w.want(http.StatusBadRequest, "POST", pods+"/d/binding", binding("c", ""))
	w.want(http.StatusNotFound, "POST", pods+"/none/binding", binding("none", ""))
	w.want(http.StatusCreated, "POST", pods+"/d/binding?dryRun=All", binding("d", ""))
	if got := w.want(http.StatusOK, "GET", pods+"/d", "").get("spec.nodeName"); got != "" {
		t.Errorf("a dry run gave the node %q", got)
	}
}

// TestBindingOnce binds one pod from many schedulers at once: one succeeds.
func TestBindingOnce(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.pod("a", "")
	var bound atomic.Int64
	atOnce(8, func(int) {
		switch r := w.send("POST", pods+"/a/binding", binding("a", "")); r.code {
		case http.StatusCreated:
			bound.Add(1)
		case http.StatusConflict:
		default:
			t.Errorf("a binding answered %d %s", r.code, r.body)
		}
	})
	if bound.Load() != 1 {
		t.Errorf("%d bindings succeeded", bound.Load())
	}
}

func atOnce(n int, f func(i int)) {
	var group sync.WaitGroup
	for i := range n {
		group.Go(func() { f(i) })
	}
	group.Wait()
}

func (w *world) evict(name, more string) reply {
	return w.send("POST", pods+"/"+name+"/eviction", fmt.Sprintf(`{"apiVersion":"policy/v1","kind":"Eviction","metadata":{"name":%q}%s}`, name, more))
}

// TestStatusOfDeletingPod: a node reports the status of a pod that is being deleted until the pod ends.
func TestStatusOfDeletingPod(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.pod("p", `,"nodeName":"n1"`)
	at := w.want(http.StatusOK, "DELETE", pods+"/p", "").get("metadata.deletionTimestamp")
	r := w.want(http.StatusOK, "PATCH", pods+"/p/status", `{"metadata":{"deletionTimestamp":null},"status":{"phase":"Failed"}}`, "Content-Type: application/merge-patch+json")
	if at == "" || r.get("metadata.deletionTimestamp") != at || r.get("status.phase") != "Failed" {
		t.Errorf("deleted at %q, the pod is %s", at, r.body)
	}
}

const budgetsPath = "/apis/policy/v1/namespaces/shop/poddisruptionbudgets"

// budget creates a budget of the pods and sets its status.
func (w *world) budget(name, spec, status string) {
	w.t.Helper()
	w.want(http.StatusCreated, "POST", budgetsPath, `{"metadata":{"name":"`+name+`"},"spec":{"minAvailable":1,"selector":{"matchLabels":{"app":"web"}}`+spec+`}}`)
	w.want(http.StatusOK, "PATCH", budgetsPath+"/"+name+"/status", `{"status":{`+status+`}}`, "Content-Type: application/merge-patch+json")
}

func TestEviction(t *testing.T) {
	w := newWorld(t, store.Options{})
	for _, name := range []string{"free", "pending", "held", "sick", "weak", "dry", "failed", "succeeded"} {
		w.pod(name, `,"nodeName":"n1"`)
		if name != "pending" {
			w.running(name, map[bool]string{true: "False", false: "True"}[name == "sick" || name == "weak"])
		}
	}
	for name, phase := range map[string]string{"failed": "Failed", "succeeded": "Succeeded"} {
		w.want(http.StatusOK, "PATCH", pods+"/"+name+"/status", `{"status":{"phase":"`+phase+`"}}`, "Content-Type: application/merge-patch+json")
	}
	if r := w.evict("free", ""); r.code != http.StatusCreated || r.get("status") != "Success" {
		t.Fatalf("eviction without a budget: %d %s", r.code, r.body)
	}
	gone := w.want(http.StatusOK, "GET", pods+"/free", "")
	if gone.get("metadata.deletionTimestamp") == "" || gone.get(`status.conditions.#(type=="DisruptionTarget").reason`) != "EvictionByEvictionAPI" {
		t.Errorf("the evicted pod is %s", gone.body)
	}

	w.budget("b", "", `"observedGeneration":1,"disruptionsAllowed":0,"currentHealthy":2,"desiredHealthy":2`)
	r := w.evict("held", "")
	if r.code != http.StatusTooManyRequests || r.get("details.causes.0.reason") != "DisruptionBudget" ||
		r.get("details.causes.0.message") != "The disruption budget b needs 2 healthy pods and has 2 currently" {
		t.Errorf("eviction against a budget: %d %s", r.code, r.body)
	}
	if got := w.want(http.StatusOK, "GET", pods+"/held", "").get("metadata.deletionTimestamp"); got != "" {
		t.Errorf("the held pod is being deleted")
	}
	for _, name := range []string{"pending", "sick", "free", "failed", "succeeded"} { // they cost the budget nothing
		if r := w.evict(name, ""); r.code != http.StatusCreated {
			t.Errorf("eviction of %s: %d %s", name, r.code, r.body)
		}
	}
	w.want(http.StatusOK, "PATCH", budgetsPath+"/b/status", `{"status":{"currentHealthy":1}}`, "Content-Type: application/merge-patch+json")
	if r := w.evict("weak", ""); r.code != http.StatusTooManyRequests {
		t.Errorf("eviction of a pod that may become healthy, where too few are: %d %s", r.code, r.body)
	}
	w.want(http.StatusOK, "PATCH", budgetsPath+"/b", `{"spec":{"unhealthyPodEvictionPolicy":"AlwaysAllow"}}`, "Content-Type: application/merge-patch+json")
	if r := w.evict("weak", ""); r.code != http.StatusCreated {
		t.Errorf("with AlwaysAllow: %d %s", r.code, r.body)
	}
	w.want(http.StatusOK, "PATCH", budgetsPath+"/b/status", `{"status":{"currentHealthy":2}}`, "Content-Type: application/merge-patch+json")
	w.want(http.StatusOK, "PATCH", budgetsPath+"/b", `{"spec":{"minAvailable":2}}`, "Content-Type: application/merge-patch+json")
	if r := w.evict("held", ""); r.code != http.StatusTooManyRequests || r.get("details.retryAfterSeconds") != "10" {
		t.Errorf("eviction with a budget that the controller has not seen: %d %s", r.code, r.body)
	}
	w.want(http.StatusOK, "PATCH", budgetsPath+"/b/status", `{"status":{"observedGeneration":3,"disruptionsAllowed":1}}`, "Content-Type: application/merge-patch+json")
	if r := w.evict("dry", `,"deleteOptions":{"dryRun":["All"]}`); r.code != http.StatusCreated {
		t.Errorf("dry run: %d %s", r.code, r.body)
	}
	if got := w.want(http.StatusOK, "GET", budgetsPath+"/b", "").get("status.disruptionsAllowed"); got != "1" {
		t.Errorf("a dry run left %s disruptions", got)
	}
	if r := w.evict("held", `,"deleteOptions":{"preconditions":{"uid":"other"}}`); r.code != http.StatusConflict {
		t.Errorf("eviction of another uid: %d %s", r.code, r.body)
	}
	w.budget("second", "", "")
	if r := w.evict("held", ""); r.code != http.StatusInternalServerError || r.get("reason") != "" ||
		r.get("message") != "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support." {
		t.Errorf("eviction with two budgets: %d %s", r.code, r.body)
	}
}

// TestEvictionsShareABudget evicts many pods at once: as many succeed as the budget allows.
func TestEvictionsShareABudget(t *testing.T) {
	w := newWorld(t, store.Options{})
	const all, allowed = 12, 5
	for i := range all {
		w.pod(fmt.Sprintf("p-%d", i), `,"nodeName":"n1"`)
		w.running(fmt.Sprintf("p-%d", i), "True")
	}
	w.budget("b", "", fmt.Sprintf(`"observedGeneration":1,"disruptionsAllowed":%d,"currentHealthy":12,"desiredHealthy":7`, allowed))
	var evicted atomic.Int64
	atOnce(all, func(i int) {
		switch r := w.evict(fmt.Sprintf("p-%d", i), ""); r.code {
		case http.StatusCreated:
			evicted.Add(1)
		case http.StatusTooManyRequests:
		default:
			t.Errorf("an eviction answered %d %s", r.code, r.body)
		}
	})
	budget := w.want(http.StatusOK, "GET", budgetsPath+"/b", "")
	if evicted.Load() != allowed || budget.get("status.disruptionsAllowed") != "0" || budget.get("status.disruptedPods.@keys.#") != "5" {
		t.Errorf("%d pods were evicted, want %d; the budget is %s", evicted.Load(), allowed, budget.body)
	}
}

func TestEphemeralContainers(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.pod("a", "")
	path, strategic := pods+"/a/ephemeralcontainers", "Content-Type: application/strategic-merge-patch+json"
	added := w.want(http.StatusOK, "PATCH", path, `{"metadata":{"labels":{"app":"other"}},"spec":{"hostNetwork":true,"ephemeralContainers":[{"name":"debug","image":"busybox","targetContainerName":"a"}]}}`, strategic)
	if added.get("spec.ephemeralContainers.0.name") != "debug" || added.get("spec.hostNetwork") != "" || added.get("metadata.labels.app") != "web" || added.get("metadata.generation") != "2" {
		t.Errorf("the pod is %s", added.body)
	}
	for name, patch := range map[string]string{
		"changed":   `{"spec":{"ephemeralContainers":[{"name":"debug","image":"other"}]}}`,
		"removed":   `{"spec":{"ephemeralContainers":[{"name":"debug","$patch":"delete"}]}}`,
		"duplicate": `{"spec":{"ephemeralContainers":[{"name":"a","image":"b"}]}}`,
		"ports":     `{"spec":{"ephemeralContainers":[{"name":"more","image":"b","ports":[{"containerPort":80}]}]}}`,
		"no target": `{"spec":{"ephemeralContainers":[{"name":"more","image":"b","targetContainerName":"none"}]}}`,
	} {
		if r := w.send("PATCH", path, patch, strategic); r.code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, r.code, r.body)
		}
	}
	if r := w.send("PATCH", pods+"/a", `{"spec":{"ephemeralContainers":[{"name":"more","image":"b"}]}}`, strategic); r.code != http.StatusUnprocessableEntity {
		t.Errorf("an update of the pod added an ephemeral container: %d", r.code)
	}
}

func TestResize(t *testing.T) {
	w := newWorld(t, store.Options{})
	w.pod("a", "")
	strategic := "Content-Type: application/strategic-merge-patch+json"
	resized := w.want(http.StatusOK, "PATCH", pods+"/a/resize", `{"spec":{"containers":[{"name":"a","image":"other","resources":{"requests":{"cpu":"2"}}}]}}`, strategic)
	if resized.get("spec.containers.0.resources.requests.cpu") != "2" || resized.get("spec.containers.0.image") != "b" || resized.get("metadata.generation") != "2" {
		t.Errorf("the pod is %s", resized.body)
	}
	for name, resources := range map[string]string{
		"removed":       `{"requests":{"cpu":null}}`,
		"other class":   `{"requests":{"cpu":"2","memory":"1Gi"},"limits":{"cpu":"2","memory":"1Gi"}}`,
		"other kind":    `{"requests":{"ephemeral-storage":"1Gi"}}`,
		"above a limit": `{"limits":{"cpu":"1"}}`,
	} {
		if r := w.send("PATCH", pods+"/a/resize", `{"spec":{"containers":[{"name":"a","resources":`+resources+`}]}}`, strategic); r.code != http.StatusUnprocessableEntity {
			t.Errorf("%s: %d %s", name, r.code, r.body)
		}
	}
}
