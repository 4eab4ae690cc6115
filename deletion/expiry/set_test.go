package expiry

import (
	"fmt"
	"log/slog"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

// TestPoliciesCostOthersNothing: a write costs the same however many policies other namespaces have, and so does the change of
// a policy.
func TestPoliciesCostOthersNothing(t *testing.T) {
	const each, inOne = 20, 50
	policyIn := func(namespace string, i int) store.CreateRequest {
		return storetest.Object(t, object.Key{Kind: policies, Namespace: namespace, Name: fmt.Sprint("p", i)}, `,"spec":`+byAge)
	}
	during := func(db *sqldb.DB, fn func(st *store.Store)) {
		st, stop := storetest.Start(t, store.Options{DB: db, Expiry: &Policies{}, Logger: slog.New(slog.DiscardHandler)})
		defer stop()
		fn(st)
	}
	changePolicy := func(st *store.Store, i int) {
		storetest.Update(t, st, object.Key{Kind: policies, Namespace: "n0", Name: "p0"}, lifecycle.Rules{}, func(m *metav1.ObjectMeta) { m.Generation = int64(i + 2) })
	}
	write := func(st *store.Store, name string) {
		storetest.Create(t, st, storetest.Object(t, object.Key{Kind: configMaps, Namespace: "n0", Name: name}, "", func(m *metav1.ObjectMeta) { m.Labels = tmp }))
	}
	dbtest.Growth{
		Few: 1_000, Many: 6_000, Each: each, Ignore: "changes_pkey", Operations: []string{"change a policy", "write", "write after a change"},
		Fill: func(db *sqldb.DB, n int) {
			during(db, func(st *store.Store) {
				for i := range n / inOne {
					storetest.Create(t, st, storetest.Namespace(t, fmt.Sprint("n", i)))
					var requests []store.CreateRequest
					for j := range inOne {
						requests = append(requests, policyIn(fmt.Sprint("n", i), j))
					}
					for _, err := range st.CreateAll(t.Context(), requests) {
						if err != nil {
							t.Fatal(err)
						}
					}
				}
			})
		},
		Run: func(db *sqldb.DB, operation string) {
			during(db, func(st *store.Store) {
				write(st, "first-"+strings.ReplaceAll(operation, " ", "-")) // it reads all policies
				for i := range each {
					switch operation {
					case "write":
						write(st, fmt.Sprint("a", i))
					case "change a policy":
						changePolicy(st, i)
					case "write after a change":
						changePolicy(st, each+i)
						write(st, fmt.Sprint("b", i))
					}
				}
			})
		},
	}.Check(t)
}

// TestChangedPolicyIsRead: after a change of a policy no other is read; and none after the write of a status.
func TestChangedPolicyIsRead(t *testing.T) {
	each(t, func(w *world) {
		for i := range 3 {
			w.policy(policyKey(fmt.Sprint("p", i)), 1, "1", byAge)
		}
		var all Policies
		now := func() *Set {
			t.Helper()
			s, err := all.Now(t.Context(), w.store.Reader())
			if err != nil {
				t.Fatal(err)
			}
			return s
		}
		before := now()
		w.create("a", nil) // the next read begins here
		if now() != before {
			t.Error("the policies were read again after the write of another object")
		}
		storetest.Update(t, w.store, policyKey("p0"), lifecycle.Rules{}, annotated(map[string]string{lifecycle.StartExpiry: "1", "note": "x"}))
		if now() != before {
			t.Error("the policies were read again after a write that changes nothing")
		}
		// A policy that is read again is not found.
		dbtest.NewSQL(t, w.db).Exec(`UPDATE changes SET body = $1 WHERE kind = $2 AND name = 'p1'`, []byte("{"), policies)
		w.policy(policyKey("p2"), 2, "2", byAge)
		if _, err := w.store.Delete(t.Context(), store.DeleteRequest{Key: policyKey("p0")}); err != nil {
			t.Fatal(err)
		}
		w.policy(object.Key{Kind: clusterPolicies, Name: "c"}, 1, "1", byAge)
		s := now()
		if s.Named("shop", "p0") != nil || s.Named("shop", "p1") != before.Named("shop", "p1") || s.Named("shop", "p2").Generation != 2 || s.Named("", "c") == nil {
			t.Errorf("the policies are %+v", s.in)
		}
		// What the log no longer has is read from the objects.
		w.policy(policyKey("p2"), 3, "3", byAge)
		dbtest.NewSQL(t, w.db).Exec(`UPDATE revision SET compacted = current`)
		if s := now(); s.Named("shop", "p1") != nil || s.Named("shop", "p2").Generation != 3 || s.Named("", "c") == nil {
			t.Errorf("after a compaction the policies are %+v", s.in)
		}
	})
}
