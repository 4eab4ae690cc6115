package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/seal"
)

// past is a store whose states a model remembers.
type past struct {
	t     *testing.T
	s     *Store
	rng   *rand.Rand
	clock *clock
	// states has all objects after each revision, as line writes them; authors who made it; at when.
	states  []map[object.Key]string
	authors []string
	at      []time.Time
	opts    Options
	stop    func()
	frozen  bool // the clock stands still
}

func newPast(t *testing.T, db *sqldb.DB, seed uint64) *past {
	p := &past{t: t, rng: rand.New(rand.NewPCG(seed, 0)), clock: newClock()}
	p.opts = Options{DB: db, Now: p.clock.now, CompactEvery: time.Hour, History: HistoryOptions{For: 24 * time.Hour}, Archive: ArchiveOptions{For: time.Hour}}
	p.start()
	p.states, p.authors, p.at = []map[object.Key]string{{}, {}}, []string{"", ""}, []time.Time{{}, {}}
	if p.s.Revision() != 1 {
		t.Fatal("the database is not empty")
	}
	return p
}

func (p *past) start() {
	r := run(p.t, p.opts)
	p.s, p.stop = r.Store, r.stop
}

// restart stops the store, and opens it again on the same database.
func (p *past) restart() {
	p.stop()
	p.start()
}

// wrote remembers the state after a write.
func (p *past) wrote(author Author) {
	for revision := int64(len(p.states)); revision <= p.s.Revision(); revision++ {
		next := map[object.Key]string{}
		for _, kind := range []string{things, "others.example.com", object.Namespaces} {
			l, err := p.s.List(p.t.Context(), ListRequest{Kind: kind, Revision: revision})
			if err != nil {
				p.t.Fatal(err)
			}
			for l.Next() {
				o := l.Object()
				next[o.Key] = line(o)
			}
			if l.Err() != nil {
				p.t.Fatal(l.Err())
			}
		}
		p.states, p.authors, p.at = append(p.states, next), append(p.authors, author.String()), append(p.at, p.clock.now())
	}
}

// step does one random write, as one random author.
func (p *past) step() {
	author := Author{User: fmt.Sprint("user-", p.rng.IntN(3)), Client: "kubectl/v1", Verb: "patch", RequestID: fmt.Sprint("request-", len(p.states))}
	ctx := WithAuthor(p.t.Context(), author)
	key := object.Key{Kind: things, Namespace: fmt.Sprint("ns-", p.rng.IntN(2)), Name: fmt.Sprint("web-", p.rng.IntN(5))}
	if p.rng.IntN(5) == 0 {
		key.Kind = "others.example.com"
	}
	o, err := p.s.Get(p.t.Context(), key)
	switch {
	case object.Is(err, object.NotFound):
		r := newRequest(key.Namespace, key.Name)
		r.Key = key
		_, err = p.s.Create(ctx, r)
	case err != nil:
	case p.rng.IntN(5) == 0:
		_, err = p.s.Delete(ctx, DeleteRequest{Key: key, Actor: "someone"})
	default:
		m, parseErr := object.ParseMeta(o.Body)
		value := strings.Repeat(fmt.Sprint(p.rng.IntN(1000)), 1+p.rng.IntN(40))
		_, err = p.s.Update(ctx, UpdateRequest{Key: key, IfRevision: o.Revision, Meta: m, Body: bodyOf(m, value)})
		err = errors.Join(err, parseErr)
	}
	if err != nil {
		p.t.Fatal(err)
	}
	p.wrote(author)
	if !p.frozen { // some changes have one time, others are the first or the last of a second
		p.clock.move(time.Duration(p.rng.IntN(4)) * 500 * time.Millisecond)
	}
}

// checkLists compares lists at a revision with the model. It reports whether a state was refused.
func (p *past) checkLists(revision int64, kind string) (refused bool) {
	p.t.Helper()
	for _, namespace := range []string{"", "ns-0", "ns-1"} {
		var lines []string
		for key, l := range p.states[revision] {
			if key.Kind == kind && (namespace == "" || key.Namespace == namespace) {
				lines = append(lines, l)
			}
		}
		slices.Sort(lines)
		got, err := p.listAt(ListRequest{Kind: kind, Namespace: namespace, Revision: revision, Past: true})
		if object.Is(err, object.Expired) {
			refused = true
			continue
		}
		slices.Sort(got)
		if err != nil || !cmp.Equal(lines, got) {
			p.t.Fatalf("%s in %q at %d: %v\n%s", kind, namespace, revision, err, cmp.Diff(lines, got))
		}
	}
	return refused
}

