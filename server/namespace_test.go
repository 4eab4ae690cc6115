package server

import (
	"path/filepath"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestNamespacesReturn: a new server has the four system namespaces. kube-node-lease may be
// deleted and is created again without a restart, on one server and on two replicas. The
// others cannot be deleted.
func TestNamespacesReturn(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Open(t, engine)
			first := Config{Data: filepath.Join(t.TempDir(), "data"), Database: database}
			servers := []*running{start(t, first)}
			if engine == sqldb.Postgres {
				second := Config{Data: filepath.Join(t.TempDir(), "data"), Database: database, EncryptionConfig: filepath.Join(first.Data, "encryption.yaml")}
				servers = append(servers, start(t, second))
			}
			for i, r := range servers {
				namespaces := r.client.CoreV1().Namespaces()
				for _, name := range []string{"default", "kube-system", "kube-public"} {
					if err := namespaces.Delete(t.Context(), name, metav1.DeleteOptions{}); !apierrors.IsForbidden(err) {
						t.Errorf("delete %s: %v", name, err)
					}
					if ns, err := namespaces.Get(t.Context(), name, metav1.GetOptions{}); err != nil || ns.DeletionTimestamp != nil {
						t.Errorf("get %s: %v, %v", name, ns, err)
					}
				}
				before, err := namespaces.Get(t.Context(), "kube-node-lease", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				if err := namespaces.Delete(t.Context(), before.Name, metav1.DeleteOptions{}); err != nil {
					t.Fatal(err)
				}
				other := servers[len(servers)-1-i].client.CoreV1().Namespaces()
				dbtest.Await(t, "kube-node-lease comes back", func() bool {
					after, err := other.Get(t.Context(), before.Name, metav1.GetOptions{})
					return err == nil && after.UID != before.UID && after.DeletionTimestamp == nil
				})
			}
			for _, r := range servers {
				r.stop()
			}
		})
	}
}
