package mesh

import (
	"crypto/rand"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// world is a mesh over a fresh database, with a clock that the test moves. Its
// reviews run when the test says so. There is a project "shop" and one "bank".
type world struct {
	testing.TB
	url   string
	db    *sqldb.DB
	store *store.Store
	mesh  *Mesh
	clock *dbtest.Clock
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) { test(newWorld(t, engine)) })
	}
}

func newWorld(t testing.TB, engine sqldb.Engine) *world {
	t.Helper()
	w := &world{TB: t, url: dbtest.Open(t, engine), clock: dbtest.NewClock()}
	w.db = dbtest.Connect(t, w.url)
	w.store = w.openStore(w.db)
	w.mesh = w.newMesh(w.db, w.store)
	w.createNamespace("shop")
	w.createNamespace("bank")
	return w
}

// openStore is a replica's store.
func (w *world) openStore(db *sqldb.DB) *store.Store {
	w.Helper()
	return storetest.Run(w, store.Options{DB: db, Now: w.clock.Now, Archive: store.ArchiveOptions{For: time.Hour}})
}

func (w *world) newMesh(db *sqldb.DB, st *store.Store) *Mesh {
	w.Helper()
	m, err := New(db, st, kind.NewRegistry(nil), Options{Now: w.clock.Now, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		w.Fatal(err)
	}
	return m
}

// replica is another process's mesh on PostgreSQL. SQLite is for one process:
// there it is a second mesh in that one.
func (w *world) replica() *Mesh {
	w.Helper()
	if w.db.Engine() == sqldb.SQLite {
		return w.newMesh(w.db, w.store)
	}
	db := dbtest.Connect(w, w.url)
	return w.newMesh(db, w.openStore(db))
}

func (w *world) createNamespace(name string) {
	w.Helper()
	storetest.Create(w, w.store, storetest.Namespace(w, name))
}

// mint creates a token for project shop, as an operator does.
func (w *world) mint() v1alpha1.Token {
	w.Helper()
	t, err := w.mesh.Mint(w.Context(), Order{Project: "shop", TTL: time.Hour, Actor: "jo"})
	if err != nil {
		w.Fatal(err)
	}
	return t
}

// request is an enrolment by a token, with a fresh nonce and secret.
func request(token, name string) v1alpha1.EnrolRequest {
	return v1alpha1.EnrolRequest{Token: token, Nonce: rand.Text(), Secret: newSecret(), Name: name, Address: "192.0.2.1:65535"}
}

func newSecret() string { return (rand.Text() + rand.Text())[:43] }

// enrolled is a node that has enrolled.
type enrolled struct {
	Node
	token      v1alpha1.Token
	credential string
}

func (w *world) enrol(name string) enrolled {
	w.Helper()
	return w.enrolBy(w.mint(), name)
}

func (w *world) enrolBy(t v1alpha1.Token, name string) enrolled {
	w.Helper()
	r := request(t.Text, name)
	a, err := w.mesh.Enrol(w.Context(), r)
	if err != nil {
		w.Fatalf("enrol %s: %v", name, err)
	}
	return enrolled{Node{a.UID, a.Project, a.Name}, t, v1alpha1.Credential(a.UID, r.Secret)}
}

// denied checks that an error is a refusal for this reason; empty means no error.
func (w *world) denied(what string, err error, reason string) {
	w.Helper()
	var d *Denial
	switch {
	case reason == "" && err != nil:
		w.Errorf("%s: %v", what, err)
	case reason != "" && (!errors.As(err, &d) || d.Reason != reason):
		w.Errorf("%s: %v, want %s", what, err, reason)
	}
}

// review runs reviews until none is due.
func (w *world) review() {
	w.Helper()
	w.reviewBy(w.mesh.engine)
}

func (w *world) reviewBy(engine *review.Engine) {
	w.Helper()
	for range 100 {
		r, err := engine.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if r.Failed > 0 {
			w.Fatalf("a review failed: %s", w.reviewError())
		}
		if r.Claimed == 0 {
			return
		}
	}
	w.Fatal("reviews do not end")
}

func (w *world) reviewError() (text string) {
	if _, err := w.db.Row(w.Context(), `SELECT last_error FROM mesh_node_reviews WHERE last_error IS NOT NULL LIMIT 1`, nil, &text); err != nil {
		w.Fatal(err)
	}
	return text
}

// object reads a node's object; nil if it is gone.
func (w *world) object(name string) *v1alpha1.MeshNode {
	w.Helper()
	o, err := w.store.Get(w.Context(), object.Key{Kind: storage, Namespace: "shop", Name: name})
	if object.Is(err, object.NotFound) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	n, err := decodeNode(o.Body)
	if err != nil {
		w.Fatal(err)
	}
	return n
}

// delete asks for a node's deletion as kubectl would.
func (w *world) delete(name string) {
	w.Helper()
	if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: object.Key{Kind: storage, Namespace: "shop", Name: name}, Actor: "jo"}); err != nil {
		w.Fatalf("delete %s: %v", name, err)
	}
}

