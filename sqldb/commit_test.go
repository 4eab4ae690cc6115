package sqldb_test

import (
	"context"
	"errors"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const (
	readCurrent = "SELECT current FROM revision"
	setCurrent  = "UPDATE revision SET current = $1"
)

func begin(t *testing.T, db *sqldb.DB) *sqldb.Tx {
	t.Helper()
	tx, err := db.Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	return tx
}

// TestSendAndCommit: by SendAndCommit, and by SendLast and Commit. The statements are committed, or one is refused and none is. The connection
// works on.
func TestSendAndCommit(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for name, test := range map[string]struct {
			second  string
			row     func(sqldb.Row) error
			refused bool
			want    int64
		}{
			"all work":               {second: "UPDATE revision SET quotas = 1", want: 7},
			"the last is refused":    {second: "UPDATE revision SET current = NULL", refused: true},
			"one is no statement":    {second: "UPDATE nothing SET x = 1", refused: true},
			"a row is read":          {second: readCurrent, row: func(r sqldb.Row) error { return r.Scan(new(int64)) }, want: 7},
			"a row function refuses": {second: readCurrent, row: func(sqldb.Row) error { return errors.New("no") }, refused: true},
		} {
			run := func(t *testing.T, finish func(*sqldb.Tx, *sqldb.Batch) error) {
				t.Helper()
				if err := db.Transact(t.Context(), func(tx *sqldb.Tx) error { return tx.Exec(t.Context(), setCurrent, int64(0)) }); err != nil {
					t.Fatal(err)
				}
				tx := begin(t, db)
				defer tx.Rollback()
				var b sqldb.Batch
				b.Exec(setCurrent, int64(7))
				if test.row == nil {
					b.Exec(test.second)
				} else {
					b.Query(test.row, test.second)
				}
				err := finish(tx, &b)
				if refused := new(sqldb.RefusedError); errors.As(err, &refused) != test.refused || err != nil != test.refused {
					t.Errorf("got %v, want refused: %v", err, test.refused)
				}
				tx.Rollback()
				if got := current(t, db); got != test.want {
					t.Errorf("got revision %d, want %d", got, test.want)
				}
			}
			t.Run(name, func(t *testing.T) {
				run(t, func(tx *sqldb.Tx, b *sqldb.Batch) error { return tx.SendAndCommit(t.Context(), b) })
			})
			if test.row != nil {
				continue
			}
			t.Run(name+", with the commit", func(t *testing.T) {
				run(t, func(tx *sqldb.Tx, b *sqldb.Batch) error {
					if err := tx.SendLast(t.Context(), b); err != nil {
						return err
					}
					return tx.Commit(t.Context())
				})
			})
		}
	})
}

// TestCommitWithoutAnAnswer: if the connection breaks after the statements and COMMIT were sent,
// PostgreSQL may carry them out. So the error is not a RefusedError.
func TestCommitWithoutAnAnswer(t *testing.T) {
	way := dbtest.NewWay(t)
	db := dbtest.Connect(t, way.Database)
	other := dbtest.Connect(t, way.Direct)
	blocker := begin(t, other)
	if err := blocker.Exec(t.Context(), setCurrent, int64(1)); err != nil {
		t.Fatal(err)
	}
	tx := begin(t, db)
	defer tx.Rollback()
	var b sqldb.Batch
	b.Exec(setCurrent, int64(7))
	done := make(chan error, 1)
	go func() { done <- tx.SendAndCommit(context.Background(), &b) }()
	for waiting := int64(0); waiting == 0; {
		const locked = "SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
		if _, err := other.Row(t.Context(), locked, nil, &waiting); err != nil {
			t.Fatal(err)
		}
	}
	way.Close()
	err := <-done
	if refused := new(sqldb.RefusedError); err == nil || errors.As(err, &refused) {
		t.Errorf("got %v, want an error that is no refusal", err)
	}
	blocker.Rollback()
	for current(t, other) != 7 {
		if t.Context().Err() != nil {
			t.Fatal("it was not carried out: the test is void")
		}
	}
}

// TestFound: by Send, and with the commit.
func TestFound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for _, last := range []bool{false, true} {
			tx := begin(t, db)
			defer tx.Rollback()
			there, absent := false, true
			var b sqldb.Batch
			b.Found(&there, "UPDATE revision SET current = $1 WHERE current > 0 RETURNING 1", int64(7))
			b.Exec("UPDATE revision SET quotas = 1")
			b.Found(&absent, "UPDATE revision SET current = $1 WHERE current < 0 RETURNING 1", int64(8))
			send := tx.Send
			if last {
				send = tx.SendLast
			}
			if err := errors.Join(send(t.Context(), &b), tx.Commit(t.Context())); err != nil {
				t.Fatal(err)
			}
			if !there || absent || current(t, db) != 7 {
				t.Errorf("with the commit: %v: found %v and %v", last, there, absent)
			}
		}
	})
}
