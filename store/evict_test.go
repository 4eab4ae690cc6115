package store

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/cascades"
	"github.com/exeunt/exeunt/store/expiry"
)

// removeCascade creates and removes objects of a cascade, each with a body of about size bytes: the
// first is its root. It returns the cascade's id.
func removeCascade(t *testing.T, s *Store, root string, size int, namespaces ...string) string {
	t.Helper()
	var requests []DeleteRequest
	id := "cascade-" + root
	for i, namespace := range namespaces {
		r := newRequest(namespace, fmt.Sprintf("%s-%d", root, i), func(m *metav1.ObjectMeta) {
			m.UID = types.UID(fmt.Sprintf("%s-%d", root, i))
			if i == 0 {
				m.UID = types.UID(id)
			}
		})
		r.Body = bodyOf(r.Meta, strings.Repeat("x", size))
		create(t, s, r)
		request := DeleteRequest{Key: r.Key, Actor: "alice"}
		if i > 0 {
			request.Cascade = id
		}
		requests = append(requests, request)
	}
	if _, errs := s.DeleteAll(t.Context(), requests); slices.ContainsFunc(errs, func(err error) bool { return err != nil }) {
		t.Fatal(errs)
	}
	return id
}

func repeated(namespace string, n int) []string { return slices.Repeat([]string{namespace}, n) }

// cascadesIn counts the rows of each cascade that the archive lists.
func cascadesIn(t *testing.T, s *Store) map[string]int {
	t.Helper()
	found := map[string]int{}
	err := s.Reader().Archived(t.Context(), ArchiveFilter{}, 0, 1_000_000, func(a *Archived) error {
		found[a.Cascade]++
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func expireNow(t *testing.T, s *Store) {
	t.Helper()
	if err := s.expiry.Run(t.Context()); err != nil {
		t.Fatal(err)
	}
	checkArchivedBytes(t, s)
}

func wantCascades(t *testing.T, s *Store, when string, want map[string]int) {
	t.Helper()
	if got := cascadesIn(t, s); !maps.Equal(got, want) {
		t.Errorf("%s: the archive has %v, want %v", when, got, want)
	}
}

// TestCascadeExpiresWhole: by the last removal, and by the longest window of its namespaces; not
// while an object of it is DELETING.
func TestCascadeExpiresWhole(t *testing.T) {
	archiving(t, ArchiveOptions{For: 10 * time.Hour}, func(t *testing.T, s running, c *clock) {
		began := c.now()
		createNamespace(t, s.Store, "short", annotated("1h"))
		createNamespace(t, s.Store, "long", annotated("20h"))
		inShort := removeCascade(t, s.Store, "a", 1, repeated("short", expiry.Step+20)...)
		over := removeCascade(t, s.Store, "b", 1, "short", "long", "short")
		late := removeCascade(t, s.Store, "c", 1, "short")
		restored := removeCascade(t, s.Store, "d", 1, "long") // has a row before it is counted
		back := newRequest("long", "back")
		back.Restores.Row = archivedIDs(t, s.Store)[expiry.Step+24]
		create(t, s.Store, back)
		held := create(t, s.Store, newRequest("short", "held", finalizers("x/y")))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: held.Key, Actor: "alice"}); err != nil {
			t.Fatal(err)
		}
		create(t, s.Store, newRequest("long", "below"))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: object.Key{Kind: things, Namespace: "long", Name: "below"}, Cascade: string(held.UID)}); err != nil {
			t.Fatal(err)
		}
		c.set(began.Add(50 * time.Minute))
		o := create(t, s.Store, newRequest("short", "late"))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: o.Key, Cascade: late}); err != nil {
			t.Fatal(err)
		}
		expireNow(t, s.Store)
		until, err := s.Expiries(t.Context(), map[string]*Archived{over: {Namespace: "short", RemovedAt: began.UnixMilli()}})
		if err != nil || until[over] != began.Add(20*time.Hour).UnixMilli() {
			t.Errorf("it expires at %v, %v", until, err)
		}
		for _, step := range []struct {
			after time.Duration
			want  map[string]int
		}{
			{59 * time.Minute, map[string]int{inShort: expiry.Step + 20, restored: 1, over: 3, late: 2, string(held.UID): 1}},
			{time.Hour, map[string]int{restored: 1, over: 3, late: 2, string(held.UID): 1}},
			{110 * time.Minute, map[string]int{restored: 1, over: 3, string(held.UID): 1}},
			{20*time.Hour - time.Millisecond, map[string]int{restored: 1, over: 3, string(held.UID): 1}},
			{20 * time.Hour, map[string]int{string(held.UID): 1}},
		} {
			c.set(began.Add(step.after))
			expireNow(t, s.Store)
			wantCascades(t, s.Store, step.after.String(), step.want)
		}
		held, err = s.Get(t.Context(), held.Key)
		if err != nil {
			t.Fatal(err)
		}
		m, err := object.ParseMeta(held.Body)
		if err != nil {
			t.Fatal(err)
		}
		m.Finalizers = nil
		if _, err = s.Update(t.Context(), UpdateRequest{Key: held.Key, IfRevision: held.Revision, Meta: m, Body: bodyOf(m, "last"), Remove: true}); err != nil {
			t.Fatal(err)
		}
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "when it has ended", map[string]int{string(held.UID): 2})
		c.move(20 * time.Hour)
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "20 hours later", map[string]int{})
	})
}

