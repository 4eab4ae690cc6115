package archive

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/gc"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/seal"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/google/uuid"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// world is a server without its HTTP. Objects are named "configmaps:n/a";
// "namespaces:/n" is a cluster-scoped one.
type world struct {
	*testing.T
	db      *sqldb.DB
	store   *store.Store
	kinds   *kind.Registry
	gc      *gc.Collector
	archive *Archive
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db)) })
}

func newWorld(t *testing.T, db *sqldb.DB) *world {
	t.Helper()
	return newWorldOf(t, db, store.ArchiveOptions{For: time.Hour})
}

// newWorldOf is a world with another archive. Its Secrets are sealed.
func newWorldOf(t *testing.T, db *sqldb.DB, o store.ArchiveOptions) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	keys, err := seal.Create(filepath.Join(t.TempDir(), "encryption.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	st, err := store.Open(t.Context(), store.Options{DB: db, Logger: log, Archive: o, Keys: keys})
	if err != nil {
		t.Fatal(err)
	}
	w := &world{T: t, db: db, store: st, kinds: kind.NewRegistry(append(builtin.Kinds(), custom.Definition()))}
	if w.gc, err = gc.New(db, st, w.kinds, gc.Options{Logger: log, Budget: 3}); err != nil {
		t.Fatal(err)
	}
	w.archive = New(st, w.kinds, Options{Logger: log, KindWait: 100 * time.Millisecond})
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- st.Run(ctx) }()
	t.Cleanup(sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("run store: %v", err)
		}
		if err := st.Close(); err != nil {
			t.Errorf("close store: %v", err)
		}
	}))
	w.create("namespaces:/n")
	return w
}

func keyOf(name string) object.Key {
	kind, rest, _ := strings.Cut(name, ":")
	namespace, short, _ := strings.Cut(rest, "/")
	return object.Key{Kind: kind, Namespace: namespace, Name: short}
}

// bodies has the fields of each kind besides metadata.
var bodies = map[string]string{
	"namespaces":       `,"spec":{"finalizers":["kubernetes"]},"status":{"phase":"Active"}`,
	"configmaps":       `,"data":{"key":"value"}`,
	"secrets":          `,"data":{"password":"cGFzcw=="},"type":"Opaque"`,
	"deployments.apps": `,"spec":{"replicas":1,"selector":{"matchLabels":{"a":"b"}},"template":{"metadata":{"labels":{"a":"b"}},"spec":{"containers":[{"name":"x","image":"x","terminationMessagePath":"/dev/termination-log","terminationMessagePolicy":"File","imagePullPolicy":"Always"}],"restartPolicy":"Always","dnsPolicy":"ClusterFirst","schedulerName":"default-scheduler","terminationGracePeriodSeconds":30}},"strategy":{"type":"Recreate"}},"status":{"replicas":1,"observedGeneration":7}`,
}

// create stores an object that refers to owners.
func (w *world) create(name string, owners ...object.Object) object.Object {
	w.Helper()
	return w.createWith(name, func(m *metav1.ObjectMeta) { m.OwnerReferences = w.references(owners) })
}

func (w *world) references(owners []object.Object) (out []metav1.OwnerReference) {
	for _, o := range owners {
		yes := true
		kind, apiVersion := w.kinds.Snapshot().Names(o.Kind)
		out = append(out, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: o.Name, UID: o.UID, BlockOwnerDeletion: &yes})
	}
	return out
}

func (w *world) createWith(name string, change func(*metav1.ObjectMeta)) object.Object {
	w.Helper()
	key := keyOf(name)
	m := metav1.ObjectMeta{
		Name: key.Name, Namespace: key.Namespace, UID: types.UID(uuid.NewString()), Generation: 7,
		CreationTimestamp: metav1.NewTime(time.Unix(1000, 0)),
		ManagedFields:     []metav1.ManagedFieldsEntry{{Manager: "manager", Operation: "Update", APIVersion: "v1"}},
	}
	change(&m)
	body, err := object.WithMeta([]byte(`{"metadata":{"name":"x"}`+bodies[key.Kind]+`}`), m)
	if err != nil {
		w.Fatal(err)
	}
	o, err := w.store.Create(w.Context(), store.CreateRequest{Key: key, Meta: m, Body: body, InNamespace: key.Namespace != ""})
	if err != nil {
		w.Fatal(err)
	}
	return o
}

// delete deletes an object and runs the collector.
func (w *world) delete(o object.Object, policy metav1.DeletionPropagation) {
	w.Helper()
	k, _ := w.kinds.Snapshot().Stored(o.Kind)
	r := store.DeleteRequest{Key: o.Key, Options: metav1.DeleteOptions{PropagationPolicy: &policy}, Actor: "alice", RequestID: "delete-" + o.Name}
	if k != nil {
		r.Rules = k.Rules
	}
	if _, err := w.store.Delete(w.Context(), r); err != nil {
		w.Fatal(err)
	}
	w.collect()
}

// collect runs the collector until it is idle.
func (w *world) collect() {
	w.Helper()
	for range 1000 {
		r, err := w.gc.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if r.Claimed == 0 {
			return
		}
	}
	w.Fatal("the collector does not become idle")
}

// get returns an object that must exist.
func (w *world) get(name string) (object.Object, metav1.ObjectMeta) {
	w.Helper()
	o, err := w.store.Get(w.Context(), keyOf(name))
	if err != nil {
		w.Fatal(err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.Fatal(err)
	}
	return o, m
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
	status, err := w.archive.Restore(w.Context(), spec)
	if err != nil {
		w.Fatalf("restore %+v: %v", spec, err)
	}
	w.collect() // removes what the restore left as garbage
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
