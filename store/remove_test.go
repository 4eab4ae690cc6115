package store

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
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
		for _, few := range []int{minSet, minSet + 4} { // of one cause, and of several
			if set := removeThrough(t, dbtest.OpenDB(t, db.Engine()), few); one != set {
				t.Errorf("one by one:\n%s\nas sets of %d:\n%s", one, few, set)
			}
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
	odd := "odd"
	if db.Engine() == sqldb.SQLite {
		odd = "o\x00dd" // has no place in JSON, and PostgreSQL refuses it
	}
	from := s.Revision()
	err := s.Transact(t.Context(), func(tx *Tx) error {
		if err := tx.SetCause(t.Context(), "tester", "cause"); err != nil {
			return err
		}
		for i, o := range all {
			if actor := map[int]string{4: `an"other`, 6: odd}[i]; actor != "" {
				if err := tx.SetCause(t.Context(), actor, "cause "+strconv.Itoa(i)); err != nil {
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
	return dumpTables(t, db)
}

// dumpTables is every column of every row that writes of objects leave, in the order of the lines. A review is due by the
// clock of the database, and its other columns are those of its queue.
func dumpTables(t *testing.T, db *sqldb.DB) string {
	t.Helper()
	var lines []string
	for _, table := range []string{"revision", "objects", "changes", "owners", "archive", "archive_cascades", "dropped_references", "object_expiries", "gc_object_reviews"} {
		columns := "*"
		if table == "gc_object_reviews" {
			columns = "uid, event"
		}
		lines = append(lines, dumpTable(t, db, table, columns)...)
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n")
}

func dumpTable(t *testing.T, db *sqldb.DB, table, columns string) (lines []string) {
	t.Helper()
	rows, err := db.Reader().QueryContext(t.Context(), "SELECT "+columns+" FROM "+table)
	if err != nil {
		t.Fatal(err)
	}
	defer rows.Close()
	names, err := rows.Columns()
	for err == nil && rows.Next() {
		values, to := make([]any, len(names)), make([]any, len(names))
		for i := range values {
			to[i] = &values[i]
		}
		err = rows.Scan(to...)
		line := table
		for i, v := range values {
			if bytes, ok := v.([]byte); ok {
				v = string(bytes)
			}
			line += fmt.Sprintf(" %s=%v", names[i], v)
		}
		lines = append(lines, line)
	}
	if err := errors.Join(err, rows.Err()); err != nil {
		t.Fatal(err)
	}
	return lines
}
