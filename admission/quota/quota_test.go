package quota_test

import (
	"context"
	"fmt"
	"strings"
	"testing"

	"golang.org/x/sync/errgroup"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/admission/quota"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

const pod = `,"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"500m"},"limits":{"memory":"1Gi"}}}]}`

// TestCounts: kinds of all groups are counted, by both names, and given back.
func TestCounts(t *testing.T) {
	each(t, func(w *world) {
		w.must("configmaps", "early", "")
		w.quota("q", `{"hard":{"configmaps":"2","count/deployments.apps":"1","count/repositories.registry.exeunt.dev":"1"}}`)
		w.must("configmaps", "a", "")
		w.refused(w.create("configmaps", "b", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2")
		w.must("deployments.apps", "a", "")
		w.refused(w.create("deployments.apps", "b", ""),
			"exceeded quota: q, requested: count/deployments.apps=1, used: count/deployments.apps=1, limited: count/deployments.apps=1")
		w.must("repositories.registry.exeunt.dev", "a", `,"spec":{"path":"n/a"}`)
		w.refused(w.create("repositories.registry.exeunt.dev", "b", `,"spec":{"path":"n/b"}`), "exceeded quota: q, requested: count/repositories.registry.exeunt.dev=1, "+
			"used: count/repositories.registry.exeunt.dev=1, limited: count/repositories.registry.exeunt.dev=1")
		w.must("secrets", "free", "")
		if got := w.status("q"); got != "map[configmaps:2 count/deployments.apps:1 count/repositories.registry.exeunt.dev:1]" {
			t.Error(got)
		}
		w.delete("configmaps", "early")
		w.must("configmaps", "b", "")
		w.delete("configmaps", "a")
		w.delete("deployments.apps", "a")
		if got := w.status("q"); got != "map[configmaps:1 count/deployments.apps:0 count/repositories.registry.exeunt.dev:1]" {
			t.Error(got)
		}
	})
}

// TestRegistryBytes: triggers read the quantity as Kubernetes does, and the status follows what they count.
func TestRegistryBytes(t *testing.T) {
	each(t, func(w *world) {
		sql := dbtest.NewSQL(w, w.db)
		for i, text := range []string{"0", "12", "10Ki", "1536Mi", "1.5Gi", "3Ti", "2Pi", "1Ei", "5k", "7M", "1G", "2T", "3P", "1E", "1e3", "12E2", "1000m", "9223372036854775807"} {
			name := fmt.Sprint("q", i)
			w.quota(name, fmt.Sprintf(`{"hard":{"registry.exeunt.dev/bytes":%q}}`, text))
			want := resource.MustParse(text)
			if got := sql.Strings(`SELECT CAST(most AS text) FROM registry_quotas WHERE name = 'ResourceQuota ` + name + `'`); len(got) != 1 || got[0] != fmt.Sprint(want.Value()) {
				w.Errorf("%s: %v, not %d", text, got, want.Value())
			}
			w.delete("resourcequotas", name)
		}
		w.quota("q", `{"hard":{"registry.exeunt.dev/bytes":"10Gi","configmaps":"2"}}`)
		if got := w.status("q"); got != "map[configmaps:0 registry.exeunt.dev/bytes:0]" {
			w.Error(got)
		}
		sql.Exec(`UPDATE registry_quotas SET bytes = 2048`)
		if got := w.status("q"); got != "map[configmaps:0 registry.exeunt.dev/bytes:2Ki]" {
			w.Error(got)
		}
		w.delete("resourcequotas", "q")
		if left := sql.Strings(`SELECT name FROM registry_quotas`); len(left) > 0 {
			w.Errorf("%v are left", left)
		}
	})
}

// TestDryRun: a dry run is refused like a write, and uses nothing.
func TestDryRun(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"configmaps":"1"}}`)
		r := w.request("configmaps", "a", "")
		r.DryRun = true
		for range 2 {
			if _, err := w.store.Create(t.Context(), r); err != nil {
				t.Fatal(err)
			}
		}
		w.must("configmaps", "b", "")
		_, err := w.store.Create(t.Context(), r)
		w.refused(err, "exceeded quota: q, requested: configmaps=1, used: configmaps=1, limited: configmaps=1")
	})
}

// TestPods: requests and limits, containers that do not state them, and pods that ended.
func TestPods(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"pods":"3","requests.cpu":"1","limits.memory":"5Gi"}}`)
		w.refused(w.create("pods", "silent", `,"spec":{"containers":[{"name":"c"}]}`), "failed quota: q: must specify limits.memory for: c; requests.cpu for: c")
		w.must("pods", "a", pod)
		w.must("pods", "b", pod)
		w.refused(w.create("pods", "c", pod), "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=1, limited: requests.cpu=1")
		if got := w.status("q"); got != "map[limits.memory:2Gi pods:2 requests.cpu:1]" {
			t.Error(got)
		}
		if err := w.replace("pods", "a", pod+`,"status":{"phase":"Succeeded"}`); err != nil {
			t.Fatal(err)
		}
		w.must("pods", "c", pod)
		larger := `,"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"600m"},"limits":{"memory":"1Gi"}}}]}`
		w.refused(w.replace("pods", "b", larger), "exceeded quota: q, requested: requests.cpu=100m, used: requests.cpu=1, limited: requests.cpu=1")
		wider := `,"spec":{"containers":[{"name":"c","resources":{"requests":{"cpu":"500m"},"limits":{"memory":"5Gi"}}}]}`
		w.refused(w.replace("pods", "b", wider), "exceeded quota: q, requested: limits.memory=4Gi, used: limits.memory=2Gi, limited: limits.memory=5Gi")
		if got := w.status("q"); got != "map[limits.memory:2Gi pods:2 requests.cpu:1]" {
			t.Error(got)
		}
	})
}

