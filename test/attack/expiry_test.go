package attack_test

import (
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// TestCostlyPolicies: a tenant's policies of expiry ask costly conditions about many objects, again and again, and none of them holds. What
// another tenant lets expire goes all the same, and so does what its policy selects. Before, it stayed for minutes.
func TestCostlyPolicies(t *testing.T) {
	const policies, objects = 50, 200
	const costly = "[0,1,2,3,4,5,6,7,8,9].all(a, [0,1,2,3,4,5,6,7,8,9].all(b, [0,1,2,3,4,5,6,7,8,9].all(c, [0,1,2,3,4,5,6,7,8,9].all(d, [0,1,2,3,4].all(e, e < 9))))) && false"
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		a := newTarget(t, s)
		for _, name := range []string{"hostile", "other"} {
			a.create(t, "/api/v1/namespaces", fmt.Sprintf(`{"apiVersion":"v1","kind":"Namespace","metadata":{"name":%q}}`, name))
		}
		in := func(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }
		policy := func(namespace, name, more string) {
			a.create(t, "/apis/lifecycle.exeunt.dev/v1/namespaces/"+namespace+"/expirypolicies", fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"ExpiryPolicy",
				"metadata":{"name":%q,"annotations":{"lifecycle.exeunt.dev/start-expiry":"1"}},"spec":{"resources":["configmaps"],"expire":{"after":"0s"}%s}}`, name, more))
		}
		for i := range policies {
			policy("hostile", fmt.Sprint("p", i), fmt.Sprintf(`,"condition":%q`, costly))
		}
		for i := range objects {
			a.create(t, in("hostile"), fmt.Sprintf(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"o%d"}}`, i))
		}
		policy("other", "p", `,"selector":{"matchLabels":{"tmp":"yes"}}`)
		a.create(t, in("other"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"itself","annotations":{"lifecycle.exeunt.dev/ttl":"1s"}}}`)
		a.create(t, in("other"), `{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"selected","labels":{"tmp":"yes"}}}`)
		for _, name := range []string{"itself", "selected"} {
			harness.Until(t, "the end of "+name, func() error {
				if answer := a.http.Do(t, harness.Request{Method: "GET", Path: in("other") + "/" + name}); answer.Code != 404 {
					return fmt.Errorf("%d", answer.Code)
				}
				return nil
			})
		}
	})
}
