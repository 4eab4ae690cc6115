package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestCreateSet: creates in one batch leave what as many creates one by one leave.
func TestCreateSet(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		one := createThrough(t, db, 1)
		set := createThrough(t, dbtest.OpenDB(t, db.Engine()), 4*minSet)
		if one != set {
			t.Errorf("one by one:\n%s\nas a set:\n%s", one, set)
		}
	})
}

// createThrough removes objects, restores them and creates others in batches of a size, and
// describes what is left.
func createThrough(t *testing.T, db *sqldb.DB, size int) string {
	t.Helper()
	s := run(t, Options{DB: db, Now: func() time.Time { return time.Unix(5000, 0) }, EventTTL: time.Hour, Archive: ArchiveOptions{For: time.Hour}})
	owner := create(t, s.Store, newRequest("", "owner", func(m *metav1.ObjectMeta) { m.UID = "uid-owner" }))
	var requests []CreateRequest
	for i := range 4 * minSet {
		r := newRequest("", fmt.Sprintf("%d-\"%c\"", i, 'ä'), func(m *metav1.ObjectMeta) {
			m.UID = types.UID(fmt.Sprint("uid-", i))
			m.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "owner", UID: owner.UID}}
			switch i {
			case 3:
				m.OwnerReferences = append(m.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "Other", Name: "x", UID: "absent", Controller: new(bool)})
			case 4:
				m.OwnerReferences = nil
			case 5:
				m.Finalizers = []string{metav1.FinalizerDeleteDependents}
			}
		})
		switch i {
		case 6:
			r.Key.Kind = "events"
		case 7:
			r.Key.Kind = "secrets"
		case 8: // its name is taken
			r.Key = owner.Key
		}
		r.Body = bodyOf(r.Meta, fmt.Sprint("body-", i))
		if i%2 == 1 { // it restores an object
			removed := create(t, s.Store, newRequest("", fmt.Sprint("removed-", i), func(m *metav1.ObjectMeta) { m.UID = types.UID(fmt.Sprint("removed-", i)) }))
			remove(t, s.Store, removed.Key)
			r.Restores.Row = s.Revision()
			switch i {
			case 9: // it had a reference, and has it again
				r.Restores.Had = true
				err := s.Transact(t.Context(), func(tx *Tx) error {
					tx.Defer(insertDropped, "gone", string(r.Meta.UID), "{}", "[]")
					return nil
				})
				if err != nil {
					t.Fatal(err)
				}
			case 11:
				r.Restores.Dropped, r.Restores.LookedAt = []DroppedReference{{Owner: "gone", Reference: "{}", Known: "[]"}}, s.Revision()
			}
		}
		requests = append(requests, r)
	}
	errs := ""
	for from := 0; from < len(requests); from += size {
		batch := requests[from:min(from+size, len(requests))]
		ops := make([]*operation, len(batch))
		for i := range batch {
			ops[i] = batch[i].operation()
			ops[i].ctx, ops[i].done = WithAuthor(t.Context(), Author{User: fmt.Sprint("user-", (from+i)%3)}), make(chan struct{})
		}
		err := s.writer.do(t.Context(), func() error {
			s.writer.runBatch(context.Background(), append([]*operation(nil), ops...))
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		for _, op := range ops {
			if op.err != nil {
				errs += op.err.Error() + "\n"
			}
		}
	}
	return errs + dumpTables(t, db)
}

// TestCreateSetTexts: a text that JSON cannot hold is stored as one by one.
func TestCreateSetTexts(t *testing.T) {
	f := effect{Type: Created, uid: "u", owners: []owner{{uid: "a\x00b"}}}
	if f.inSet(sqldb.SQLite) || !f.inSet(sqldb.Postgres) {
		t.Error("a NUL goes into a set of SQLite only one by one")
	}
	if f.owners[0].uid = "\xff"; f.inSet(sqldb.SQLite) {
		t.Error("invalid UTF-8 is in a set of SQLite")
	}
}

// TestCreateAll: the creates share commits, and fail one by one.
func TestCreateAll(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		var requests []CreateRequest
		for i := range 3 * minSet {
			requests = append(requests, newRequest("", fmt.Sprint(i)))
		}
		create(t, s.Store, newRequest("", "1"))
		requests[2].Restores.Row = 4711 // not in the archive: the database says so when the batch is written
		requests[3].Body = nil
		errs := s.CreateAll(t.Context(), requests)
		for i, err := range errs {
			want := map[int]object.Code{1: object.AlreadyExists, 2: object.Expired, 3: object.BadRequest}[i]
			if want == 0 && err != nil || want != 0 && !object.Is(err, want) {
				t.Errorf("create %d: %v, want code %v", i, err, want)
			}
			if _, missing := s.Get(t.Context(), requests[i].Key); (missing == nil) != (err == nil || i == 1) {
				t.Errorf("create %d: %v, but get: %v", i, err, missing)
			}
		}
	})
}

// TestMost: a namespace gets as many objects of a kind as it may have, however many clients create them at once.
func TestMost(t *testing.T) {
	each(t, func(t *testing.T, s running) {
		const most = 20
		request := func(namespace, name string) CreateRequest {
			r := newRequest(namespace, name)
			r.Most = most
			return r
		}
		var requests []CreateRequest
		for i := range 3 * most {
			requests = append(requests, request("", fmt.Sprint("r", i)), request("other", fmt.Sprint("r", i)))
		}
		for i := range most {
			requests = append(requests, newRequest("", fmt.Sprint("without-", i)))
			requests[len(requests)-1].Key.Kind = "others.example.com"
		}
		for i, err := range s.CreateAll(t.Context(), requests) {
			if want := object.Is(err, object.Forbidden); err != nil && !want || want && requests[i].Most == 0 {
				t.Errorf("create %s: %v", requests[i].Key, err)
			}
		}
		for _, namespace := range []string{"", "other"} {
			if n, err := s.Reader().Count(t.Context(), things, namespace, 1000); err != nil || n != most {
				t.Errorf("there are %d in the namespace %q, %v", n, namespace, err)
			}
		}
		first, err := s.Reader().Select(t.Context(), Selection{Kind: things, Limit: 1})
		if err != nil {
			t.Fatal(err)
		}
		remove(t, s.Store, first[0].Key)
		with := newRequest("", "with")
		with.With = []CreateRequest{request("", "a"), request("", "b")}
		with.Key.Kind = "others.example.com"
		_, err = s.Create(t.Context(), with)
		wantCode(t, err, object.Forbidden)
		with.With = with.With[:1]
		create(t, s.Store, with)
	})
}