// TestScopes: each quota counts the pods of its scopes.
func TestScopes(t *testing.T) {
	each(t, func(w *world) {
		w.quota("best", `{"hard":{"pods":"1"},"scopes":["BestEffort"]}`)
		w.quota("high", `{"hard":{"pods":"1"},"scopeSelector":{"matchExpressions":[{"scopeName":"PriorityClass","operator":"In","values":["high"]}]}}`)
		w.must("pods", "a", `,"spec":{"containers":[{"name":"c"}]}`)
		w.refused(w.create("pods", "b", `,"spec":{"containers":[{"name":"c"}]}`), "exceeded quota: best, requested: pods=1, used: pods=1, limited: pods=1")
		w.must("pods", "c", pod)
		w.must("pods", "d", `,"spec":{"priorityClassName":"high","containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}`)
		w.refused(w.create("pods", "e", `,"spec":{"priorityClassName":"high","containers":[{"name":"c","resources":{"requests":{"cpu":"1"}}}]}`),
			"exceeded quota: high, requested: pods=1, used: pods=1, limited: pods=1")
		if got := w.status("best") + w.status("high"); got != "map[pods:1]map[pods:1]" {
			t.Error(got)
		}
	})
}

// TestServicesAndClaims: an update that needs more is refused, one that needs less is not.
func TestServicesAndClaims(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"services":"2","services.nodeports":"1","services.loadbalancers":"0","requests.storage":"10Gi",
			"gold.storageclass.storage.k8s.io/requests.storage":"3Gi","persistentvolumeclaims":"2"}}`)
		w.must("services", "a", `,"spec":{"type":"NodePort","ports":[{"port":1}]}`)
		w.must("services", "b", `,"spec":{"type":"ClusterIP","ports":[{"port":1}]}`)
		w.refused(w.replace("services", "b", `,"spec":{"type":"NodePort","ports":[{"port":1}]}`),
			"exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=1, limited: services.nodeports=1")
		if err := w.replace("services", "a", `,"spec":{"type":"ClusterIP","ports":[{"port":1}]}`); err != nil {
			t.Fatal(err)
		}
		claim := func(size, class string) string {
			return fmt.Sprintf(`,"spec":{"storageClassName":%q,"resources":{"requests":{"storage":%q}}}`, class, size)
		}
		w.must("persistentvolumeclaims", "a", claim("2Gi", "gold"))
		w.refused(w.create("persistentvolumeclaims", "b", claim("2Gi", "gold")), "exceeded quota: q, requested: gold.storageclass.storage.k8s.io/requests.storage=2Gi, "+
			"used: gold.storageclass.storage.k8s.io/requests.storage=2Gi, limited: gold.storageclass.storage.k8s.io/requests.storage=3Gi")
		w.must("persistentvolumeclaims", "b", claim("8Gi", "tin"))
		w.refused(w.replace("persistentvolumeclaims", "b", claim("9Gi", "tin")),
			"exceeded quota: q, requested: requests.storage=1Gi, used: requests.storage=10Gi, limited: requests.storage=10Gi")
		want := "map[gold.storageclass.storage.k8s.io/requests.storage:2Gi persistentvolumeclaims:2 requests.storage:10Gi services:2 services.loadbalancers:0 services.nodeports:0]"
		if got := w.status("q"); got != want {
			t.Error(got)
		}
	})
}

// TestTogether: objects that belong to a create are checked with it, in its transaction.
func TestTogether(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"configmaps":"2"}}`)
		r := w.request("configmaps", "a", "")
		r.With = []store.CreateRequest{w.request("configmaps", "b", ""), w.request("configmaps", "c", "")}
		_, err := w.store.Create(t.Context(), r)
		w.refused(err, "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2")
		if _, err := w.store.Get(t.Context(), object.Key{Kind: "configmaps", Namespace: "n", Name: "b"}); !object.Is(err, object.NotFound) {
			t.Errorf("a part of it exists: %v", err)
		}
		r.With = r.With[:1]
		if _, err := w.store.Create(t.Context(), r); err != nil {
			t.Fatal(err)
		}
		w.refused(w.create("configmaps", "d", ""), "exceeded quota: q, requested: configmaps=1, used: configmaps=2, limited: configmaps=2")
	})
}

