package expiry

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

const configMaps = "configmaps"

func mapKey(name string) object.Key {
	return object.Key{Kind: configMaps, Namespace: "shop", Name: name}
}

func policyKey(name string) object.Key {
	return object.Key{Kind: policies, Namespace: "shop", Name: name}
}

// policy stores a policy at a generation, without the API: with the spec that is given in JSON.
func (w *world) policy(key object.Key, generation int64, start, spec string) {
	w.t.Helper()
	p := storetest.Object(w.t, key, `,"spec":`+spec, func(m *metav1.ObjectMeta) {
		m.Generation = generation
		if start != "" {
			m.Annotations = map[string]string{lifecycle.StartExpiry: start}
		}
	})
	if old, err := w.store.Get(w.t.Context(), key); err == nil {
		m, err := object.ParseMeta(old.Body)
		if err == nil {
			p.Meta.UID, m.Annotations, m.Generation = m.UID, p.Meta.Annotations, generation
			p.Body, err = object.WithMeta(p.Body, m)
		}
		if err == nil {
			_, err = w.store.Update(w.t.Context(), store.UpdateRequest{Key: key, IfRevision: old.Revision, Meta: m, Body: p.Body})
		}
		if err != nil {
			w.t.Fatal(err)
		}
		return
	}
	storetest.Create(w.t, w.store, p)
}

func (w *world) start(key object.Key, start string) {
	w.t.Helper()
	storetest.Update(w.t, w.store, key, lifecycle.Rules{}, func(m *metav1.ObjectMeta) {
		m.Annotations = map[string]string{lifecycle.StartExpiry: start}
	})
}

// configMap stores a ConfigMap that was created at an age of the world.
func (w *world) configMap(name string, created time.Duration, labels map[string]string, data ...string) object.Object {
	w.t.Helper()
	fields := ""
	if len(data) > 0 {
		fields = `,"data":{"state":"` + data[0] + `"}`
	}
	return storetest.Create(w.t, w.store, storetest.Object(w.t, mapKey(name), fields, func(m *metav1.ObjectMeta) {
		m.CreationTimestamp, m.Labels = metav1.NewTime(born.Add(created)), labels
	}))
}

func (w *world) wantMaps(want ...string) {
	w.t.Helper()
	found, err := w.store.Reader().Select(w.t.Context(), store.Selection{Kind: configMaps, Namespace: "shop", Limit: 1000})
	if err != nil {
		w.t.Fatal(err)
	}
	var names []string
	for _, o := range found {
		names = append(names, o.Name)
	}
	if got := strings.Join(names, " "); got != strings.Join(want, " ") {
		w.t.Errorf("at %v there are the ConfigMaps %q, want %q", w.now.Sub(born), got, strings.Join(want, " "))
	}
}

// status reads the status of a policy.
func (w *world) status(key object.Key) map[string]any {
	w.t.Helper()
	o, err := w.store.Get(w.t.Context(), key)
	if err != nil {
		w.t.Fatal(err)
	}
	var u map[string]any
	if err := json.Unmarshal(o.Body, &u); err != nil {
		w.t.Fatal(err)
	}
	status, _, _ := unstructured.NestedMap(u, "status")
	return status
}

func (w *world) wantStatus(key object.Key, want string) {
	w.t.Helper()
	s := w.status(key)
	if got := fmt.Sprintf("%v: selected %v, would take %v, taken %v", s["state"], s["selected"], s["wouldTake"], s["taken"]); got != want {
		w.t.Errorf("the status is %s, want %s", got, want)
	}
}

// byAge is a policy of ConfigMaps with the label tmp.
const byAge = `{"resources":["configmaps"],"selector":{"matchLabels":{"tmp":"yes"}},"expire":{"after":"2h"}}`

var tmp = map[string]string{"tmp": "yes"}