// checkAll: every state, and every object, is as it was, or is refused. It looks at some of them, with -short at a few.
func (p *past) checkAll() {
	p.t.Helper()
	for revision := int64(2); revision < int64(len(p.states)); revision += 1 + p.rng.Int64N(fewer(24, 6)) {
		p.checkLists(revision, things)
		p.checkLists(revision, "others.example.com")
		key := object.Key{Kind: things, Namespace: fmt.Sprint("ns-", p.rng.IntN(2)), Name: fmt.Sprint("web-", p.rng.IntN(5))}
		if p.rng.IntN(2) == 0 {
			key.Kind = "others.example.com"
		}
		o, err := p.s.GetAt(p.t.Context(), key, revision)
		if want := p.states[revision][key]; !object.Is(err, object.Expired) && (want == "" && !object.Is(err, object.NotFound) || want != "" && (err != nil || line(o) != want)) {
			p.t.Fatalf("%s at %d is %s (%v), and was %s", key, revision, line(o), err, want)
		}
	}
}

// fewer is how much less a test does with -short: what it is then, and what otherwise.
func fewer(short, long int64) int64 {
	if testing.Short() {
		return short
	}
	return long
}

// check compares what the store says of the past with the model, at a revision and at its time.
func (p *past) check(revision int64) {
	p.t.Helper()
	want := p.states[revision]
	for _, kind := range []string{things, "others.example.com"} {
		if p.checkLists(revision, kind) {
			p.t.Fatalf("%s at %d are refused", kind, revision)
		}
	}
	for _, namespace := range []string{"ns-0", "ns-1"} {
		for i := range 5 {
			key := object.Key{Kind: things, Namespace: namespace, Name: fmt.Sprint("web-", i)}
			o, err := p.s.GetAt(p.t.Context(), key, revision)
			if want[key] == "" {
				wantCode(p.t, err, object.NotFound)
			} else if err != nil || line(o) != want[key] {
				p.t.Fatalf("%s at %d is %s (%v), and was %s", key, revision, line(o), err, want[key])
			}
		}
	}
}

// listAt lists in pages of two.
func (p *past) listAt(r ListRequest) (lines []string, err error) {
	for r.Limit = 2; ; {
		l, err := p.s.List(p.t.Context(), r)
		if err != nil {
			return nil, err
		}
		for l.Next() {
			o := l.Object()
			lines = append(lines, line(o))
			r.AfterNamespace, r.AfterName = o.Namespace, o.Name
		}
		if l.Err() != nil || !l.More() {
			return lines, l.Err()
		}
	}
}

// checkTimes compares the revision of each time with the model.
func (p *past) checkTimes() {
	p.t.Helper()
	for revision := 2; revision < len(p.at); revision++ {
		want := revision
		for want+1 < len(p.at) && p.at[want+1].Unix() <= p.at[revision].Unix() {
			want++
		}
		got, err := p.s.RevisionAt(p.t.Context(), p.at[revision])
		if err != nil || got != int64(want) {
			p.t.Fatalf("the revision of %v is %d (%v), not %d", p.at[revision], got, err, want)
		}
	}
}

// checkVersions compares the versions of each name with the model.
func (p *past) checkVersions() {
	p.t.Helper()
	for i := range 5 {
		key := object.Key{Kind: things, Namespace: "ns-0", Name: fmt.Sprint("web-", i)}
		var want, got []string
		for revision := len(p.states) - 1; revision > 1; revision-- {
			if l := p.states[revision][key]; l != p.states[revision-1][key] {
				want = append(want, fmt.Sprintf("%d %d %s %q", revision, p.at[revision].UnixMilli(), l, p.authors[revision]))
			}
		}
		err := p.s.Versions(p.t.Context(), key, math.MaxInt64, func(uid string, v Version) bool {
			l := ""
			if v.Type != Removed {
				o := object.Object{Key: key, Revision: v.Revision, Body: v.Body}
				o.UID = metaUID(p.t, v.Body)
				l = line(o)
			}
			got = append(got, fmt.Sprintf("%d %d %s %q", v.Revision, v.At, l, v.Author))
			return true
		})
		if err != nil || !cmp.Equal(want, got) {
			p.t.Fatalf("versions of %s: %v\n%s", key, err, cmp.Diff(want, got))
		}
	}
}

