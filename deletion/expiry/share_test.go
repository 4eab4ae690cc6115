package expiry

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestShares: policies of a namespace rest when they took more than their part of the time, and those of the cluster never.
func TestShares(t *testing.T) {
	s := shares{saved: time.Minute}
	s.took("shop", time.Minute-time.Second)
	if rest := s.rest("shop"); rest != 0 {
		t.Errorf("it rests %v within what it has saved", rest)
	}
	s.took("shop", time.Minute)
	if rest := s.rest("shop"); rest > parts*time.Minute || rest < (parts-1)*time.Minute {
		t.Errorf("it rests %v after a minute", rest)
	}
	s.took("", time.Hour)
	if s.rest("") != 0 || s.rest("other") != 0 {
		t.Error("others rest")
	}
	for i := range 3 * mostShares {
		s.took(fmt.Sprint("n", i), 0)
	}
	if len(s.paid) > mostShares || s.rest("shop") == 0 {
		t.Errorf("%d namespaces are known", len(s.paid))
	}
}

// TestCostlyPoliciesDelayNoOthers: what a namespace's policies cost delays what they select, the counting of their objects and their
// previews, but neither what the same objects say themselves nor what policies of the cluster and of other namespaces select.
func TestCostlyPoliciesDelayNoOthers(t *testing.T) {
	const condition = `"resources":["configmaps"],"condition":"object.data.state == 'done'","expire":{"after":"30m"}`
	each(t, func(w *world) {
		storetest.Create(t, w.store, storetest.Namespace(t, "other"))
		there := func(namespace, name string) bool {
			_, err := w.store.Get(t.Context(), object.Key{Kind: configMaps, Namespace: namespace, Name: name})
			return err == nil
		}
		create := func(namespace, name string, labels map[string]string) {
			storetest.Create(t, w.store, storetest.Object(t, object.Key{Kind: configMaps, Namespace: namespace, Name: name}, `,"data":{"state":"done"}`, func(m *metav1.ObjectMeta) {
				m.CreationTimestamp, m.Labels = metav1.NewTime(born), labels
			}))
		}
		for _, namespace := range []string{"shop", "other"} {
			w.policy(object.Key{Kind: policies, Namespace: namespace, Name: "p"}, 1, "1", "{"+condition+"}")
		}
		w.policy(object.Key{Kind: clusterPolicies, Name: "c"}, 1, "1", `{"selector":{"matchLabels":{"tmp":"yes"}},`+condition+"}")
		w.settle()
		w.policies.shares.took("shop", 2*w.policies.shares.saved)
		create("shop", "a", nil)
		create("shop", "b", tmp)
		create("other", "a", nil)
		w.create("thing", at(0))
		w.policy(policyKey("q"), 1, "1", "{"+condition+"}")
		w.settle()
		if !there("shop", "a") || there("shop", "b") || there("other", "a") {
			t.Errorf("there are a %v and b %v in shop, a in the other namespace: %v", there("shop", "a"), there("shop", "b"), there("other", "a"))
		}
		w.wantThere("thing", false)
		if state := w.status(policyKey("q"))["state"]; state == started {
			t.Errorf("policy q is %v", state)
		}
		all := kindtest.Almighty()
		for namespace, waits := range map[string]bool{"shop": true, "other": false, "": false} {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
			spec := v1.ExpiryPreviewSpec{Namespace: namespace, Policy: "p"}
			if namespace == "" {
				spec.Policy = "c"
			}
			if !waits {
				ctx = t.Context()
			}
			if _, err := w.Preview(ctx, all, spec); errors.Is(err, context.DeadlineExceeded) != waits || err != nil && !waits {
				t.Errorf("the preview in namespace %q: %v", namespace, err)
			}
			cancel()
		}
		w.policies.shares.paid = nil
		w.now = w.now.Add(2 * parts * w.policies.shares.saved)
		w.settle()
		if there("shop", "a") || w.status(policyKey("q"))["state"] != started {
			t.Errorf("after the rest a exists: %v; the policy is %v", there("shop", "a"), w.status(policyKey("q"))["state"])
		}
		if w.policies.shares.paid["shop"].IsZero() || !w.policies.shares.paid[""].IsZero() {
			t.Errorf("what was asked is not counted: %v", w.policies.shares.paid)
		}
	})
}

// TestConditionsAreParsedOnce: a write, which holds the lock, reads the conditions of an object once, however many policies wait for one.
func TestConditionsAreParsedOnce(t *testing.T) {
	var entries []string
	for i := range 1000 {
		entries = append(entries, fmt.Sprintf(`{"type":"T%d","status":"True","lastTransitionTime":"2026-01-01T00:00:00Z"}`, i))
	}
	key := mapKey("a")
	o := storetest.Object(t, key, `,"status":{"conditions":[`+strings.Join(entries, ",")+`]}`)
	cost := func(n int) float64 {
		s := &Set{in: map[string]*space{}}
		for i := range n {
			p := storetest.Object(t, policyKey(fmt.Sprint("p", i)), `,"spec":{"resources":["configmaps"],"expire":{"after":"1h","since":"Condition","conditions":[{"type":"T7"}]}}`,
				func(m *metav1.ObjectMeta) {
					m.Generation = 1
					m.Annotations = map[string]string{"lifecycle.exeunt.dev/start-expiry": "1"}
				})
			s.set(policyKey(fmt.Sprint("p", i)), p.Body)
		}
		if when := s.Due(key, o.Body); when.At.IsZero() {
			t.Fatal("it does not expire")
		}
		return testing.AllocsPerRun(10, func() { s.Due(key, o.Body) })
	}
	if one, many := cost(1), cost(100); many > 2*one {
		t.Errorf("one policy: %.0f allocations; 100: %.0f", one, many)
	}
}
