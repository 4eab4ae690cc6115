package store

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/seal"
)

// TestGiveUpKey: a start that gives up a lost key keeps every object by name, uid,
// owners and deletion, without content, and serves and seals everything else. A
// key that the file has is not given up.
func TestGiveUpKey(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		s := run(t, Options{DB: db, Keys: testKeys(t, "a"), Archive: sealedOptions})
		createNamespace(t, s.Store, "shop")
		plain := newRequest("shop", "plain")
		plain.Key.Kind = "configmaps"
		kept := create(t, s.Store, plain)
		owned := newSecret("shop", "token", "horse-battery-1")
		yes := true
		no := false
		owners := []metav1.OwnerReference{
			{APIVersion: "v1", Kind: "ConfigMap", Name: "plain", UID: kept.UID, BlockOwnerDeletion: &yes, Controller: &yes},
			{APIVersion: "apps/v1", Kind: "Deployment", Name: "web", UID: "web", BlockOwnerDeletion: &no, Controller: &no},
		}
		owned.Meta.OwnerReferences = owners
		owned.Meta.Finalizers = []string{"example.com/hold"}
		owned.Body = bodyOf(owned.Meta, "horse-battery-1")
		token := change(t, s.Store, create(t, s.Store, owned), "horse-battery-2")
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: token.Key}); err != nil {
			t.Fatal(err)
		}
		s.stop()

		if _, err := Open(t.Context(), Options{DB: db, Keys: testKeys(t, "a"), GiveUpKey: "a"}); err == nil || !strings.Contains(err.Error(), "not lost") {
			t.Errorf("a key that the file has was given up: %v", err)
		}
		if _, err := Open(t.Context(), Options{DB: db, Keys: testKeys(t, "b"), GiveUpKey: "c"}); err == nil {
			t.Error("a start that gives up another key was not refused")
		}
		again := run(t, Options{DB: db, Keys: testKeys(t, "b"), GiveUpKey: "a", Archive: sealedOptions})
		wantBody(t, again.Store, kept.Key, kept.Body)
		o, err := again.Get(t.Context(), token.Key)
		if err != nil {
			t.Fatal(err)
		}
		m, err := object.ParseMeta(o.Body)
		if err != nil {
			t.Fatal(err)
		}
		if o.UID != token.UID || m.UID != token.UID || m.Labels[seal.ContentLost] != "true" || !reflect.DeepEqual(m.OwnerReferences, owners) ||
			m.DeletionTimestamp == nil || len(m.Finalizers) != 0 {
			t.Errorf("the object is now %s; want its name, uid, owner and deletion", o.Body)
		}
		if names, err := seal.Registered(t.Context(), db); err != nil || !slices.Equal(names, []string{"b"}) {
			t.Errorf("the database has keys %v, %v; want b", names, err)
		}
		if _, err := again.Delete(t.Context(), DeleteRequest{Key: token.Key}); err != nil {
			t.Errorf("delete what was given up: %v", err)
		}
		if _, err := again.Get(t.Context(), token.Key); !object.Is(err, object.NotFound) {
			t.Errorf("after the delete: %v", err)
		}
		create(t, again.Store, newSecret("shop", "token", "horse-battery-3"))
		again.stop()
		run(t, Options{DB: db, Keys: testKeys(t, "b"), GiveUpKey: "a"}) // the flag may stay
		noLeaks(t, db, "after a key was given up", "horse-battery")
	})
}
