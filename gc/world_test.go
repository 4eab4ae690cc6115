package gc

import (
	"context"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.Main(m) }

// Most tests use these kinds. A world can be without their definitions: see
// unserved.
const (
	things        = "things.example.com"
	clusterThings = "clusterthings.example.com"
)

func testKinds() []*kind.Kind {
	made := []*kind.Kind{
		{Group: "example.com", Name: "Thing", Plural: "things", Storage: things, Namespaced: true},
		{Group: "example.com", Name: "ClusterThing", Plural: "clusterthings", Storage: clusterThings},
	}
	for _, k := range made {
		k.Versions = []*kind.Version{{Kind: k, GVK: schema.GroupVersionKind{Group: k.Group, Version: "v1", Kind: k.Name}}}
	}
	return append(builtin.Kinds(), made...)
}

// unserved removes the definitions of the kinds.
func (w *world) unserved(storage ...string) {
	for _, s := range storage {
		w.kinds.Replace(map[string]*kind.Kind{s: nil})
	}
}

// world is a database with a store and a collector. Objects are named in
// short: "a" is the thing a in namespace n, "m/a" one in namespace m, "/a" a
// cluster-scoped one; "pods:a" is a pod. References go by these names.
type world struct {
	testing.TB
	db         *sqldb.DB
	store      *store.Store
	gc         *Collector
	kinds      *kind.Registry
	opts       Options
	stop       func()
	clock      *dbtest.Clock
	uids       map[string]types.UID // the newest object of each name
	named      map[types.UID]string
	archiveFor time.Duration // what the next start gives the store
	made       *int          // objects, for uids that are the same in every run
}

// each runs a test in a world on each of its engines.
func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db, Options{})) })
}

// both is each for what depends on locks: on both engines.
func both(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	dbtest.Both(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db, Options{})) })
}

func newWorld(t testing.TB, db *sqldb.DB, o Options) *world {
	t.Helper()
	return newWorldThat(t, db, o, 0)
}

// newArchivingWorld makes a world with an archive.
func newArchivingWorld(t testing.TB, db *sqldb.DB, o Options) *world {
	t.Helper()
	return newWorldThat(t, db, o, time.Hour)
}

func newWorldThat(t testing.TB, db *sqldb.DB, o Options, archiveFor time.Duration) *world {
	t.Helper()
	w := &world{
		TB: t, db: db, opts: o, archiveFor: archiveFor, kinds: kind.NewRegistry(testKinds()), clock: dbtest.NewClock(),
		uids: map[string]types.UID{}, named: map[types.UID]string{}, made: new(int),
	}
	w.opts.Now = w.clock.Now
	if _, measured := t.(*testing.B); !measured && o.Budget == 0 {
		w.opts.Budget = firstBudget // in a test the real time decides nothing
	}
	w.opts.Logger = slog.New(slog.DiscardHandler)
	w.start()
	return w
}

// start opens a store and a collector, as a server does.
func (w *world) start() {
	w.Helper()
	w.store, w.stop = storetest.Start(w, store.Options{DB: w.db, Logger: w.opts.Logger, Now: w.clock.Now, PollEvery: time.Hour, Archive: store.ArchiveOptions{For: w.archiveFor}})
	var err error
	if w.gc, err = New(w.db, w.store, w.kinds, w.opts); err != nil {
		w.Fatal(err)
	}
}

// restart replaces store and collector by new ones on the same database.
func (w *world) restart() {
	w.Helper()
	w.stop()
	w.start()
}

// replica is another server on the same database.
func (w *world) replica() *world {
	w.Helper()
	other := *w
	other.start()
	return &other
}

func keyOf(name string) object.Key {
	kind, rest, isNamed := strings.Cut(name, ":")
	if !isNamed {
		kind, rest = things, name
	}
	namespace, short, found := strings.Cut(rest, "/")
	if !found {
		namespace, short = "n", rest
	}
	if namespace == "" && !isNamed {
		kind = clusterThings
	}
	return object.Key{Kind: kind, Namespace: namespace, Name: short}
}

func nameOf(k object.Key) string {
	name := k.Name
	if k.Namespace != "n" {
		name = k.Namespace + "/" + name
	}
	if k.Kind != things && k.Kind != clusterThings {
		name = k.Kind + ":" + name
	}
	return name
}

