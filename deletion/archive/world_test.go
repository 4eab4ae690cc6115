package archive

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/seal"
	"github.com/exeunt/exeunt/store/storetest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apiserver/pkg/authentication/user"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a server without its HTTP. Objects are named "configmaps:n/a";
// "namespaces:/n" is a cluster-scoped one.
type world struct {
	*testing.T
	*deletiontest.World
	db      *sqldb.DB
	store   *store.Store
	kinds   *kind.Registry
	archive *Archive
	keys    *seal.Keys
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db)) })
}

// both is each for what depends on locks: on both engines.
func both(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Both(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db)) })
}

func newWorld(t *testing.T, db *sqldb.DB) *world {
	t.Helper()
	return newWorldOf(t, db, store.ArchiveOptions{For: time.Hour})
}

// newWorldOf is a world with another archive. Its Secrets are sealed.
func newWorldOf(t *testing.T, db *sqldb.DB, o store.ArchiveOptions, prepare ...func(*store.Store)) *world {
	t.Helper()
	return newWorldWith(t, store.Options{DB: db, Archive: o}, prepare...)
}

func newWorldWith(t *testing.T, o store.Options, prepare ...func(*store.Store)) *world {
	t.Helper()
	db := o.DB
	var err error
	if o.Keys == nil {
		o.Keys, err = seal.Create(filepath.Join(t.TempDir(), "encryption.yaml"))
	}
	if err != nil {
		t.Fatal(err)
	}
	base := deletiontest.NewWith(t, o, gc.Options{Budget: 3, OrphanWait: -1}, prepare...)
	w := &world{T: t, World: base, db: db, store: base.Store, kinds: base.Kinds, keys: o.Keys}
	w.archive, err = New(db, w.store, w.kinds, Options{Logger: slog.New(slog.DiscardHandler), KindWait: 100 * time.Millisecond, Define: custom.Declared})
	if err != nil {
		t.Fatal(err)
	}
	if !w.exists("namespaces:/n") {
		w.create("namespaces:/n")
	}
	return w
}

// removed reads the removed objects of a target.
func (w *world) removed(t target) []*candidate {
	w.Helper()
	f, err := w.archive.find(w.Context(), kindtest.Almighty(), t)
	if err != nil {
		w.Fatal(err)
	}
	return f.removed
}

// work runs the archive's queue until the test ends.
func (w *world) work(clientOf func(context.Context, user.Info) kind.Client) {
	storetest.Background(w, func(ctx context.Context) error { return w.archive.Run(ctx, clientOf) })
}

func keyOf(name string) object.Key {
	kind, rest, _ := strings.Cut(name, ":")
	namespace, short, _ := strings.Cut(rest, "/")
	return object.Key{Kind: kind, Namespace: namespace, Name: short}
}

// bodies has the fields of each kind besides metadata.
var bodies = map[string]string{
	"namespaces":       storetest.NamespaceFields,
	"configmaps":       `,"data":{"key":"value"}`,
	"pods":             `,"spec":{"containers":[{"name":"x","image":"x","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}],"serviceAccount":"default","serviceAccountName":"default","enableServiceLinks":true,"nodeName":"node","restartPolicy":"Always","dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","terminationGracePeriodSeconds":30,"securityContext":{}},"status":{"phase":"Running"}`,
	"secrets":          `,"data":{"password":"cGFzcw=="},"type":"Opaque"`,
	"deployments.apps": `,"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"x","image":"x","resources":{},"terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}],"restartPolicy":"Always","dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","securityContext":{},"terminationGracePeriodSeconds":30}},"strategy":{"type":"Recreate"},"revisionHistoryLimit":10,"progressDeadlineSeconds":600},"status":{"replicas":1,"observedGeneration":7}`,
}

// create stores an object that refers to owners.
func (w *world) create(name string, owners ...object.Object) object.Object {
	w.Helper()
	return w.createWith(name, func(m *metav1.ObjectMeta) { m.OwnerReferences = w.OwnedBy(owners...) })
}

func (w *world) createWith(name string, change func(*metav1.ObjectMeta)) object.Object {
	w.Helper()
	key := keyOf(name)
	r := storetest.Object(w, key, bodies[key.Kind], func(m *metav1.ObjectMeta) {
		m.Generation = 7
		m.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "manager", Operation: "Update", APIVersion: "v1"}}
	}, change)
	r.InNamespace = key.Namespace != ""
	return storetest.Create(w, w.store, r)
}

// delete deletes an object and runs the collector.
func (w *world) delete(o object.Object, policy metav1.DeletionPropagation) {
	w.Helper()
	r := store.DeleteRequest{Key: o.Key, Options: deletiontest.With(policy), Rules: w.Rules(o.Kind), Actor: "alice", RequestID: "delete-" + o.Name}
	if _, err := w.store.Delete(w.Context(), r); err != nil {
		w.Fatal(err)
	}
	w.Collect()
}

// get returns an object that must exist.
func (w *world) get(name string) (object.Object, metav1.ObjectMeta) {
	w.Helper()
	return storetest.Get(w, w.store, keyOf(name))
}

func (w *world) exists(name string) bool {
	w.Helper()
	_, err := w.store.Get(w.Context(), keyOf(name))
	if err != nil && !object.Is(err, object.NotFound) {
		w.Fatal(err)
	}
	return err == nil
}

func (w *world) restore(spec v1.RestoreSpec) v1.RestoreStatus {
	w.Helper()
	before := w.store.Revision()
	status, err := w.archive.Restore(w.Context(), kindtest.Almighty(), spec)
	if err != nil {
		w.Fatalf("restore %+v: %v", spec, err)
	}
	if after := w.store.Revision(); spec.DryRun && after != before {
		w.Errorf("the dry run of %+v changed something: version %d, then %d", spec, before, after)
	}
	w.Collect() // removes what the restore left as garbage
	return status
}

// want compares results as "kind/name outcome".
func (w *world) want(status v1.RestoreStatus, results ...string) {
	w.Helper()
	var got []string
	for _, r := range status.Results {
		got = append(got, fmt.Sprintf("%s/%s %s", r.Kind, r.Name, r.Outcome))
	}
	if strings.Join(got, ", ") != strings.Join(results, ", ") {
		w.Errorf("got  %q\nwant %q\nin full %+v", got, results, status)
	}
}

func (w *world) names() *names {
	w.Helper()
	n, err := w.archive.names(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	return n
}
