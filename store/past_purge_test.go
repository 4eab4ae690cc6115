package store

import (
	"context"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store/history"
)

// TestPurgeReachesEveryRead: on random worlds, with compaction, restarts and objects that come again at random moments, nothing
// that was purged is in any answer about the past, also while the log still has it: not in the versions of its name, in a GET or
// in a LIST. Everything else is as it was, or is refused.
func TestPurgeReachesEveryRead(t *testing.T) {
	seed := rand.Uint64()
	t.Log("seed", seed)
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		p := newPast(t, db, seed)
		for _, name := range []string{"ns-0", "ns-1"} {
			createNamespace(t, p.s, name)
		}
		p.wrote(Author{})
		purged := map[string]int64{} // uid: its versions up to this revision
		for i := range 250 {
			p.step()
			switch p.rng.IntN(20) {
			case 0:
				if err := p.s.compact(t.Context(), 1+p.rng.Int64N(p.s.Revision())); err != nil {
					t.Fatal(err)
				}
			case 1:
				p.restart()
			case 2, 3, 4:
				p.purge(purged)
			case 5:
				p.again(purged)
			}
			if i%25 == 24 {
				p.checkPurged(purged, true)
			}
		}
		compactAll(t, p.s)
		p.checkPurged(purged, true)
		p.checkBytes()
		if len(purged) == 0 {
			t.Error("nothing was purged")
		}
	})
}

// purge deletes a random row of the archive. What exists again keeps its versions. Of what does not, it deletes earlier rows
// too: each answers for the last body of its own life.
func (p *past) purge(purged map[string]int64) {
	p.t.Helper()
	var all []*Archived
	err := p.s.Reader().Archived(p.t.Context(), ArchiveFilter{}, 0, 1000, func(a *Archived) error {
		all = append(all, a)
		return nil
	})
	if err != nil {
		p.t.Fatal(err)
	}
	if len(all) == 0 {
		return
	}
	a := all[p.rng.IntN(len(all))]
	ids, later := []int64{a.ID}, false
	for _, other := range all {
		if other.UID == a.UID && other.ID != a.ID {
			ids, later = append(ids, other.ID), later || other.ID > a.ID
		}
	}
	if later {
		ids = ids[:1]
	}
	if n, err := p.s.ForgetArchived(p.t.Context(), ids); err != nil || n != len(ids) {
		p.t.Fatal(n, err)
	}
	if later {
		return
	}
	if p.count(fmt.Sprintf(`SELECT count(*) FROM objects WHERE uid = '%s'`, a.UID)) == 0 {
		purged[string(a.UID)] = p.s.Revision()
	}
}

// again creates an object with the uid of one that is gone, as a restore does, from the archive or from a backup.
func (p *past) again(purged map[string]int64) {
	p.t.Helper()
	for uid := range purged {
		r := newRequest("ns-0", fmt.Sprint("web-", p.rng.IntN(5)))
		r.Meta.UID = metaUID(p.t, []byte(fmt.Sprintf(`{"metadata":{"uid":%q}}`, uid)))
		r.Body = bodyOf(r.Meta, "again")
		if p.count(fmt.Sprintf(`SELECT count(*) FROM objects WHERE uid = '%s'`, uid)) > 0 {
			continue
		}
		if _, err := p.s.Create(p.t.Context(), r); err != nil && !object.Is(err, object.AlreadyExists) {
			p.t.Fatal(err)
		}
		p.wrote(Author{})
		return
	}
}

// checkPurged looks at all names, and at some of the revisions. If the history is whole, only what was purged is missing.
func (p *past) checkPurged(purged map[string]int64, whole bool) {
	p.t.Helper()
	p.checkAll()
	isPurged := func(line string) bool {
		var revision int64
		var uid string
		_, behind, _ := strings.Cut(line, "@")
		if _, err := fmt.Sscan(behind, &revision, &uid); err != nil && line != "" {
			p.t.Fatal(line, err)
		}
		uid, _, _ = strings.Cut(uid, "=")
		return line != "" && purged[uid] >= revision
	}
	for _, kind := range []string{things, "others.example.com"} {
		for i := range 10 {
			key := object.Key{Kind: kind, Namespace: fmt.Sprint("ns-", i%2), Name: fmt.Sprint("web-", i/2)}
			seen := map[int64]bool{}
			err := p.s.Versions(p.t.Context(), key, math.MaxInt64, func(uid string, v Version) bool {
				if seen[v.Revision] = true; purged[uid] >= v.Revision {
					p.t.Errorf("%s has version %d of %s, which was purged at %d", key, v.Revision, uid, purged[uid])
				}
				return true
			})
			if err != nil {
				p.t.Fatal(err)
			}
			for revision := int64(2); revision < int64(len(p.states)); revision++ {
				l := p.states[revision][key]
				if whole && l != "" && l != p.states[revision-1][key] && !isPurged(l) && !seen[revision] {
					p.t.Errorf("%s lacks version %d", key, revision)
				}
			}
		}
		for revision := int64(2); revision < int64(len(p.states)); revision += 1 + p.rng.Int64N(5) {
			for key, l := range p.states[revision] {
				if key.Kind != kind || !isPurged(l) {
					continue
				}
				_, err := p.s.GetAt(p.t.Context(), key, revision)
				wantCode(p.t, err, object.Expired)
				for _, namespace := range []string{"", key.Namespace} {
					_, err := p.listAt(ListRequest{Kind: kind, Namespace: namespace, Revision: revision, Past: true})
					wantCode(p.t, err, object.Expired)
				}
			}
		}
	}
}

// TestMoveAgainstOthers: between the moment at which a step has read rows and versions and its transaction, those rows leave by
// size, or an object of the step is purged. The step writes what is complete, and nothing of what was purged.
func TestMoveAgainstOthers(t *testing.T) {
	for name, meanwhile := range map[string]func(p *past, purged map[string]int64) error{
		"rows leave by size": func(p *past, _ map[string]int64) error {
			p.s.past.MaxBytes = 1
			return p.s.past.Expire(p.t.Context())
		},
		"objects are purged": func(p *past, purged map[string]int64) error {
			for range 20 {
				p.purge(purged)
			}
			return nil
		},
	} {
		t.Run(name, func(t *testing.T) {
			dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
				p := newPast(t, db, 9)
				createNamespace(t, p.s, "ns-0")
				createNamespace(t, p.s, "ns-1")
				p.wrote(Author{})
				for range 60 {
					p.step()
				}
				compactAll(t, p.s)
				for range 60 {
					p.step()
				}
				purged, transact := map[string]int64{}, p.s.past.Transact
				p.s.past.Transact = func(ctx context.Context, fn func(*history.Tx) error) error {
					p.s.past.Transact = transact
					if err := meanwhile(p, purged); err != nil {
						return err
					}
					return transact(ctx, fn)
				}
				compactAll(t, p.s)
				p.checkPurged(purged, len(purged) > 0)
				p.checkBytes()
				for range 60 {
					p.step()
				}
				last := p.s.Revision() - 30
				compactAll(t, p.s)
				p.checkPurged(purged, len(purged) > 0)
				p.checkBytes()
				p.check(last)
			})
		})
	}
}