// option changes an object before it is created.
type option func(w *world, m *metav1.ObjectMeta)

// owned adds references; a name that ends in "^" blocks the owner's deletion.
func owned(owners ...string) option {
	return func(w *world, m *metav1.ObjectMeta) {
		for _, owner := range owners {
			name, blocks := strings.CutSuffix(owner, "^")
			m.OwnerReferences = append(m.OwnerReferences, w.reference(name, blocks))
		}
	}
}

// reference returns a reference to the newest object of a name, or to a uid that never
// existed.
func (w *world) reference(name string, blocks bool) metav1.OwnerReference {
	key := keyOf(name)
	r := metav1.OwnerReference{Name: key.Name, UID: w.uids[name]}
	for _, k := range testKinds() {
		if k.Storage == key.Kind {
			r.Kind, r.APIVersion = k.Name, k.Versions[0].GVK.GroupVersion().String()
			break
		}
	}
	if r.UID == "" {
		r.UID = types.UID("never-" + name)
		w.named[r.UID] = "never-" + name
	}
	if blocks {
		r.BlockOwnerDeletion = &blocks
	}
	return r
}

func finalizers(names ...string) option {
	return func(_ *world, m *metav1.ObjectMeta) { m.Finalizers = names }
}

// add creates an object. Its body has the fields given as JSON after meta.
func (w *world) add(name string, options ...option) types.UID {
	w.Helper()
	return w.addBody(name, `,"value":"x"`, options...)
}

func (w *world) addBody(name, fields string, options ...option) types.UID {
	w.Helper()
	key := keyOf(name)
	*w.made++
	r := storetest.Object(w, key, fields, func(m *metav1.ObjectMeta) {
		m.UID, m.Generation = types.UID(fmt.Sprintf("uid-%05d", *w.made)), 1
		for _, o := range options {
			o(w, m)
		}
	})
	uid := storetest.Create(w, w.store, r).UID
	w.uids[name], w.named[uid] = uid, name
	return uid
}

// update changes the metadata of an object, and removes it when the change
// took the last thing that held it.
func (w *world) update(name string, options ...option) {
	w.Helper()
	w.updateBody(name, func(body []byte) []byte { return body }, options...)
}

func (w *world) updateBody(name string, change func([]byte) []byte, options ...option) {
	w.Helper()
	key := keyOf(name)
	o, err := w.store.Get(context.Background(), key)
	if err != nil {
		w.Fatalf("get %s: %v", name, err)
	}
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		w.Fatal(err)
	}
	for _, f := range options {
		f(w, &m)
	}
	body, err := object.WithMeta(change(o.Body), m)
	if err != nil {
		w.Fatal(err)
	}
	_, err = w.store.Update(context.Background(), store.UpdateRequest{
		Key: key, IfRevision: o.Revision, Meta: m, Body: body, Remove: lifecycle.RemoveNow(body, m, w.rules(key.Kind)),
	})
	if err != nil {
		w.Fatalf("update %s: %v", name, err)
	}
}

func (w *world) rules(storage string) lifecycle.Rules {
	return w.kinds.Snapshot().Rules(storage)
}

const (
	background = metav1.DeletePropagationBackground
	foreground = metav1.DeletePropagationForeground
	orphan     = metav1.DeletePropagationOrphan
)

// delete deletes an object as a client does.
func (w *world) delete(name string, policy metav1.DeletionPropagation) {
	w.Helper()
	w.deleteWith(name, metav1.DeleteOptions{PropagationPolicy: &policy})
}

func (w *world) deleteWith(name string, options metav1.DeleteOptions) {
	w.Helper()
	key := keyOf(name)
	_, err := w.store.Delete(context.Background(), store.DeleteRequest{Key: key, Options: options, Rules: w.rules(key.Kind)})
	if err != nil {
		w.Fatalf("delete %s: %v", name, err)
	}
}

// turn is one turn of the collector, in which nothing fails.
func (w *world) turn() review.Result {
	w.Helper()
	r, err := w.gc.RunOne(context.Background())
	if err != nil {
		w.Fatalf("turn: %v", err)
	}
	if r.Failed > 0 {
		w.Fatalf("a review failed: %+v\n%s", r, w.queue())
	}
	return r
}