// TestPolicy: a policy takes nothing until it is started; then it takes what it selects when its time is over, what was
// there before and what comes later; and waits when its spec changes.
func TestPolicy(t *testing.T) {
	each(t, func(w *world) { // at 1h
		w.configMap("a", 0, tmp)
		w.configMap("b", 0, nil)
		w.configMap("c", -2*time.Hour, tmp)
		key := policyKey("old")
		w.policy(key, 1, "", byAge)
		w.settle()
		w.wantMaps("a", "b", "c")
		w.wantStatus(key, "Observing: selected 2, would take 1, taken 0")

		w.start(key, "1")
		w.settle()
		w.wantMaps("a", "b")
		w.now = born.Add(2*time.Hour - time.Second)
		w.configMap("d", 30*time.Minute, tmp)
		w.settle()
		w.wantMaps("a", "b", "d")
		w.now = born.Add(2 * time.Hour)
		w.settle()
		w.wantMaps("b", "d")
		w.now = w.now.Add(statusWait)
		w.settle()
		w.wantStatus(key, "Started: selected 2, would take 1, taken 2")

		w.policy(key, 2, "1", byAge)
		w.now = born.Add(3 * time.Hour)
		w.settle()
		w.wantMaps("b", "d")
		w.wantStatus(key, "Observing: selected 1, would take 1, taken 2")
		w.start(key, "2")
		w.settle()
		w.wantMaps("b")
		a, err := w.store.Reader().LastArchived(t.Context(), store.ArchiveFilter{Name: "d"})
		if err != nil || a == nil || a.Actor != "system:exeunt:expiry:shop/old" {
			t.Errorf("the archive has %+v, %v", a, err)
		}
	})
}

