package gc

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

var (
	seedFlag = flag.Uint64("seed", 0, "run only this seed of the random tests")
	// The usual seeds are always the same ones, so that a failure is caused by the change and not by chance.
	usualSeeds = flag.Uint64("seeds", 2, "how many seeds, from 1, each random test tries")
	timeFlag   = flag.Duration("random", 0, "how long each random test tries new seeds on each engine, after the usual ones")
)

// randomSteps is the length of a script.
const randomSteps = 60

// mode is what happens between the steps of a script.
type mode int

const (
	restsAlways   mode = iota + 1 // the collector comes to rest after each step
	stopsAnywhere                 // it is stopped and restarted anywhere
	losesRows                     // and rows of its queue get lost
)

// script is a random life of a world. The same seed is the same script, on each
// engine: what it does next depends on the model and on chance only, and the
// uids are those of a counter.
type script struct {
	*world
	*rand.Rand
	model  *model
	mode   mode
	served bool // the definitions of the kinds are there
	steps  []string
	lost   int            // rows of the queue
	client map[int64]bool // revisions that a client made
}

func newScript(w *world, seed uint64, mode mode) *script {
	s := &script{world: w, Rand: rand.New(rand.NewPCG(seed, 1)), model: newModel(), mode: mode, served: seed%3 != 0, client: map[int64]bool{}}
	if !s.served {
		w.unserved(things, clusterThings)
	}
	w.named["never-was"] = "never-was"
	w.uids["never-was"] = "never-was"
	return s
}

// note does a client's step and remembers its revisions.
func (s *script) note(step string, do func()) {
	s.Helper()
	s.steps = append(s.steps, step)
	before := s.store.Revision()
	do()
	for r := before + 1; r <= s.store.Revision(); r++ {
		s.client[r] = true
	}
}

// run plays the script. The model does what the clients do, and then follows
// the database.
func (s *script) run() {
	s.Helper()
	for _, ns := range []string{"n", "m"} {
		s.note("namespace "+ns, func() { s.addNamespace(ns) })
		s.model.objects["namespaces:/"+ns] = &modelObject{name: "namespaces:/" + ns, namespaced: true}
	}
	for i := range randomSteps {
		s.step(i)
		s.compare()
		s.collect()
		if s.Failed() {
			return
		}
	}
	for _, name := range s.model.names() { // every controller does its work in the end
		if o := s.model.objects[name]; o != nil && o.has(held) {
			s.release(name)
			s.collect()
		}
	}
	if s.mode == losesRows {
		s.lose(2)
		s.scan()
	}
	s.drain()
	s.follow()
	s.checkRest()
}

// lose deletes rows of the queue, each with a probability of 1/n.
func (s *script) lose(of int) {
	s.Helper()
	rows, err := s.db.Reader().QueryContext(context.Background(), `SELECT uid FROM gc_object_reviews ORDER BY uid`)
	if err != nil {
		s.Fatal(err)
	}
	var lost []string
	for rows.Next() {
		var uid string
		if err := rows.Scan(&uid); err != nil {
			s.Fatal(err)
		}
		if s.IntN(of) == 0 {
			lost = append(lost, uid)
		}
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		s.Fatal(err)
	}
	for _, uid := range lost {
		s.steps = append(s.steps, "lose the review of "+s.named[types.UID(uid)])
		s.exec(`DELETE FROM gc_object_reviews WHERE uid = $1`, uid)
	}
	s.lost += len(lost)
}

func (s *script) scan() {
	s.Helper()
	s.steps = append(s.steps, "scan")
	if _, err := s.gc.Scan(context.Background()); err != nil {
		s.Fatal(err)
	}
}

func (s *script) collect() {
	s.Helper()
	if s.IntN(10) == 0 {
		s.steps = append(s.steps, "restart")
		s.restart()
	}
	if s.mode == losesRows {
		s.lose(3)
		if s.IntN(5) == 0 {
			s.scan()
		}
	}
	if s.mode == restsAlways {
		s.drain()
		s.follow()
		s.checkRest()
		return
	}
	for range s.IntN(3) {
		s.steps = append(s.steps, "turn")
		s.turn()
	}
	s.follow()
}

// compare: the client's step did what it does in the model.
func (s *script) compare() {
	s.Helper()
	if got, want := s.read().state(), s.model.state(); got != want {
		s.Errorf("got  %s\nwant %s", got, want)
	}
}