// TestLeavingIsAbsent: a cascade that is marked is not listed and cannot be restored, also by a store
// that died before it deleted the rows; the next run deletes them.
func TestLeavingIsAbsent(t *testing.T) {
	archiving(t, ArchiveOptions{For: time.Hour}, func(t *testing.T, s running, c *clock) {
		id := removeCascade(t, s.Store, "a", 1, repeated("n", expiry.Step+20)...)
		ids := archivedIDs(t, s.Store)
		restore := func(at int) error {
			r := newRequest("n", fmt.Sprintf("back-%d", at))
			r.Restores = Restoration{Row: ids[at]}
			_, err := s.Create(t.Context(), r)
			return err
		}
		mark := func(id string) {
			t.Helper()
			err := s.Transact(t.Context(), func(tx *Tx) error {
				if _, err := s.expiring(tx).Count(t.Context()); err != nil {
					return err
				}
				return s.expiring(tx).MarkLeaving(t.Context(), []string{id}, tx.revision)
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		mark(id)
		for i := range 2 { // before the first step, and after it
			wantCascades(t, s.Store, fmt.Sprintf("in step %d", i), map[string]int{})
			if found, err := cascades.Read(t.Context(), s.Reader(), id); found != nil || err != nil {
				t.Errorf("the leaving cascade is %v, %v", found, err)
			}
			if found, err := cascades.List(t.Context(), s.Reader(), "", 10); len(found) != 0 || err != nil {
				t.Errorf("the list has %v, %v", found, err)
			}
			for _, at := range []int{0, expiry.Step + 19} {
				if err := restore(at); !object.Is(err, object.Expired) {
					t.Errorf("restore of a leaving object: %v", err)
				}
			}
			// A group, as restores write it.
			var group []CreateRequest
			for _, at := range []int{expiry.Step + 10, expiry.Step + 11, expiry.Step + 12, expiry.Step + 13, expiry.Step + 14} {
				r := newRequest("n", fmt.Sprintf("back-%d", at))
				r.Restores = Restoration{Row: ids[at]}
				group = append(group, r)
			}
			for _, err := range s.CreateAll(t.Context(), group) {
				if !object.Is(err, object.Expired) {
					t.Errorf("restore of a leaving object in a group: %v", err)
				}
			}
			err := s.Transact(t.Context(), func(tx *Tx) error {
				_, err := s.expiring(tx).Sweep(t.Context())
				return err
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		// An object that the same cascade removes later stays in the archive, even if the sweep counts it before the others are gone.
		other := removeCascade(t, s.Store, "b", 1, "n", "n")
		mark(other)
		for _, cascade := range []string{id, other} {
			o := create(t, s.Store, newRequest("n", "later-"+cascade))
			if _, err := s.Delete(t.Context(), DeleteRequest{Key: o.Key, Cascade: cascade}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.expiry.Count(t.Context()); err != nil {
			t.Fatal(err)
		}
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "after the sweep", map[string]int{id: 1, other: 1})
		c.move(time.Hour)
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "an hour later", map[string]int{})
	})
}

// TestRestoreHolds: a restore that wrote first keeps the cascade in the archive, for an hour after its last
// write, by age and by size.
func TestRestoreHolds(t *testing.T) {
	archiving(t, ArchiveOptions{For: time.Hour, MaxBytes: 2000}, func(t *testing.T, s running, c *clock) {
		for _, group := range []bool{false, true} {
			before := len(archivedIDs(t, s.Store))
			id := removeCascade(t, s.Store, fmt.Sprint("held-", group), 100, repeated("n", 10)...)
			ids := archivedIDs(t, s.Store)[before:]
			c.move(time.Second)
			newest := removeCascade(t, s.Store, fmt.Sprint("newest-", group), 100, "n")
			restore := func(rows ...int64) {
				t.Helper()
				var all []CreateRequest
				for _, row := range rows {
					r := newRequest("n", fmt.Sprintf("back-%d", row))
					r.Restores = Restoration{Row: row}
					all = append(all, r)
				}
				for _, err := range s.CreateAll(t.Context(), all) {
					if err != nil {
						t.Fatal(err)
					}
				}
			}
			if group {
				restore(ids[:5]...)
			} else {
				restore(ids[0])
			}
			expireNow(t, s.Store)
			wantCascades(t, s.Store, "after the first write", map[string]int{id: 10, newest: 1})
			c.move(50 * time.Minute)
			restore(ids[7])
			c.move(50 * time.Minute)
			expireNow(t, s.Store)
			wantCascades(t, s.Store, "50 minutes after the last write", map[string]int{id: 10})
			restore(ids[9])
			c.move(time.Hour)
			expireNow(t, s.Store)
			wantCascades(t, s.Store, "an hour after the last write", map[string]int{})
		}
	})
}

// TestEvictWhileRunning: a running cascade stays until the archive has twice its limit. Then
// all of it leaves, also what it removes afterwards.
func TestEvictWhileRunning(t *testing.T) {
	archiving(t, ArchiveOptions{For: time.Hour, MaxBytes: 10_000}, func(t *testing.T, s running, c *clock) {
		root := create(t, s.Store, newRequest("n", "root", finalizers("x/y")))
		if _, err := s.Delete(t.Context(), DeleteRequest{Key: root.Key}); err != nil {
			t.Fatal(err)
		}
		remove := func(name string) {
			t.Helper()
			r := newRequest("n", name)
			r.Body = bodyOf(r.Meta, strings.Repeat("x", 6000))
			create(t, s.Store, r)
			if _, err := s.Delete(t.Context(), DeleteRequest{Key: r.Key, Cascade: string(root.UID)}); err != nil {
				t.Fatal(err)
			}
		}
		remove("a")
		remove("b")
		c.move(time.Second)
		newest := removeCascade(t, s.Store, "newest", 6000, "n")
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "above the limit", map[string]int{string(root.UID): 2, newest: 1})
		remove("c")
		c.move(time.Second)
		newer := removeCascade(t, s.Store, "newer", 6000, "n")
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "above twice the limit", map[string]int{newer: 1})
		remove("d")
		wantCascades(t, s.Store, "what it removes later", map[string]int{newer: 1})
		expireNow(t, s.Store)
		if left := rows(t, s.Store); len(left) != 1 {
			t.Errorf("rows of the cascade are left: %q", left)
		}
		c.move(2 * time.Hour)
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "in the end", map[string]int{})
	})
}

// TestQueuedCascadeStays: a cascade does not leave while the collector has its removed owner
// to review.
func TestQueuedCascadeStays(t *testing.T) {
	archiving(t, ArchiveOptions{For: time.Hour}, func(t *testing.T, s running, c *clock) {
		owner := create(t, s.Store, newRequest("n", "owner"))
		create(t, s.Store, newRequest("n", "dependent", func(m *metav1.ObjectMeta) {
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "owner", UID: owner.UID}}
		}))
		remove(t, s.Store, owner.Key)
		c.move(2 * time.Hour)
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "before the review", map[string]int{string(owner.UID): 1})
		err := s.Transact(t.Context(), func(tx *Tx) error {
			tx.Defer(`DELETE FROM gc_object_reviews`)
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		expireNow(t, s.Store)
		wantCascades(t, s.Store, "after it", map[string]int{})
	})
}

// TestManyCascadesStay: cascades that leave are chosen when all rows are counted, and behind as many as one step reads that stay.
func TestManyCascadesStay(t *testing.T) {
	archiving(t, ArchiveOptions{For: time.Hour}, func(t *testing.T, s running, c *clock) {
		var requests []CreateRequest
		var deletes []DeleteRequest
		for i := range expiry.CountStep + 1 {
			requests = append(requests, newRequest("n", fmt.Sprint("a-", i)))
			deletes = append(deletes, DeleteRequest{Key: requests[i].Key})
		}
		if err := errors.Join(s.CreateAll(t.Context(), requests)...); err != nil {
			t.Fatal(err)
		}
		if _, errs := s.DeleteAll(t.Context(), deletes); errors.Join(errs...) != nil {
			t.Fatal(errs)
		}
		err := s.expiry.Choose(t.Context(), func(tx *expiry.Tx) (bool, error) {
			const anyUncounted = `SELECT 1 FROM archive WHERE id > (SELECT revision FROM archive_counted) LIMIT 1`
			if found, err := sqldb.First(t.Context(), tx, []any{new(int64)}, anyUncounted); found || err != nil {
				t.Errorf("rows are not counted: %v", err)
			}
			return true, nil
		})
		if err != nil {
			t.Fatal(err)
		}
		last := requests[expiry.CountStep].Meta.UID
		c.move(2 * time.Hour)
		err = s.Transact(t.Context(), func(tx *Tx) error { // a restore of each has just written
			tx.Defer(`UPDATE archive_cascades SET restored_at = $1 WHERE id <> $2`, tx.Now.UnixMilli(), string(last))
			tx.Defer(`UPDATE archive_cascades SET removed_at = removed_at + 1 WHERE id = $1`, string(last))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		expireNow(t, s.Store)
		if got := cascadesIn(t, s.Store); len(got) != expiry.CountStep || got[string(last)] != 0 {
			t.Errorf("the archive has %d cascades", len(got))
		}
	})
}

// TestOneTenantEvictsItself: 1,000 removals in one namespace, of 100 times the archive's size, take nothing from the others.
func TestOneTenantEvictsItself(t *testing.T) {
	archiving(t, ArchiveOptions{For: time.Hour, MaxBytes: 100_000}, func(t *testing.T, s running, _ *clock) {
		var evicted []string
		s.OnEvict(func(_ context.Context, _ *Tx, e Eviction) error {
			if e.Namespace != "loud" || len(e.Cascades) == 0 || e.Objects == 0 || e.Bytes < 10_000 {
				t.Errorf("evicted %+v", e)
			}
			evicted = append(evicted, e.Cascades...)
			return nil
		})
		quiet := removeCascade(t, s.Store, "quiet", 1000, repeated("quiet", 20)...)
		cluster := removeCascade(t, s.Store, "cluster", 1000, "", "quiet", "loud")
		loud := int(fewer(300, 1000))
		for i := range loud {
			removeCascade(t, s.Store, fmt.Sprintf("loud-%04d", i), 10_000, "loud")
			if i%100 == 99 {
				expireNow(t, s.Store)
			}
		}
		got := cascadesIn(t, s.Store)
		if got[quiet] != 20 || got[cluster] != 3 || got[fmt.Sprintf("cascade-loud-%04d", loud-1)] != 1 || len(got) < 6 {
			t.Errorf("the archive has %v", got)
		}
		if len(evicted) != loud+2-len(got) || int64(len(evicted)) != s.Evicted() {
			t.Errorf("%d cascades were reported, %d counted, %d are left", len(evicted), s.Evicted(), len(got))
		}
	})
}

type archivedCascade struct {
	id, namespace string
	objects       int
	bytes         int64
}

func sizeOf(all []archivedCascade, id string) int64 {
	return all[slices.IndexFunc(all, func(c archivedCascade) bool { return c.id == id })].bytes
}

// TestFairShare: on random archives, a namespace with no more than an equal part loses nothing; a cascade leaves whole or
// not at all, the oldest first; the archive ends within its limit, but for the newest of each
// namespace.
func TestFairShare(t *testing.T) {
	const limit = 20_000
	archiving(t, ArchiveOptions{For: 1000 * time.Hour, MaxBytes: limit}, func(t *testing.T, s running, c *clock) {
		seed := rand.Uint64()
		t.Logf("seed %d", seed)
		random := rand.New(rand.NewPCG(seed, 0))
		for world := range 30 {
			if _, err := s.ForgetArchived(t.Context(), archivedIDs(t, s.Store)); err != nil {
				t.Fatal(err)
			}
			var all []archivedCascade
			used := map[string]int64{}
			for i := range 1 + random.IntN(12) {
				namespace := []string{"", "a", "b", "c"}[random.IntN(4)]
				spread := repeated(namespace, 1+random.IntN(4))
				if random.IntN(3) == 0 {
					spread = append(spread, "d")
				}
				before, _ := archived(t, s.Store)
				id := removeCascade(t, s.Store, fmt.Sprintf("%d-%d", world, i), random.IntN(5000), spread...)
				after, _ := archived(t, s.Store)
				all = append(all, archivedCascade{id, namespace, len(spread), after - before})
				used[namespace] += after - before
				c.move(time.Second)
				if random.IntN(2) == 0 { // counted in parts
					if err := s.expiry.Count(t.Context()); err != nil {
						t.Fatal(err)
					}
				}
			}
			total, _ := archived(t, s.Store)
			expireNow(t, s.Store)
			got := cascadesIn(t, s.Store)
			newest, kept := map[string]string{}, map[string]bool{}
			for _, x := range all {
				newest[x.namespace] = x.id
			}
			left := map[string]int64{}
			for _, x := range all {
				switch n := got[x.id]; {
				case n == x.objects:
					kept[x.namespace] = true
					left[x.namespace] += x.bytes
				case n != 0:
					t.Errorf("world %d: %d of %d objects of %s are left", world, n, x.objects, x.id)
				case total <= limit || used[x.namespace] <= limit/int64(len(used)):
					t.Errorf("world %d: %s lost %s: %v of %d", world, x.namespace, x.id, used, limit)
				case kept[x.namespace]:
					t.Errorf("world %d: %s left before an older one", world, x.id)
				case newest[x.namespace] == x.id:
					t.Errorf("world %d: %s left, the newest of its namespace", world, x.id)
				}
			}
			share := expiry.FairShare(limit, slices.Collect(maps.Values(left)))
			if share < limit/int64(len(left)) {
				t.Errorf("world %d: the share is %d of %v", world, share, left)
			}
			for namespace, bytes := range left {
				if got[newest[namespace]] > 0 && bytes > share && bytes > sizeOf(all, newest[namespace]) {
					t.Errorf("world %d: %q has %d bytes left, its share is %d", world, namespace, bytes, share)
				}
			}
		}
	})
}

// archived reads the counter of bytes and the number of rows.
func archived(t *testing.T, s *Store) (bytes int64, n int) {
	t.Helper()
	if err := s.db.Reader().QueryRow(`SELECT archived, (SELECT count(*) FROM archive) FROM revision`).Scan(&bytes, &n); err != nil {
		t.Fatal(err)
	}
	return bytes, n
}