// drain takes turns until nothing is due.
func (w *world) drain() {
	w.Helper()
	for range 1000 {
		if r := w.turn(); r.Claimed == 0 {
			return
		}
	}
	w.Fatalf("the collector does not become idle:\n%s", w.queue())
}

// row is an object as the database has it.
type row struct {
	key  object.Key
	meta metav1.ObjectMeta
	body []byte
}

func (w *world) rows() []row {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(context.Background(),
		`SELECT o.kind, o.namespace, o.name, c.body FROM objects o JOIN changes c ON c.revision = o.revision ORDER BY o.kind, o.namespace, o.name`)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	var out []row
	for rows.Next() {
		var r row
		if err := rows.Scan(&r.key.Kind, &r.key.Namespace, &r.key.Name, &r.body); err != nil {
			w.Fatal(err)
		}
		if r.meta, err = object.ParseMeta(r.body); err != nil {
			w.Fatal(err)
		}
		out = append(out, r)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return out
}

// state is what exists: "a!(orphan) b<a,c" is a DELETING a with a finalizer,
// and b with two owners. Events are left out.
func (w *world) state() string {
	w.Helper()
	var parts []string
	for _, r := range w.rows() {
		if r.key.Kind != "events" {
			parts = append(parts, w.describe(r))
		}
	}
	slices.Sort(parts)
	return strings.Join(parts, " ")
}

func (w *world) describe(r row) string {
	text := nameOf(r.key)
	if r.meta.DeletionTimestamp != nil {
		text += "!"
	}
	if len(r.meta.Finalizers) > 0 {
		text += "(" + strings.Join(r.meta.Finalizers, ",") + ")"
	}
	var owners []string
	for _, o := range r.meta.OwnerReferences {
		name := w.named[o.UID]
		if w.uids[name] != o.UID && !strings.HasPrefix(name, "never-") {
			name = "old-" + name
		}
		owners = append(owners, name)
	}
	if len(owners) > 0 {
		text += "<" + strings.Join(owners, ",")
	}
	return text
}

// want compares the state.
func (w *world) want(state string) {
	w.Helper()
	if got := w.state(); got != state {
		w.Errorf("got  %s\nwant %s\nqueue: %s", got, state, w.queue())
	}
}

// queue is the rows of the queue: "a owner_removed; b deleting".
func (w *world) queue() string {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(context.Background(),
		`SELECT uid, event, claim_token IS NOT NULL, coalesce(last_error, '') FROM gc_object_reviews ORDER BY event, uid`)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	var parts []string
	for rows.Next() {
		var uid, event, lastError string
		var claimed bool
		if err := rows.Scan(&uid, &event, &claimed, &lastError); err != nil {
			w.Fatal(err)
		}
		text := w.named[types.UID(uid)] + " " + event
		if claimed {
			text += " claimed"
		}
		if lastError != "" {
			text += ": " + lastError
		}
		parts = append(parts, text)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return strings.Join(parts, "; ")
}

func (w *world) wantQueue(want string) {
	w.Helper()
	if got := w.queue(); got != want {
		w.Errorf("queue: got %q, want %q", got, want)
	}
}

// addNamespace creates a Namespace as the API server does.
func (w *world) addNamespace(name string, more ...string) {
	w.Helper()
	held := append([]string{`"kubernetes"`}, more...)
	w.addBody("namespaces:/"+name, `,"spec":{"finalizers":[`+strings.Join(held, ",")+`]},"status":{"phase":"Active"}`)
}

// claim marks the queue's rows as being under review.
func (w *world) claim() {
	w.Helper()
	w.exec(`UPDATE gc_object_reviews SET claim_token = 'token', claim_until = $1`, w.clock.Now().Add(time.Hour).UnixMilli())
}

// exec changes the database without the store.
func (w *world) exec(statement string, args ...any) {
	w.Helper()
	dbtest.NewSQL(w, w.db).Exec(statement, args...)
}

// observe has a controller report the generation that it has seen.
func (w *world) observe(name string, generation int) {
	w.Helper()
	w.updateBody(name, func(body []byte) []byte {
		return regexp.MustCompile(`"observedGeneration":\d+`).ReplaceAll(body, fmt.Appendf(nil, `"observedGeneration":%d`, generation))
	})
}