func (w *world) state(t v1alpha1.Token) string {
	w.Helper()
	s, err := w.mesh.TokenState(w.Context(), t.ID)
	if err != nil {
		w.Fatal(err)
	}
	return s
}

// shown is a token as a list shows it.
func (w *world) shown(t v1alpha1.Token) v1alpha1.Token {
	w.Helper()
	list, err := w.mesh.Tokens(w.Context(), t.Project)
	if err != nil {
		w.Fatal(err)
	}
	for _, other := range list.Items {
		if other.ID == t.ID {
			return other
		}
	}
	w.Fatalf("token %s is not listed", t.ID)
	return v1alpha1.Token{}
}

func (w *world) registered(t v1alpha1.Token) bool {
	w.Helper()
	n, err := w.mesh.node(w.Context(), nodeByToken, t.ID)
	if err != nil {
		w.Fatal(err)
	}
	return n != nil
}

// check verifies the invariants: each row has its object, unless that was removed by
// force; each object that is not "Left" has its row; each row has a consumed token.
func (w *world) check() {
	w.Helper()
	for what, statement := range map[string]string{
		"objects without a row": `SELECT o.name FROM objects o WHERE o.kind = 'meshnodes.mesh.exeunt.dev'
			AND NOT EXISTS (SELECT 1 FROM mesh_nodes n WHERE n.uid = o.uid)`,
		"rows without an object": `SELECT n.name FROM mesh_nodes n WHERE NOT EXISTS (SELECT 1 FROM objects o WHERE o.uid = n.uid)`,
		"rows without a consumed token": `SELECT n.name FROM mesh_nodes n
			WHERE NOT EXISTS (SELECT 1 FROM bootstrap_tokens t WHERE t.id = n.token AND t.state = 'consumed')`,
		"consumed tokens whose node left unnoticed": `SELECT t.id FROM bootstrap_tokens t WHERE t.state = 'consumed' AND t.left_at = 0
			AND NOT EXISTS (SELECT 1 FROM mesh_nodes n WHERE n.token = t.id)`,
		"draining nodes without a review": `SELECT n.name FROM mesh_nodes n JOIN objects o ON o.uid = n.uid
			WHERE (n.ready OR o.deletion_time IS NOT NULL) AND NOT EXISTS (SELECT 1 FROM mesh_node_reviews q WHERE q.uid = n.uid)`,
	} {
		if names := w.names(statement); len(names) > 0 {
			w.Errorf("%s: %s", what, strings.Join(names, ", "))
		}
	}
}

func (w *world) names(statement string) (out []string) {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(w.Context(), statement)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var name string
		if err := rows.Scan(&name); err != nil {
			w.Fatal(err)
		}
		out = append(out, name)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return out
}

// concurrently runs functions at once and returns their errors.
func concurrently(fns ...func() error) []error {
	errs := make([]error, len(fns))
	start := make(chan struct{})
	var running sync.WaitGroup
	for i, fn := range fns {
		running.Go(func() {
			<-start
			errs[i] = fn()
		})
	}
	close(start)
	running.Wait()
	return errs
}
