package expiry

import (
	"flag"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

var previewWorlds = flag.Int("expiry-worlds", 10, "random worlds in which a preview is compared with the run")

// TestPreviewIsTheRun: in random worlds with random policies, a policy takes exactly what its preview says, at exactly the
// time.
func TestPreviewIsTheRun(t *testing.T) {
	each(t, func(w *world) {
		for seed := range uint64(*previewWorlds) {
			w.randomWorld(fmt.Sprint("w", seed), rand.New(rand.NewPCG(seed, 1)))
			if t.Failed() {
				t.Fatalf("in world %d", seed)
			}
		}
	})
}

// randomWorld makes a namespace with objects and policies, previews one of them, and lets time pass.
func (w *world) randomWorld(namespace string, random *rand.Rand) {
	t := w.t
	storetest.Create(t, w.store, storetest.Namespace(t, namespace))
	pick := func(of ...string) string { return of[random.IntN(len(of))] }
	minutes := func(most int) time.Duration { return time.Duration(random.IntN(most)) * time.Minute }
	stamp := func(at time.Time) string { return at.UTC().Format(time.RFC3339) }
	paced, newest := random.IntN(3) == 0, random.IntN(4) == 0
	alone := paced || newest // nothing else takes objects: while they wait for their slot it could, and others become the newest
	for i := range 5 + random.IntN(20) {
		key := object.Key{Kind: pick(configMaps, "secrets", "pods"), Namespace: namespace, Name: fmt.Sprint("o", i)}
		fields := ""
		switch key.Kind {
		case configMaps:
			fields = `,"data":{"state":"` + pick("open", "closed") + `"}`
		case "pods":
			fields = fmt.Sprintf(`,"spec":{"containers":[{"name":"c","image":"i"}]},"status":{"phase":%q,"conditions":[{"type":"Ready","status":%q,"lastTransitionTime":%q}]}`,
				pick("Running", "Failed"), pick("True", "False"), stamp(w.now.Add(-minutes(300))))
		}
		storetest.Create(t, w.store, storetest.Object(t, key, fields, func(m *metav1.ObjectMeta) {
			written := metav1.NewTime(w.now.Add(-minutes(300)))
			m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "m", Operation: metav1.ManagedFieldsOperationUpdate, Subresource: pick("", "status"), Time: &written}}
			m.CreationTimestamp, m.Labels, m.Annotations = metav1.NewTime(w.now.Add(-minutes(600))), map[string]string{"tmp": pick("yes", "no")}, map[string]string{}
			switch random.IntN(6) {
			case 0:
				if alone {
					break
				}
				m.Annotations[lifecycle.TTL] = minutes(600).String()
			case 1:
				m.Annotations[lifecycle.KeepUntil] = pick("forever", stamp(w.now.Add(minutes(600))))
			}
		}))
	}
	spec := func(limits ...string) string {
		parts := []string{`"resources":["configmaps","` + pick("secrets", "pods") + `"]`}
		if random.IntN(2) == 0 {
			parts = append(parts, `"selector":{"matchLabels":{"tmp":"yes"}}`)
		}
		parts = append(parts, pick(`"condition":"object.data.state == 'closed'"`, `"condition":"object.metadata.name != 'o3'"`, `"fieldSelector":"metadata.name!=o2"`, `"fieldSelector":""`))
		parts = append(parts, pick(limits...))
		parts = append(parts, pick(fmt.Sprintf(`"expire":{"after":%q}`, minutes(1000)),
			fmt.Sprintf(`"expire":{"after":%q,"since":"LastWrite"}`, minutes(600)),
			fmt.Sprintf(`"expire":{"after":%q,"since":"Condition","conditions":[{"type":"Ready","status":"False"}]}`, minutes(600))))
		return "{" + strings.Join(parts, ",") + "}"
	}
	pace := ""
	if newest {
		pace = fmt.Sprintf(`,"keepNewest":{"objects":%d,"labels":[%s]}`, 1+random.IntN(5), pick("", `"tmp"`))
	}
	if paced {
		pace += fmt.Sprintf(`,"rate":{"objects":%d,"per":%q}`, 1+random.IntN(4), pick("Minute", "Hour", "Day"))
	}
	if random.IntN(3) == 0 {
		pace += fmt.Sprintf(`,"windows":[{"from":"%02d:%02d","to":"%02d:00"}]`, random.IntN(24), random.IntN(60), random.IntN(24))
	}
	other := object.Key{Kind: policies, Namespace: namespace, Name: "other"}
	if !alone && random.IntN(2) == 0 {
		w.policy(other, 1, "1", spec(`"confirmAbove":{"objects":0}`))
		w.settle()
		if random.IntN(2) == 0 { // then it takes nothing, and leaves it to the one that is previewed
			o, err := w.store.Get(t.Context(), other)
			if err == nil {
				err = walker{w.Expirer}.exec(t.Context(), setWaits, string(o.UID))
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
	key := object.Key{Kind: policies, Namespace: namespace, Name: "p"}
	chosen := spec(`"confirmAbove":{"objects":5}`, `"confirmAbove":{"percent":40}`, `"confirmAbove":{"objects":0}`)
	chosen = chosen[:len(chosen)-1] + pace + "}"
	w.policy(key, 1, "", chosen)
	w.settle()
	const hours = 20
	preview, err := w.Preview(t.Context(), kindtest.Almighty(), v1.ExpiryPreviewSpec{Namespace: namespace, Policy: "p", Until: fmt.Sprintf("%dh", hours)})
	if err != nil {
		t.Fatal(err)
	}
	begin := w.now
	w.start(key, "1")
	if random.IntN(2) == 0 { // also of a policy that is started
		w.settle()
		again, err := w.Preview(t.Context(), kindtest.Almighty(), v1.ExpiryPreviewSpec{Namespace: namespace, Policy: "p", Until: fmt.Sprintf("%dh", hours)})
		if err != nil {
			t.Fatal(err)
		}
		gone := w.takenBy(namespace, "p")
		if preview.Waiting == 0 && !paced && again.Total+int64(len(gone)) != preview.Total {
			t.Errorf("the preview of the started policy has %d objects besides %v, before there were %d", again.Total, gone, preview.Total)
		}
	}
	want := map[string]string{}
	for _, o := range preview.Objects {
		if !o.Waits {
			want[o.Object.Name] = stamp(o.At.Time)
		}
	}
	times := w.dueTimes(namespace)
	for _, o := range preview.Objects {
		times = append(times, o.At.Time.Add(-time.Second), o.At.Time)
	}
	end := begin.Add(hours * time.Hour)
	times = append(times, begin, end)
	slices.SortFunc(times, time.Time.Compare)
	for _, at := range slices.CompactFunc(times, time.Time.Equal) {
		if at.Before(w.now) || at.After(end) {
			continue
		}
		w.now = at
		w.settle()
	}
	dbtest.NewSQL(t, w.db).Exec("DELETE FROM expiry_reviews") // those that fail would go on in all later worlds
	got := w.takenBy(namespace, "p")
	if preview.Waiting > 0 { // of objects with the same time it is not said which one waits
		if len(got) != len(want) {
			t.Errorf("%s took %d objects, and the preview had %d of %d", chosen, len(got), len(want), preview.Total)
		}
	} else if paced { // nor which one goes later
		if gotTimes, wantTimes := slices.Sorted(maps.Values(got)), slices.Sorted(maps.Values(want)); !slices.Equal(gotTimes, wantTimes) {
			t.Errorf("%s took objects at %v, and the preview had %v", chosen, gotTimes, wantTimes)
		}
	} else if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Errorf("%s took %v, and the preview had %v", chosen, got, want)
	}
}

// TestPreviewCountsWhatOthersTake: a policy whose objects are due, and would be taken by another one before its window opens, waits when it
// starts if all are too many, and its preview says so.
func TestPreviewCountsWhatOthersTake(t *testing.T) {
	each(t, func(w *world) {
		for i := range 3 {
			w.configMap(fmt.Sprint("o", i), 0, tmp)
		}
		w.configMap("mine", 0, map[string]string{"tmp": "yes", "only": "mine"})
		opens := w.now.Add(2 * time.Hour).UTC().Truncate(time.Hour)
		w.policy(policyKey("other"), 1, "1", `{"resources":["configmaps"],"selector":{"matchExpressions":[{"key":"only","operator":"DoesNotExist"}]},"expire":{"after":"90m"},"confirmAbove":{"objects":0}}`)
		w.policy(policyKey("p"), 1, "", fmt.Sprintf(`{"resources":["configmaps"],"expire":{"after":"1m"},"windows":[{"from":"%s","to":"%s"}],"confirmAbove":{"objects":3}}`,
			opens.Format("15:04"), opens.Add(time.Hour).Format("15:04")))
		w.settle()
		status, err := w.Preview(t.Context(), kindtest.Almighty(), v1.ExpiryPreviewSpec{Namespace: "shop", Policy: "p"})
		if err != nil || status.Total != 1 || status.Waiting != 1 {
			t.Errorf("%+v, %v", status, err)
		}
		w.start(policyKey("p"), "1")
		w.settle()
		w.now = opens
		w.settle()
		if taken := w.takenBy("shop", "p"); len(taken) > 0 {
			t.Errorf("it took %v", taken)
		}
	})
}

// dueTimes returns when objects are due by what they say themselves and by any policy. A server looks at them at each of these times. If the
// clock jumped over one, the policy that is due then could lose its object to one that is due later.
func (w *world) dueTimes(namespace string) (times []time.Time) {
	w.t.Helper()
	set, err := w.policies.Now(w.t.Context(), w.store.Reader())
	for _, kind := range []string{configMaps, "secrets", "pods"} {
		var found []*store.Stored
		if err == nil {
			found, err = w.store.Reader().Select(w.t.Context(), store.Selection{Kind: kind, Namespace: namespace, State: store.Active, Limit: 100})
		}
		for _, o := range found {
			var dues []Due
			if err == nil {
				dues, err = set.dues(o.Key, o.Body, time.Time{}, w.now, (*Policy).Started)
			}
			for _, d := range dues {
				times = append(times, d.At)
			}
		}
	}
	if err != nil {
		w.t.Fatal(err)
	}
	return times
}

// takenBy reads what a policy took, and when.
func (w *world) takenBy(namespace, policy string) map[string]string {
	w.t.Helper()
	all := map[string]string{}
	err := w.store.Reader().Archived(w.t.Context(), store.ArchiveFilter{Namespace: namespace}, 0, 1000, func(a *store.Archived) error {
		if a.Actor == User+":"+namespace+"/"+policy {
			all[a.Name] = time.UnixMilli(a.RemovedAt).UTC().Format(time.RFC3339)
		}
		return nil
	})
	if err != nil {
		w.t.Fatal(err)
	}
	return all
}

// TestWhoMayPreview: a preview is for clients that may get the policy and list its resources.
func TestWhoMayPreview(t *testing.T) {
	each(t, func(w *world) {
		w.configMap("a", 0, tmp)
		w.policy(policyKey("p"), 1, "", byAge)
		for _, lacks := range []string{"get expirypolicies", "list configmaps", ""} {
			client := kindtest.Almighty()
			client.Authorize = func(verb string, r schema.GroupResource, namespace, name string) error {
				if verb+" "+r.Resource == lacks {
					return apierrors.NewForbidden(r, name, nil)
				}
				return nil
			}
			status, err := w.Preview(t.Context(), client, v1.ExpiryPreviewSpec{Namespace: "shop", Policy: "p"})
			if apierrors.IsForbidden(err) != (lacks != "") || lacks == "" && status.Total != 1 {
				t.Errorf("without %q: %+v, %v", lacks, status, err)
			}
		}
		for _, spec := range []v1.ExpiryPreviewSpec{{Namespace: "shop", Policy: "q"}, {Policy: "p"}, {Namespace: "shop", Policy: "p", Until: "1000d"}, {Namespace: "shop", Policy: "p", Until: "x"}} {
			if _, err := w.Preview(t.Context(), kindtest.Almighty(), spec); !object.Is(err, object.BadRequest) {
				t.Errorf("%+v: %v", spec, err)
			}
		}
	})
}