// TestLostPod: a pod that is being deleted uses its quota until its grace period is over
// twice, as on a node that is lost.
func TestLostPod(t *testing.T) {
	each(t, func(w *world) {
		w.quota("q", `{"hard":{"pods":"1","count/pods":"5"}}`)
		grace := int64(1)
		leaving := func(ago int64) func(*metav1.ObjectMeta) {
			at := metav1.Unix(w.now()-ago, 0)
			return func(m *metav1.ObjectMeta) {
				m.DeletionTimestamp, m.DeletionGracePeriodSeconds, m.Finalizers = &at, &grace, []string{"a/b"}
			}
		}
		w.must("pods", "lost", pod, leaving(60))
		w.must("pods", "leaves", pod, leaving(-60))
		w.refused(w.create("pods", "c", pod), "exceeded quota: q, requested: pods=1, used: pods=1, limited: pods=1")
		if got := w.status("q"); got != "map[count/pods:2 pods:1]" {
			t.Error(got)
		}
	})
}

// TestMoreThanAPage: more quotas, and more objects of a namespace, than are read at a time, are all read.
func TestMoreThanAPage(t *testing.T) {
	t.Parallel()
	w := start(t, dbtest.OpenDB(t, sqldb.SQLite))
	storetest.Create(t, w.store, storetest.Namespace(t, "a"))
	storetest.Create(t, w.store, storetest.Namespace(t, "n"))
	const many = 501
	var group errgroup.Group
	group.SetLimit(100)
	for i := range many {
		group.Go(func() error { return w.create("pods", fmt.Sprint("p-", i), pod) })
		group.Go(func() error {
			_, err := w.store.Create(t.Context(), storetest.Object(t, object.Key{Kind: "resourcequotas", Namespace: "a", Name: fmt.Sprint("q-", i)}, `,"spec":{"hard":{"secrets":"0"}}`))
			return err
		})
	}
	if err := group.Wait(); err != nil {
		t.Fatal(err)
	}
	w.quota("q", fmt.Sprintf(`{"hard":{"pods":"%d"}}`, many+1))
	w.must("pods", "one", pod)
	w.refused(w.create("pods", "two", pod), fmt.Sprintf("exceeded quota: q, requested: pods=1, used: pods=%d, limited: pods=%d", many+1, many+1))
}