// step is something that a client does.
func (s *script) step(i int) {
	s.Helper()
	names := s.model.names()
	if len(names) == 0 {
		s.create(i)
		return
	}
	name := names[s.IntN(len(names))]
	o := s.model.objects[name]
	namespace := strings.HasPrefix(name, "namespaces:")
	switch p := s.IntN(100); {
	case p < 45 || namespace && p < 97:
		s.create(i)
	case p < 75:
		policy := []metav1.DeletionPropagation{background, foreground, orphan}[s.IntN(3)]
		s.note(fmt.Sprintf("delete %s %s", name, policy), func() { s.delete(name, policy) })
		s.model.delete(name, policy)
	case p < 90 && o.has(held):
		s.release(name)
	case p < 97:
		refs := s.references(names)
		s.note(fmt.Sprintf("own %s %v", name, refs), func() {
			s.update(name, func(w *world, m *metav1.ObjectMeta) { m.OwnerReferences = nil }, ownedBy(refs))
		})
		o.owners = refs
	case namespace:
		s.note("delete "+name, func() { s.delete(name, background) })
		s.model.delete(name, background)
	}
}

func (s *script) release(name string) {
	s.Helper()
	s.note("release "+name, func() {
		s.update(name, func(_ *world, m *metav1.ObjectMeta) {
			m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool { return f == held })
		})
	})
	s.model.become(name, s.model.objects[name].without(held).orGone())
}

// create adds an object with a name of its own.
func (s *script) create(i int) {
	s.Helper()
	namespace := []string{"n", "n", "n", "m", ""}[s.IntN(5)]
	if ns := s.model.objects["namespaces:/"+namespace]; namespace != "" && (ns == nil || ns.deleting) {
		namespace = ""
	}
	name := fmt.Sprintf("o%02d", i)
	if namespace != "n" {
		name = namespace + "/" + name
	}
	if namespace != "" && s.IntN(5) == 0 {
		name = "pods:" + name
	}
	var holds []string
	if s.IntN(3) == 0 {
		holds = append(holds, held)
	}
	if policy := s.IntN(16); policy < 2 {
		holds = append(holds, []string{metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents}[policy])
	}
	refs := s.references(s.model.names())
	s.note(fmt.Sprintf("create %s %v %v", name, refs, holds), func() { s.addBody(name, `,"spec":{}`, ownedBy(refs), finalizers(holds...)) })
	s.model.objects[name] = &modelObject{name: name, owners: refs, finalizers: holds}
}

// references picks up to three owners, some of which may be gone.
func (s *script) references(names []string) []modelRef {
	var refs []modelRef
	for range min(s.IntN(4), len(names)) {
		name := names[s.IntN(len(names))]
		if s.IntN(8) == 0 {
			name = "o00" // the first, which is often gone
			if s.uids[name] == "" {
				continue
			}
		}
		ref := modelRef{owner: name, blocks: s.IntN(2) == 0}
		switch p := s.IntN(24); {
		case p == 0:
			ref.owner, ref.as = "never-was", unknownOne
		case p == 1:
			ref.as = unknownOne
		case p == 2 && s.served:
			ref.as = wrongKind
		case p == 3:
			ref.as = wrongName
		}
		if !s.served && ref.as == wrongName {
			ref.as = rightly // of an unserved kind, that is unknown
		}
		if !slices.ContainsFunc(refs, func(r modelRef) bool { return r.owner == ref.owner }) {
			refs = append(refs, ref)
			if s.IntN(8) == 0 && ref.owner != "never-was" && (ref.as == rightly || ref.as == unknownOne) { // a second reference with the same uid
				refs = append(refs, modelRef{owner: ref.owner, blocks: s.IntN(2) == 0, as: []misnaming{unknownOne, rightly}[s.IntN(2)]})
			}
		}
	}
	return refs
}

func ownedBy(refs []modelRef) option {
	return func(w *world, m *metav1.ObjectMeta) {
		for _, r := range refs {
			ref := w.reference(r.owner, r.blocks)
			switch r.as {
			case wrongName:
				ref.Name = "not-" + ref.Name
			case wrongKind:
				ref.APIVersion, ref.Kind = "v1", "ConfigMap"
			case unknownOne:
				ref.APIVersion, ref.Kind = "example.org/v1", "Gadget"
			}
			m.OwnerReferences = append(m.OwnerReferences, ref)
		}
	}
}

// follow sets the model to what the database has.
func (s *script) follow() {
	s.Helper()
	s.model = s.read()
}

// read is what the database has, as a model.
func (s *script) read() *model {
	s.Helper()
	m := newModel()
	for _, r := range s.rows() {
		if r.key.Kind == "events" {
			continue
		}
		o := s.modelOf(r.key, r.body)
		m.objects[o.name] = o
	}
	return m
}

// TestModel: after every step of a client the collector comes to rest where the
// model has nothing left to do, by steps that the model allows (history_test.go),
// and both engines did the same.
func TestModel(t *testing.T) { runSeeds(t, restsAlways) }