// TestPastIsAsItWas: on random worlds, with compaction and restarts at random moments, every state, every time and every
// version is as a model that keeps all of them remembers it.
func TestPastIsAsItWas(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, seed)
		for _, name := range []string{"ns-0", "ns-1"} {
			createNamespace(t, p.s, name)
		}
		p.wrote(Author{})
		for range 300 {
			p.step()
			switch p.rng.IntN(40) {
			case 0, 1:
				if err := p.s.compact(t.Context(), 1+p.rng.Int64N(p.s.Revision())); err != nil {
					t.Fatal(err)
				}
			case 2:
				if err := p.s.past.Expire(t.Context()); err != nil {
					t.Fatal(err)
				}
			case 3:
				p.restart()
			}
			if p.rng.IntN(10) == 0 {
				p.check(1 + p.rng.Int64N(p.s.Revision()))
			}
		}
		if err := p.s.compact(t.Context(), p.s.Revision()); err != nil {
			t.Fatal(err)
		}
		for revision := int64(2); revision < int64(len(p.states)); revision += 7 {
			p.check(revision)
		}
		p.checkTimes()
		p.checkVersions()
		_, err := p.s.List(t.Context(), ListRequest{Kind: things, Revision: p.s.Revision() - 1})
		wantCode(t, err, object.Expired) // without Past, compaction's contract holds
	})
}

// TestHistoryLeaves: of what leaves by age or by size, states are refused and not incomplete; other namespaces keep
// theirs, and the counters and the sums say what left.
func TestHistoryLeaves(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 1)
		createNamespace(t, p.s, "ns-0", func(m *metav1.ObjectMeta) { m.Annotations = map[string]string{lifecycle.HistoryFor: "1h"} })
		createNamespace(t, p.s, "ns-1")
		p.wrote(Author{})
		for range 200 {
			p.step()
		}
		middle := p.s.Revision()
		p.clock.move(50 * time.Minute)
		p.frozen = true // what leaves by size is the oldest by its revisions too
		for range 100 {
			p.step()
		}
		if err := p.s.compact(t.Context(), p.s.Revision()); err != nil {
			t.Fatal(err)
		}
		p.check(middle)
		p.checkAll()
		p.checkBytes()
		p.clock.move(50 * time.Minute)
		if err := p.s.past.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.checkBytes()
		_, err := p.listAt(ListRequest{Kind: things, Namespace: "ns-0", Revision: 10, Past: true})
		wantCode(t, err, object.Expired)
		if _, err := p.listAt(ListRequest{Kind: things, Namespace: "ns-1", Revision: 10, Past: true}); err != nil {
			t.Errorf("a namespace that keeps its versions: %v", err)
		}
		if old, large := p.s.past.Left(); old == 0 || large != 0 {
			t.Errorf("%d versions left by age, %d by size", old, large)
		}
		p.check(p.s.Revision() - 1)
		p.checkAll()

		for ; p.s.past.Bytes() > 1000; p.checkAll() {
			p.s.past.MaxBytes = p.s.past.Bytes() * 3 / 4
			if err := p.s.past.Expire(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		p.s.past.MaxBytes = 1
		if err := p.s.past.Expire(t.Context()); err != nil {
			t.Fatal(err)
		}
		p.checkBytes()
		if _, large := p.s.past.Left(); large == 0 || p.s.past.Bytes() == 0 {
			t.Errorf("%d versions left by size, of %d bytes", large, p.s.past.Bytes())
		}
		if n := p.count(`SELECT count(*) FROM history`); n > 0 {
			t.Errorf("%d rows are left, also of objects that can be restored", n)
		}
		p.checkAll()
		_, err = p.listAt(ListRequest{Kind: things, Namespace: "ns-1", Revision: 10, Past: true})
		wantCode(t, err, object.Expired)
	})
}