// TestSelection: of all ways to select an object, and of its time.
func TestSelection(t *testing.T) {
	const hour = `"expire":{"after":"1h"}`
	for name, spec := range map[string]string{
		"resource":  `{"resources":["secrets"],` + hour + `}`,
		"label":     `{"resources":["configmaps"],"selector":{"matchLabels":{"tmp":"no"}},` + hour + `}`,
		"name":      `{"resources":["configmaps"],"fieldSelector":"metadata.name=b",` + hour + `}`,
		"condition": `{"resources":["configmaps"],"condition":"object.data.state == 'closed'",` + hour + `}`,
		"error":     `{"resources":["configmaps"],"condition":"object.nothing == 'closed'",` + hour + `}`,
		"state":     `{"resources":["configmaps"],"expire":{"after":"1h","since":"Condition","conditions":[{"type":"Ready"}]}}`,
	} {
		t.Run(name, func(t *testing.T) {
			each(t, func(w *world) {
				w.policy(policyKey("p"), 1, "1", spec)
				w.configMap("a", -time.Hour, tmp, "open")
				w.settle()
				w.wantMaps("a")
			})
		})
	}
	each(t, func(w *world) {
		w.policy(policyKey("state"), 1, "1", `{"resources":["pods"],"expire":{"after":"1h","since":"Condition","conditions":[{"type":"Ready","status":"False"}]},"fieldSelector":"status.phase=Failed"}`)
		pod := object.Key{Kind: "pods", Namespace: "shop", Name: "p"}
		status := func(phase string) string {
			return `,"spec":{"containers":[{"name":"c","image":"i"}]},"status":{"phase":"` + phase + `","conditions":[{"type":"Ready","status":"False","lastTransitionTime":"1970-01-01T00:16:40Z"}]}`
		}
		p := storetest.Create(t, w.store, storetest.Object(t, pod, status("Running")))
		w.settle()
		if _, err := w.store.Get(t.Context(), pod); err != nil {
			t.Errorf("the running Pod: %v", err)
		}
		failed := storetest.Object(t, pod, status("Failed"), func(m *metav1.ObjectMeta) { m.UID = p.UID })
		if _, err := w.store.Update(t.Context(), store.UpdateRequest{Key: pod, IfRevision: p.Revision, Meta: failed.Meta, Body: failed.Body}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if _, err := w.store.Get(t.Context(), pod); !object.Is(err, object.NotFound) {
			t.Errorf("the failed Pod: %v", err)
		}
	})
}

// TestLastWrite: an object expires after the last write that set a field outside of its status.
func TestLastWrite(t *testing.T) {
	each(t, func(w *world) {
		write := func(name, subresource string, after time.Duration) {
			storetest.Update(t, w.store, mapKey(name), lifecycle.Rules{}, func(m *metav1.ObjectMeta) {
				at := metav1.NewTime(born.Add(after))
				m.ManagedFields = append(m.ManagedFields, metav1.ManagedFieldsEntry{Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: subresource, Time: &at})
			})
		}
		for _, name := range []string{"never", "status", "written"} {
			w.configMap(name, 0, tmp)
		}
		write("status", "status", 30*time.Minute)
		write("written", "", 30*time.Minute)
		w.policy(policyKey("p"), 1, "1", strings.Replace(byAge, `"2h"`, `"2h","since":"LastWrite"`, 1))
		w.settle()
		w.now = born.Add(2*time.Hour + 29*time.Minute)
		w.settle()
		w.wantMaps("written")
		write("written", "scale", 2*time.Hour)
		w.now = born.Add(4*time.Hour - time.Second)
		w.settle()
		w.wantMaps("written")
		w.now = born.Add(4 * time.Hour)
		w.settle()
		w.wantMaps()
	})
}

// TestKeepNewest: the newest objects of a group stay, whether they were there before the policy, came later, came into the group or
// left it; the condition is asked about the others.
func TestKeepNewest(t *testing.T) {
	each(t, func(w *world) {
		create := func(name, app string, data ...string) {
			w.configMap(name, -time.Hour, map[string]string{"tmp": "yes", "app": app}, data...)
		}
		label := func(name, app string) {
			storetest.Update(t, w.store, mapKey(name), lifecycle.Rules{}, func(m *metav1.ObjectMeta) { m.Labels["app"] = app })
		}
		for i := range 4 {
			create(fmt.Sprint("a", i), "a")
			create(fmt.Sprint("b", i), "b")
		}
		key := policyKey("p")
		policy := `{"resources":["secrets","configmaps"],"selector":{"matchLabels":{"tmp":"yes"}},"expire":{"after":"30m"},"keepNewest":{"objects":2,"labels":["app"]}}`
		w.policy(key, 1, "", policy)
		w.settle()
		w.wantStatus(key, "Observing: selected 4, would take 4, taken 0")
		w.start(key, "1")
		w.settle()
		w.wantMaps("a2", "a3", "b2", "b3")
		create("a4", "a")
		w.settle()
		w.wantMaps("a3", "a4", "b2", "b3")
		label("b2", "a") // it is older than both
		w.settle()
		w.wantMaps("a3", "a4", "b3")
		label("a3", "b")
		create("a5", "a")
		w.settle()
		w.wantMaps("a3", "a4", "a5", "b3")
		// One that is being deleted does not count, until the deletion is called off.
		if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: mapKey("a5")}); err != nil {
			t.Fatal(err)
		}
		create("a6", "a")
		w.settle()
		w.wantMaps("a3", "a4", "a6", "b3")
		w.policy(key, 2, "2", strings.Replace(strings.Replace(policy, `"objects":2`, `"objects":1`, 1), `"expire"`, `"condition":"object.metadata.name != 'a4'","expire"`, 1))
		w.settle()
		w.wantMaps("a4", "a6", "b3")
		if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: key}); err != nil {
			t.Fatal(err)
		}
		w.settle()
		if n := dbtest.NewSQL(t, w.db).Count(`SELECT count(*) FROM expiry_groups`); n != 0 {
			t.Errorf("%d rows of groups are left", n)
		}
	})
}

// TestKeepNewestDuringTheWalk: objects that are removed or leave their group after a page of the walk was read do not count, and
// those that come do.
func TestKeepNewestDuringTheWalk(t *testing.T) {
	each(t, func(w *world) {
		for i := range 4 {
			w.configMap(fmt.Sprint("m", i), -time.Hour, tmp)
		}
		w.policy(policyKey("p"), 1, "1", `{"resources":["configmaps"],"selector":{"matchLabels":{"tmp":"yes"}},"expire":{"after":"0s"},"keepNewest":{"objects":2}}`)
		w.afterPage = func() {
			w.afterPage = nil
			if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: mapKey("m3")}); err != nil {
				t.Fatal(err)
			}
			storetest.Update(t, w.store, mapKey("m2"), lifecycle.Rules{}, func(m *metav1.ObjectMeta) { m.Labels = nil })
		}
		w.settle()
		w.wantMaps("m0", "m1", "m2")
	})
}

