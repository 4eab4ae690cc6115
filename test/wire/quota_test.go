package wire_test

import (
	"fmt"
	"strings"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// TestQuotaBehindTheFeed: large objects of one tenant push the changes that the quotas have not
// counted yet out of the feed. The creates of another tenant succeed, and both quotas stay exact.
func TestQuotaBehindTheFeed(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		in := func(namespace string) string { return "/api/v1/namespaces/" + namespace + "/configmaps" }
		create := func(namespace, name, metadata, data string) harness.Answer {
			body := strings.Replace(configMap(name, metadata), `"v"`, `"`+data+`"`, 1)
			return h.Do(t, harness.Request{Method: "POST", Path: in(namespace), Body: body})
		}
		want := func(a harness.Answer, code int) harness.Answer {
			t.Helper()
			if a.Code != code {
				t.Fatalf("answered %d, want %d: %.500s", a.Code, code, a.Body)
			}
			return a
		}
		for _, namespace := range []string{"q1", "q2"} {
			play(t, s, []step{
				{name: "namespace", method: "POST", path: "/api/v1/namespaces", body: `{"metadata":{"name":"` + namespace + `"}}`, code: 201},
				{name: "quota", method: "POST", path: "/api/v1/namespaces/" + namespace + "/resourcequotas", code: 201,
					body: `{"metadata":{"name":"q"},"spec":{"hard":{"count/configmaps":"9"}}}`},
			})
			want(create(namespace, "first", "", ""), 201)
			harness.Until(t, "the authority's certificate", func() error { // the quota counts it
				if a := h.Do(t, harness.Request{Method: "GET", Path: in(namespace) + "/kube-root-ca.crt"}); a.Code != 200 {
					return fmt.Errorf("it answers %d", a.Code)
				}
				return nil
			})
		}
		large := strings.Repeat("x", 1<<20-100)
		for round := range 3 {
			// The collector removes six dependents in one transaction: 6 MB, more than the feed has room for.
			owner := want(create("q2", "owner", "", ""), 201).Field("metadata.uid")
			reference := fmt.Sprintf(`"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":%s}]`, owner)
			var clients sync.WaitGroup
			for i := range 6 {
				clients.Go(func() {
					if a := create("q2", fmt.Sprint("large-", i), reference, large); a.Code != 201 {
						t.Errorf("create large-%d: %d %.500s", i, a.Code, a.Body)
					}
				})
			}
			clients.Wait()
			want(create("q2", "one-more", "", ""), 403)
			want(h.Do(t, harness.Request{Method: "DELETE", Path: in("q2") + "/owner", Body: options(`"propagationPolicy":"Background"`)}), 200)
			harness.Until(t, "the dependents to be collected", func() error {
				if a := h.Get(t, in("q2")+"?limit=3"); a.Field("items.2") != "" {
					return fmt.Errorf("there is still %s", a.Field("items.2.metadata.name"))
				}
				return nil
			})
			want(create("q1", fmt.Sprint("small-", round), "", ""), 201)
		}
		for i := 5; i < 9; i++ {
			want(create("q1", fmt.Sprint("more-", i), "", ""), 201)
		}
		refused := want(create("q1", "tenth", "", ""), 403)
		if text := refused.Field("message"); !strings.Contains(text, "used: count/configmaps=9, limited: count/configmaps=9") {
			t.Error(text)
		}
	})
}