// TestTimesLeave: marks and bounds from before the history leave, and no state of that time is answered.
func TestTimesLeave(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 7)
		createNamespace(t, p.s, "ns-0")
		createNamespace(t, p.s, "ns-1")
		p.wrote(Author{})
		for range 60 {
			p.step()
		}
		compactAll(t, p.s)
		p.check(5)
		err := p.s.Transact(t.Context(), func(tx *Tx) error {
			for i := range int64(1000) {
				tx.Defer(`INSERT INTO history_times (at, revision) VALUES ($1, 1)`, i)
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		old := p.at[5]
		p.clock.move(25 * time.Hour)
		if err := errors.Join(p.s.expiry.Run(t.Context()), p.s.past.Expire(t.Context())); err != nil {
			t.Fatal(err)
		}
		p.checkAll()
		if marks, bounds := p.count(`SELECT count(*) FROM history_times`), p.count(`SELECT count(*) FROM history_bounds WHERE bytes = 0`); marks > 1 || bounds > 1 {
			t.Errorf("%d marks and %d bounds are left", marks, bounds)
		}
		_, err = p.s.RevisionAt(t.Context(), old)
		wantCode(t, err, object.Expired)
		if !p.checkLists(5, things) {
			t.Error("a state of that time is answered")
		}
	})
}

func (p *past) count(query string) (n int64) {
	p.t.Helper()
	if _, err := p.opts.DB.Row(p.t.Context(), query, nil, &n); err != nil {
		p.t.Fatal(err)
	}
	return n
}

// checkBytes: the sums of the namespaces are those of their rows.
func (p *past) checkBytes() {
	p.t.Helper()
	sums := func(statement string) map[string]int64 {
		all := map[string]int64{}
		err := sqldb.Each(p.t.Context(), p.opts.DB, func(row sqldb.Row) error {
			var namespace string
			var bytes int64
			err := row.Scan(&namespace, &bytes)
			all[namespace] = bytes
			return err
		}, statement)
		if err != nil {
			p.t.Fatal(err)
		}
		maps.DeleteFunc(all, func(_ string, bytes int64) bool { return bytes == 0 })
		return all
	}
	rows := sums(`SELECT namespace, sum(length(body)) FROM history GROUP BY namespace`)
	if kept := sums(`SELECT namespace, bytes FROM history_bounds WHERE kind = '' AND namespace <> '*'`); !cmp.Equal(rows, kept) {
		p.t.Errorf("bytes of the rows and of the sums:\n%s", cmp.Diff(rows, kept))
	}
}

// TestHistoryOff: what is left out, or happens while the history is off, is refused and never wrong.
func TestHistoryOff(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 2)
		p.opts.History.Exclude = []string{"others.example.com"}
		p.restart()
		createNamespace(t, p.s, "ns-0")
		createNamespace(t, p.s, "ns-1")
		p.wrote(Author{})
		for range 60 {
			p.step()
		}
		first := p.s.Revision()
		compactAll(t, p.s)
		_, err := p.listAt(ListRequest{Kind: "others.example.com", Revision: 5, Past: true})
		wantCode(t, err, object.Expired)
		if p.checkLists(5, things) {
			t.Error("the kinds that are kept are refused")
		}
		p.checkAll()
		p.opts.History = HistoryOptions{}
		p.restart()
		for range 60 {
			p.step()
		}
		compactAll(t, p.s)
		p.opts.History.For = time.Hour
		p.restart()
		on := p.s.Revision()
		for range 60 {
			p.step()
		}
		compactAll(t, p.s)
		for _, revision := range []int64{5, first, on - 1} {
			_, err := p.listAt(ListRequest{Kind: things, Revision: revision, Past: true})
			wantCode(t, err, object.Expired)
		}
		for revision := on; revision < p.s.Revision(); revision += 5 {
			p.check(revision)
		}
		p.checkAll()
	})
}

func compactAll(t *testing.T, s *Store) {
	t.Helper()
	if err := s.compact(t.Context(), s.Revision()); err != nil {
		t.Fatal(err)
	}
}

// TestCompactionOfAnotherVersion: a replica of a version without history compacts; the states that it has dropped are
// refused, and the others are right.
func TestCompactionOfAnotherVersion(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 3)
		createNamespace(t, p.s, "ns-0")
		createNamespace(t, p.s, "ns-1")
		p.wrote(Author{})
		for range 40 {
			p.step()
		}
		compactAll(t, p.s)
		for range 40 {
			p.step()
		}
		lost := p.s.Revision() - 3
		err := p.s.Transact(t.Context(), func(tx *Tx) error {
			for _, statement := range []string{compactBodies, compactTombstones} {
				tx.Defer(statement, tx.moved, lost)
			}
			tx.Defer(`UPDATE revision SET compacted = $1`, lost)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for range 40 {
			p.step()
		}
		compactAll(t, p.s)
		_, err = p.listAt(ListRequest{Kind: things, Revision: lost - 1, Past: true})
		wantCode(t, err, object.Expired)
		for revision := lost; revision < p.s.Revision(); revision += 5 {
			p.check(revision)
		}
	})
}