// TestInterleaved is the same when clients do not wait for the collector, and it
// is stopped and restarted anywhere.
func TestInterleaved(t *testing.T) { runSeeds(t, stopsAnywhere) }

// TestScanRestoresLostRows: random rows of the queue get lost, and a scan finds
// all that they stood for. The collector then rests where the model has nothing
// left to do, which is where it would have come to rest with them.
func TestScanRestoresLostRows(t *testing.T) { runSeeds(t, losesRows) }

func runSeeds(t *testing.T, mode mode) {
	databases := map[sqldb.Engine]*sqldb.DB{}
	for _, engine := range dbtest.Engines() {
		databases[engine] = dbtest.OpenDB(t, engine)
	}
	run := func(seed uint64) bool {
		return t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) { runSeed(t, databases, seed, mode) })
	}
	if *seedFlag != 0 {
		run(*seedFlag)
		return
	}
	for _, seed := range keptSeeds(t) {
		run(seed)
	}
	for seed := range *usualSeeds {
		run(seed + 1)
	}
	for deadline := time.Now().Add(*timeFlag * time.Duration(len(databases))); time.Now().Before(deadline); {
		if seed := rand.Uint64N(1_000_000_000); !run(seed) {
			keepSeed(t, seed)
			return
		}
	}
}

func runSeed(t *testing.T, databases map[sqldb.Engine]*sqldb.DB, seed uint64, mode mode) {
	histories := map[sqldb.Engine]string{}
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			s := newScript(newArchivingWorld(t, wiped(t, databases[engine]), Options{Budget: 1 + int(seed%7), OrphanWait: -1}), seed, mode)
			defer func() {
				if t.Failed() {
					t.Logf("seed %d: run it again with -seed %d\n%s", seed, seed, strings.Join(s.steps, "\n"))
				}
			}()
			s.run()
			s.checkHistory()
			if mode == losesRows && s.lost == 0 {
				t.Error("no row was lost: this proves nothing")
			}
			histories[engine] = s.history()
		})
	}
	if mode == losesRows {
		return // which rows there are to lose is a matter of order, and so is what follows
	}
	if !t.Failed() && histories[sqldb.SQLite] != histories[sqldb.Postgres] {
		t.Errorf("seed %d: the engines differ\nsqlite:\n%s\npostgres:\n%s", seed, histories[sqldb.SQLite], histories[sqldb.Postgres])
	}
}

// wiped empties a database, which is faster than creating one.
func wiped(t *testing.T, db *sqldb.DB) *sqldb.DB {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback()
	var b sqldb.Batch
	b.Exec(`DELETE FROM objects`)
	b.Exec(`DELETE FROM changes`)
	b.Exec(`DELETE FROM gc_object_reviews`)
	b.Exec(`DELETE FROM archive`)
	b.Exec(`UPDATE revision SET current = 1, compacted = 0`)
	if err := tx.Send(t.Context(), &b); err != nil {
		t.Fatal(err)
	}
	if err := tx.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db
}

const seedFile = "seeds.txt"

// keptSeeds failed once, and are run every time.
func keptSeeds(t *testing.T) []uint64 {
	data, err := os.ReadFile(filepath.Join("testdata", seedFile))
	if err != nil {
		t.Fatal(err)
	}
	var seeds []uint64
	for line := range strings.Lines(string(data)) {
		text, _, _ := strings.Cut(line, "#")
		if text = strings.TrimSpace(text); text == "" {
			continue
		}
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatalf("%s: %v", seedFile, err)
		}
		seeds = append(seeds, seed)
	}
	return seeds
}

func keepSeed(t *testing.T, seed uint64) {
	f, err := os.OpenFile(filepath.Join("testdata", seedFile), os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		t.Error(err)
		return
	}
	_, err = fmt.Fprintf(f, "%d # %s\n", seed, t.Name())
	if err := f.Close(); err != nil {
		t.Error(err)
	}
	if err != nil {
		t.Error(err)
	}
}

// history is every change, in order.
func (w *world) history() string {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(context.Background(), `SELECT type, kind, namespace, name FROM changes ORDER BY revision`)
	if err != nil {
		w.Fatal(err)
	}
	defer rows.Close()
	var lines []string
	for rows.Next() {
		var kind int
		var r row
		if err := rows.Scan(&kind, &r.key.Kind, &r.key.Namespace, &r.key.Name); err != nil {
			w.Fatal(err)
		}
		if r.key.Kind != "events" {
			lines = append(lines, fmt.Sprintf("%d %s", kind, nameOf(r.key)))
		}
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	return strings.Join(lines, "\n")
}