// TestFirstQuota: the first quota of a server, and the first one of a namespace, have their status at once, and not when the queue
// is looked at the next time.
func TestFirstQuota(t *testing.T) {
	quota.OnlyWoken(t)
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := start(t, db)
		ctx, stop := context.WithCancel(t.Context())
		done := make(chan error, 1)
		go func() { done <- w.ledger.Run(ctx) }()
		for _, namespace := range []string{"m", "n"} {
			storetest.Create(t, w.store, storetest.Namespace(t, namespace))
			key := object.Key{Kind: "resourcequotas", Namespace: namespace, Name: "q"}
			storetest.Create(t, w.store, storetest.Object(t, key, `,"spec":{"hard":{"pods":"5"}}`))
			dbtest.Until(t, "the status of the quota in "+namespace, func() error {
				if o, _ := storetest.Get(t, w.store, key); !strings.Contains(string(o.Body), `"used":{"pods":"0"}`) {
					return fmt.Errorf("%s", o.Body)
				}
				return nil
			})
		}
		stop()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}

// TestExisting: what was there before a quota counts, of each kind that is measured; a quota with other limits counts again, and
// leaves what the others have counted. What a controller reports is never refused, and what cannot be measured is.
func TestExisting(t *testing.T) {
	each(t, func(w *world) {
		claim := func(size, status string) string {
			return fmt.Sprintf(`,"spec":{"resources":{"requests":{"storage":%q}}},"status":{"phase":%q}`, size, status)
		}
		w.must("pods", "a", pod)
		w.must("services", "a", `,"spec":{"type":"NodePort","ports":[{"port":1},{"port":2}]}`)
		w.must("persistentvolumeclaims", "a", claim("5Gi", "Pending"))
		w.quota("q", `{"hard":{"requests.cpu":"1","services.nodeports":"2","requests.storage":"6Gi"}}`)
		w.quota("r", `{"hard":{"pods":"2"}}`)
		w.must("pods", "b", pod)
		const cpu = "exceeded quota: q, requested: requests.cpu=500m, used: requests.cpu=1, limited: requests.cpu=1"
		w.refused(w.create("pods", "c", pod), cpu)
		w.refused(w.create("services", "b", `,"spec":{"type":"NodePort","ports":[{"port":1}]}`),
			"exceeded quota: q, requested: services.nodeports=1, used: services.nodeports=2, limited: services.nodeports=2")
		w.refused(w.create("persistentvolumeclaims", "b", claim("2Gi", "Pending")), "exceeded quota: q, requested: requests.storage=2Gi, used: requests.storage=5Gi, limited: requests.storage=6Gi")
		w.quota("s", `{"hard":{"configmaps":"1"}}`) // all quotas are read again
		w.refused(w.create("pods", "c", pod), cpu)
		if err := w.replace("resourcequotas", "q", `,"spec":{"hard":{"requests.cpu":"2","requests.storage":"1Gi"}}`); err != nil {
			t.Fatal(err)
		}
		if err := w.replace("persistentvolumeclaims", "a", claim("5Gi", "Bound")); err != nil {
			t.Errorf("a controller may not report: %v", err)
		}
		w.refused(w.create("pods", "c", pod), "exceeded quota: r, requested: pods=1, used: pods=2, limited: pods=2")
		if err := w.replace("resourcequotas", "r", `,"spec":{"hard":{"pods":"3"}}`); err != nil {
			t.Fatal(err)
		}
		w.must("pods", "c", pod)
		if err := w.create("pods", "odd", `,"spec":3`); !object.Is(err, object.BadRequest) {
			t.Errorf("a pod that cannot be measured: %v", err)
		}
		if got := w.status("q") + w.status("r"); got != "map[requests.cpu:1500m requests.storage:5Gi]map[pods:3]" {
			t.Error(got)
		}
	})
}
