package provisioning

import (
	"fmt"
	"log/slog"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// TestFind: a declaration is found by its uid alone: not one of another kind, nor a later one of its name. Released, it
// leaves, once its deletion was asked for.
func TestFind(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		st := storetest.Run(t, store.Options{DB: db})
		a := New(db, st, nil, slog.New(slog.DiscardHandler))
		key := object.Key{Kind: ResourceStorage, Namespace: "shop", Name: "cluster"}
		create := func(kind, uid string) {
			t.Helper()
			m := metav1.ObjectMeta{Name: key.Name, Namespace: key.Namespace, UID: types.UID(uid), Finalizers: []string{TeardownFinalizer}, CreationTimestamp: metav1.Unix(1, 0)}
			k := key
			k.Kind = kind
			body := fmt.Sprintf(`{"metadata":{"name":"cluster","namespace":"shop","uid":%q,"creationTimestamp":"1970-01-01T00:00:01Z","finalizers":[%q]},"spec":{"blueprintRef":{"name":"b","version":"v1"},"credentialRef":{"name":"c"}}}`, uid, TeardownFinalizer)
			if _, err := st.Create(t.Context(), store.CreateRequest{Key: k, Meta: m, Body: []byte(body)}); err != nil {
				t.Fatal(err)
			}
		}
		found := func(uid string, want, deleting bool) {
			t.Helper()
			d, found, err := a.Find(t.Context(), broker.ProvisionedResourceID(uid))
			if err != nil || found != want || d.Deleting != deleting || want && string(d.Request.ID) != uid {
				t.Errorf("%s: %+v, found: %t, %v", uid, d, found, err)
			}
		}
		create(ResourceStorage, "first")
		create("things.example.com", "thing")
		found("first", true, false)
		found("thing", false, false)
		found("never", false, false)
		if _, err := st.Delete(t.Context(), store.DeleteRequest{Key: key}); err != nil {
			t.Fatal(err)
		}
		found("first", true, true)
		if err := a.Release(t.Context(), "other"); err != nil {
			t.Error(err)
		}
		found("first", true, true)
		if err := a.Release(t.Context(), "first"); err != nil {
			t.Fatal(err)
		}
		found("first", false, false)
		create(ResourceStorage, "second")
		found("first", false, false)
		found("second", true, false)
	})
}