// TestConditionLater: a write after its time makes an object fulfil the condition.
func TestConditionLater(t *testing.T) {
	each(t, func(w *world) {
		w.policy(policyKey("p"), 1, "1", `{"resources":["configmaps"],"condition":"object.metadata.annotations.state == 'closed'","expire":{"after":"1h"}}`)
		w.configMap("a", 0, nil)
		w.settle()
		w.wantMaps("a")
		for _, state := range []string{"open", "closed"} {
			storetest.Update(t, w.store, mapKey("a"), lifecycle.Rules{}, annotated(map[string]string{"state": state}))
			w.settle()
			if state == "open" {
				w.wantMaps("a")
			}
		}
		w.wantMaps()
	})
}

// TestKeptFromPolicies: what is kept does not expire by a policy before its time, nor what was restored after its time.
func TestKeptFromPolicies(t *testing.T) {
	each(t, func(w *world) {
		w.policy(policyKey("p"), 1, "1", byAge)
		w.configMap("a", 0, tmp)
		storetest.Update(t, w.store, mapKey("a"), lifecycle.Rules{}, annotated(map[string]string{lifecycle.KeepUntil: born.Add(4 * time.Hour).UTC().Format(time.RFC3339)}))
		b := w.configMap("b", 0, tmp)
		w.now = born.Add(2 * time.Hour)
		w.settle()
		w.wantMaps("a")
		w.restore(b)
		storetest.Update(t, w.store, mapKey("b"), lifecycle.Rules{}, annotated(map[string]string{"a": "write"}))
		w.now = born.Add(4 * time.Hour)
		w.settle()
		w.wantMaps("b")
		w.policy(policyKey("p"), 2, "2", byAge)
		w.settle()
		w.wantMaps("b")
		w.policy(policyKey("p"), 3, "3", strings.Replace(byAge, "2h", "5h", 1))
		w.settle()
		w.wantMaps("b")
		w.now = born.Add(5 * time.Hour)
		w.settle()
		w.wantMaps()
	})
}

// TestConfirmAbove: a policy takes no more in a day than it says, or than a person confirmed.
func TestConfirmAbove(t *testing.T) {
	each(t, func(w *world) {
		for i := range 10 {
			w.configMap(fmt.Sprint("m", i), time.Duration(i)*time.Minute, tmp)
		}
		key := policyKey("p")
		limited := strings.Replace(byAge, `"expire"`, `"confirmAbove":{"percent":30},"expire"`, 1)
		w.now = born.Add(2*time.Hour + 4*time.Minute) // 5 are due
		w.policy(key, 1, "1", limited)
		w.settle()
		w.wantStatus(key, "Waiting: selected 10, would take 5, taken 0")
		w.start(key, "1/7")
		w.settle()
		w.now = w.now.Add(statusWait)
		w.settle()
		w.wantStatus(key, "Started: selected 10, would take 5, taken 5")
		w.wantMaps("m5", "m6", "m7", "m8", "m9")
		w.now = born.Add(4 * time.Hour) // all are
		w.settle()
		w.wantStatus(key, "Waiting: selected 10, would take 5, taken 7")
		left, err := w.store.Reader().Count(t.Context(), configMaps, "shop", 100)
		if err != nil || left != 3 {
			t.Errorf("%d are left, %v", left, err)
		}
		w.now = w.now.Add(24 * time.Hour) // a new day does not confirm
		w.settle()
		w.wantStatus(key, "Waiting: selected 10, would take 5, taken 7")
		w.start(key, "1/3")
		w.settle()
		w.wantMaps()
	})
}

// TestRefusedPolicyDelete: a delete that is refused does not count.
func TestRefusedPolicyDelete(t *testing.T) {
	each(t, func(w *world) {
		w.configMap("a", -time.Hour, tmp)
		refuse := true
		w.before = func(object.Object) error {
			if refuse {
				return object.Errorf(object.Forbidden, "a policy protects it")
			}
			return nil
		}
		key := policyKey("p")
		w.policy(key, 1, "1/1", byAge)
		w.settle()
		w.wantMaps("a")
		refuse, w.now = false, w.now.Add(time.Hour)
		w.settle()
		w.wantMaps()
		w.now = w.now.Add(statusWait)
		w.settle()
		w.wantStatus(key, "Started: selected 1, would take 1, taken 1")
	})
}