// TestTwoReplicasMove: two replicas compact at once; nothing is lost or doubled.
func TestTwoReplicasMove(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.Postgres)
	p := newPast(t, db, 4)
	createNamespace(t, p.s, "ns-0")
	createNamespace(t, p.s, "ns-1")
	p.wrote(Author{})
	other := run(t, p.opts)
	for range 5 {
		for range 40 {
			p.step()
		}
		done := make(chan error, 1)
		go func() { done <- other.compact(context.WithoutCancel(t.Context()), p.s.Revision()) }()
		compactAll(t, p.s)
		if err := <-done; err != nil {
			t.Fatal(err)
		}
	}
	for revision := int64(2); revision < int64(len(p.states)); revision += 11 {
		p.check(revision)
	}
	p.checkVersions()
	p.checkBytes()
}

func metaUID(t *testing.T, body []byte) types.UID {
	t.Helper()
	m, err := object.ParseMeta(body)
	if err != nil {
		t.Fatal(err)
	}
	return m.UID
}

// TestHistoryIsSealed: versions of a sealed kind are sealed, follow the sealing key, also while they are added to, and
// leave with a lost key.
func TestHistoryIsSealed(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		o := Options{DB: db, CompactEvery: time.Hour, Keys: testKeys(t, "old"), History: HistoryOptions{For: time.Hour}}
		s := run(t, o)
		createNamespace(t, s.Store, "a")
		secret := create(t, s.Store, newSecret("a", "token", "grape-1"))
		first := secret.Revision
		for i := range 3 {
			secret = change(t, s.Store, secret, fmt.Sprint("grape-", i+2))
		}
		compactAll(t, s.Store)
		noLeaks(t, db, "after a compaction", "grape-1", "grape-3")
		s.stop()
		o.Keys = testKeys(t, "new", "old")
		s = run(t, o)
		awaitUnder(t, db, secrets, "new")
		if n := sealedRows(t, db, "old"); n != 0 {
			t.Errorf("%d rows of the history are under the old key", n)
		}
		secret = change(t, s.Store, secret, "grape-5")
		compactAll(t, s.Store)
		got, err := s.GetAt(t.Context(), secret.Key, first)
		if err != nil || !strings.Contains(string(got.Body), "grape-1") {
			t.Errorf("the first version is %s, %v", got.Body, err)
		}
		s.stop()
		o.Keys = testKeys(t, "new")
		s = run(t, o) // no body needs the old key
		s.stop()
		o.Keys, o.GiveUpKey = testKeys(t, "third"), "new"
		s = run(t, o)
		if n := sealedRows(t, db, "new"); n != 0 {
			t.Errorf("%d rows of the history are under the lost key", n)
		}
		_, err = s.GetAt(t.Context(), secret.Key, first)
		wantCode(t, err, object.Expired)
	})
}

// sealedRows counts the rows of the history that a key has sealed.
func sealedRows(t *testing.T, db *sqldb.DB, key string) (n int64) {
	t.Helper()
	prefix := seal.Prefix(key)
	if _, err := db.Row(t.Context(), `SELECT count(*) FROM history WHERE substr(body, 1, $2) = $1`, []any{prefix, int64(len(prefix))}, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestHistoryOfABackup: a database that is restored keeps its history, and has what was in its log.
func TestHistoryOfABackup(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 5)
		createNamespace(t, p.s, "ns-0")
		createNamespace(t, p.s, "ns-1")
		p.wrote(Author{})
		for range 30 {
			p.step()
		}
		compactAll(t, p.s)
		for range 30 {
			p.step()
		}
		last := p.s.Revision()
		p.stop()
		restored(t, db)
		p.start()
		o := create(t, p.s, newRequest("ns-0", "after"))
		if err := p.s.compact(t.Context(), o.Revision); err != nil {
			t.Fatal(err)
		}
		for revision := int64(2); revision < last; revision += 5 {
			p.check(revision)
		}
		_, err := p.s.List(t.Context(), ListRequest{Kind: things, Revision: last})
		wantCode(t, err, object.Expired)
	})
}

