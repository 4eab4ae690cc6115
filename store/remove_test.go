package store

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestRemoveSet: many removals in one transaction leave what as many removals
// one by one leave: tombstones, events, archive rows, and the archive's size.
func TestRemoveSet(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		one := removeThrough(t, db, 1)
		set := removeThrough(t, dbtest.OpenDB(t, db.Engine()), minSet+4)
		if one != set {
			t.Errorf("one by one:\n%s\nas a set:\n%s", one, set)
		}
	})
}

// removeThrough makes objects, removes them with a flush after every few, and
// describes what is left.
func removeThrough(t *testing.T, db *sqldb.DB, few int) string {
	t.Helper()
	s := run(t, Options{DB: db, Now: func() time.Time { return time.Unix(5000, 0) }, Archive: ArchiveOptions{For: time.Hour}})
	var all []*Stored
	for i, kind := range []string{things, things, "secrets", "events", things, "namespaces", things, object.ConfigMaps} {
		r := newRequest("", fmt.Sprintf("o%d", i))
		if kind == object.ConfigMaps {
			r.Key.Name = object.RootCA // not worth archiving
		}
		r.Key.Kind, r.Meta.UID = kind, types.UID(fmt.Sprint("uid-", i))
		r.Body = bodyOf(r.Meta, kind)
		o := create(t, s.Store, r)
		all = append(all, &Stored{Object: o, ID: o.Revision})
	}
	from := s.Revision()
	err := s.Transact(t.Context(), func(tx *Tx) error {
		if err := tx.SetCause(t.Context(), "tester", "cause"); err != nil {
			return err
		}
		for i, o := range all {
			if i == 5 {
				if err := tx.SetCause(t.Context(), "another", "other cause"); err != nil {
					return err
				}
			}
			tx.Remove(o)
			if (i+1)%few == 0 {
				if err := tx.Flush(); err != nil {
					return err
				}
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if s.Revision() != from+int64(len(all)) {
		t.Errorf("revision %d after %d removals from %d", s.Revision(), len(all), from)
	}
	text := dumpQuery(t, db, `SELECT 'archived ' || archived FROM revision`)
	text += dumpQuery(t, db, `SELECT 'left ' || count(*) FROM objects`)
	text += dumpQuery(t, db, `SELECT revision || ' ' || object || ' ' || uid || ' ' || kind || ' ' || name || ' ' || previous FROM changes WHERE type = 3 ORDER BY revision`)
	return text + dumpQuery(t, db, `SELECT id || ' ' || uid || ' ' || kind || ' ' || namespace || ' ' || name || ' ' || coalesce(body_revision, 0) || ' ' ||
		removed_at || ' ' || actor || ' ' || cascade || ' ' || size FROM archive ORDER BY id`)
}

// dumpQuery is the lines that a query of one column yields.
func dumpQuery(t *testing.T, db *sqldb.DB, query string) (text string) {
	t.Helper()
	rows, err := db.Reader().QueryContext(context.Background(), query)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	for rows.Next() {
		var line string
		if err := rows.Scan(&line); err != nil {
			t.Fatal(err)
		}
		text += line + "\n"
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return text
}