// TestPolicyGoes: a policy that is deleted, or stopped between the look at an object and its delete, takes nothing more.
func TestPolicyGoes(t *testing.T) {
	each(t, func(w *world) {
		w.configMap("a", 0, tmp)
		w.policy(policyKey("p"), 1, "1", byAge)
		w.settle()
		if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: policyKey("p")}); err != nil {
			t.Fatal(err)
		}
		w.now = born.Add(3 * time.Hour)
		w.settle()
		w.wantMaps("a")
		if n, err := countRows(w); err != nil || n != 0 {
			t.Errorf("%d rows about policies are left, %v", n, err)
		}
	})
}

func countRows(w *world) (n int64, err error) {
	_, err = w.db.Row(w.t.Context(), `SELECT count(*) FROM expiry_policies`, nil, &n)
	return n, err
}

// TestWritesDuringTheWalk: objects that are written after a page of the walk was read and before its rows are, are
// reviewed at their time.
func TestWritesDuringTheWalk(t *testing.T) {
	each(t, func(w *world) {
		at := func(d time.Duration) func(*metav1.ObjectMeta) {
			return func(m *metav1.ObjectMeta) {
				m.CreationTimestamp = metav1.NewTime(born.Add(d - time.Hour)) // an annotation would be a row of its own
			}
		}
		for _, name := range []string{"earlier", "later"} {
			storetest.Create(t, w.store, storetest.Object(t, mapKey(name), "", at(90*time.Minute)))
		}
		key := policyKey("p")
		w.policy(key, 1, "1", `{"resources":["configmaps"],"expire":{"after":"2h"}}`)
		w.afterPage = func() {
			storetest.Update(t, w.store, mapKey("earlier"), lifecycle.Rules{}, at(70*time.Minute))
			storetest.Update(t, w.store, mapKey("later"), lifecycle.Rules{}, at(110*time.Minute))
			storetest.Create(t, w.store, storetest.Object(t, mapKey("new"), "", at(75*time.Minute)))
		}
		w.settle()
		w.wantStatus(key, "Started: selected 2, would take 0, taken 0")
		for _, step := range []struct {
			minutes int
			want    []string
		}{{129, []string{"earlier", "later", "new"}}, {130, []string{"later", "new"}}, {135, []string{"later"}}, {169, []string{"later"}}, {170, nil}} {
			w.now = born.Add(time.Duration(step.minutes) * time.Minute)
			w.settle()
			w.wantMaps(step.want...)
		}
	})
}

// TestPolicyIsChecked: what a policy must not say.
func TestPolicyIsChecked(t *testing.T) {
	for spec, want := range map[string]string{
		byAge: "",
		`{"resources":["events"],"expire":{"after":"1h"}}`:                                "do not expire by policies",
		`{"resources":["a","a"],"expire":{"after":"1h"}}`:                                 "twice",
		`{"resources":["a"],"expire":{"after":"1"}}`:                                      "duration",
		`{"resources":["a"],"expire":{"after":"1h","since":"Condition"}}`:                 "conditions",
		`{"resources":["a"],"expire":{"after":"1h","conditions":[{"type":"Ready"}]}}`:     "conditions",
		`{"resources":["a"],"expire":{"after":"1h"},"condition":"object.x +"}`:            "condition",
		`{"resources":["a"],"expire":{"after":"1h"},"condition":"1"}`:                     "must evaluate to bool",
		`{"resources":["a"],"expire":{"after":"1h"},"fieldSelector":"a"}`:                 "fieldSelector",
		`{"resources":["a"],"expire":{"after":"1h"},"namespaces":["["]}`:                  "namespaces",
		`{"resources":["a"],"expire":{"after":"1h"},"selector":{"matchLabels":{"-":""}}}`: "selector",
	} {
		p, err := parsePolicy([]byte(`{"metadata":{"name":"p"},"spec":` + spec + `}`))
		if err == nil && p.Condition != nil {
			_, err = p.Condition()
		}
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v", spec, err)
		}
	}
}