// restored prepares a database as the restore of a backup does.
func restored(t *testing.T, db *sqldb.DB) {
	t.Helper()
	var current int64
	if _, err := db.Row(t.Context(), `SELECT current FROM revision`, nil, &current); err != nil {
		t.Fatal(err)
	}
	var b sqldb.Batch
	b.Exec(raiseRevision, current+restoredGap)
	if err := db.Transact(t.Context(), func(tx *sqldb.Tx) error { return tx.Send(t.Context(), &b) }); err != nil {
		t.Fatal(err)
	}
}

// TestTimesDoNotFall: when a clock goes back, the time of a change is that of the change before it.
func TestTimesDoNotFall(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 6)
		createNamespace(t, p.s, "ns-0")
		begin := p.clock.now()
		o := create(t, p.s, newRequest("ns-0", "web"))
		for i, by := range []time.Duration{-time.Minute, time.Second, time.Hour, -time.Minute} {
			p.clock.move(by)
			o = change(t, p.s, o, fmt.Sprint(i))
		}
		var times []int64
		err := p.s.Versions(t.Context(), o.Key, math.MaxInt64, func(_ string, v Version) bool {
			times = append(times, v.At-begin.UnixMilli())
			return true
		})
		if want := []int64{3541_000, 3541_000, 0, 0, 0}; err != nil || !slices.Equal(times, want) {
			t.Errorf("times %v, %v, want %v", times, err, want)
		}
		if got, err := p.s.RevisionAt(t.Context(), begin); err != nil || got != o.Revision-2 {
			t.Errorf("the last revision of the first second is %d, %v; want %d", got, err, o.Revision-2)
		}
	})
}

// TestPurgeReachesTheHistory: a purge of the archive deletes the versions of the object too, those in the history and those
// that compaction meets later, and no state of then is answered without it. Others stay.
func TestPurgeReachesTheHistory(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 3)
		for _, name := range []string{"ns-0", "ns-1"} {
			createNamespace(t, p.s, name)
		}
		p.wrote(Author{})
		for i := range 150 {
			if p.step(); i == 100 {
				if err := p.s.compact(t.Context(), p.s.Revision()); err != nil {
					t.Fatal(err)
				}
			}
		}
		uids := map[string]bool{}
		var ids []int64
		err := p.s.Reader().Archived(t.Context(), ArchiveFilter{}, 0, 1000, func(a *Archived) error {
			if len(ids) < 5 {
				ids, uids[string(a.UID)] = append(ids, a.ID), true
			}
			return nil
		})
		if err != nil || len(ids) == 0 {
			t.Fatal(ids, err)
		}
		if n, err := p.s.ForgetArchived(t.Context(), ids); err != nil || n != len(ids) {
			t.Fatal(n, err)
		}
		p.checkAll()
		for range 20 {
			p.step()
		}
		if err := p.s.compact(t.Context(), p.s.Revision()); err != nil {
			t.Fatal(err)
		}
		p.checkAll()
		p.checkBytes()
		kept := 0
		err = sqldb.Each(t.Context(), db, func(row sqldb.Row) error {
			var uid string
			err := row.Scan(&uid)
			if kept++; uids[uid] {
				t.Errorf("versions of %s are left", uid)
			}
			return err
		}, `SELECT uid FROM history UNION ALL SELECT uid FROM changes WHERE body IS NOT NULL`)
		if err != nil || kept == 0 {
			t.Error(kept, err)
		}
	})
}

// TestHistoryOnAFullDisk: what compaction meets while the disk is full is not kept, and no state of then is answered.
func TestHistoryOnAFullDisk(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, 4)
		for _, name := range []string{"ns-0", "ns-1"} {
			createNamespace(t, p.s, name)
		}
		p.wrote(Author{})
		full := false
		p.s.past.Full = func() bool { return full }
		for i := range 90 {
			p.step()
			if full = i >= 30 && i < 60; i%10 == 9 {
				rows := p.count(`SELECT count(*) FROM history`)
				if err := p.s.compact(t.Context(), p.s.Revision()); err != nil {
					t.Fatal(err)
				}
				if more := p.count(`SELECT count(*) FROM history`) - rows; full == (more > 0) {
					t.Errorf("step %d: %d more rows", i, more)
				}
			}
		}
		p.checkAll()
		p.check(int64(len(p.states)) - 2)
		if _, left := p.s.past.Left(); left == 0 {
			t.Error("what left is not counted")
		}
	})
}
