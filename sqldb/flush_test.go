package sqldb

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
)

// disk keeps what a power cut would leave: the database as of the last sync. It can
// simulate a failure.
type disk struct {
	db    *DB
	dir   string
	syncs int
	fails error
}

func newDisk(t *testing.T) *disk {
	t.Helper()
	db, err := Open(t.Context(), filepath.Join(t.TempDir(), "test.db"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := db.Close(); err != nil {
			t.Error(err)
		}
	})
	d := &disk{db: db, dir: t.TempDir()}
	db.flush.sync = func(f *os.File) error {
		d.syncs++
		if d.fails != nil {
			return d.fails
		}
		return errors.Join(syncData(f), d.keep())
	}
	return d
}

// keep copies database and log. There are no concurrent writes.
func (d *disk) keep() error {
	for _, suffix := range []string{"", "-wal"} {
		content, err := os.ReadFile(d.db.path + suffix)
		if err == nil {
			err = os.WriteFile(filepath.Join(d.dir, "kept.db"+suffix), content, 0o600)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (d *disk) begin(t *testing.T, ahead bool) (*Tx, error) {
	if ahead {
		return d.db.Begin(t.Context(), Ahead)
	}
	return d.db.Begin(t.Context())
}

// insert commits one row, with or without waiting for the sync.
func (d *disk) insert(t *testing.T, name string, ahead bool) error {
	t.Helper()
	tx, err := d.begin(t, ahead)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var b Batch
	b.Exec("INSERT INTO media_types (media_type) VALUES ($1)", name)
	if err := tx.Send(t.Context(), &b); err != nil {
		return err
	}
	return tx.Commit(t.Context())
}

func (d *disk) must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// count returns the number of inserted rows.
func count(t *testing.T, db *DB) (n int) {
	t.Helper()
	if _, err := db.Row(t.Context(), "SELECT count(*) FROM media_types WHERE media_type LIKE 'test/%'", nil, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestFlushSurvivesAPowerCut: a transaction that was committed without a sync is readable
// at once and not yet on the disk. A flush writes all such transactions with one sync.
func TestFlushSurvivesAPowerCut(t *testing.T) {
	d := newDisk(t)
	d.must(t, d.insert(t, "test/1", true))
	d.must(t, d.insert(t, "test/2", true))
	if n := count(t, d.db); n != 2 || d.syncs != 0 {
		t.Errorf("%d rows can be read after %d syncs", n, d.syncs)
	}
	d.must(t, d.db.Flush())
	d.must(t, d.db.Flush()) // nothing to do
	if d.syncs != 1 {
		t.Errorf("%d syncs", d.syncs)
	}
	d.must(t, d.insert(t, "test/3", true)) // the power cut comes before its flush
	kept, err := Open(t.Context(), filepath.Join(d.dir, "kept.db"))
	if err != nil {
		t.Fatal(err)
	}
	if n := count(t, kept); n != 2 {
		t.Errorf("%d rows are there after a power cut", n)
	}
	d.must(t, kept.Close())
}

// TestFlushOfWhatWasRead: a reader may see a commit before it is counted; the reader's
// flush syncs that commit too.
func TestFlushOfWhatWasRead(t *testing.T) {
	d := newDisk(t)
	d.must(t, d.insert(t, "test/1", true))
	d.must(t, d.db.Flush())
	d.db.flush.inFlight.Add(1)
	d.must(t, d.db.Flush())
	if d.syncs != 2 {
		t.Errorf("%d syncs", d.syncs)
	}
	d.db.flush.inFlight.Add(-1)
	d.must(t, d.db.Flush())
	if d.syncs != 2 {
		t.Errorf("%d syncs, with nothing to do", d.syncs)
	}
}

// TestFlushFails: after a failed sync the database refuses writes, because they could
// follow lost ones. Reads continue.
func TestFlushFails(t *testing.T) {
	d := newDisk(t)
	d.must(t, d.insert(t, "test/1", true))
	d.fails = errors.New("no such sector")
	if err := d.db.Flush(); !errors.Is(err, d.fails) {
		t.Errorf("flush: %v", err)
	}
	d.fails = nil
	if err := d.db.Flush(); !errors.Is(err, errLost) {
		t.Errorf("flush again: %v", err)
	}
	for _, ahead := range []bool{true, false} {
		if err := d.insert(t, "test/2", ahead); !errors.Is(err, errLost) {
			t.Errorf("insert, ahead %v: %v", ahead, err)
		}
	}
	if n := count(t, d.db); n != 1 || d.syncs != 1 {
		t.Errorf("%d rows, %d syncs", n, d.syncs)
	}
}

// TestAheadEnds: only the transactions that ask for it commit without a sync.
func TestAheadEnds(t *testing.T) {
	d := newDisk(t)
	level := func(ahead bool, commit bool) (n int64) {
		tx, err := d.begin(t, ahead)
		d.must(t, err)
		defer tx.Rollback()
		var b Batch
		b.Query(func(row Row) error { return row.Scan(&n) }, "PRAGMA synchronous")
		d.must(t, tx.Send(t.Context(), &b))
		if commit {
			d.must(t, tx.Commit(t.Context()))
		}
		return n
	}
	const normal, full = 1, 2
	for i, step := range []struct {
		ahead, commit bool
		want          int64
	}{{true, true, normal}, {false, true, full}, {true, false, normal}, {false, false, full}} {
		if got := level(step.ahead, step.commit); got != step.want {
			t.Errorf("step %d: synchronous is %d, want %d", i, got, step.want)
		}
	}
}

// TestFlushFollowsTheLog: after all connections were closed the log is another file; the
// flush syncs the new file.
func TestFlushFollowsTheLog(t *testing.T) {
	d := newDisk(t)
	d.must(t, d.insert(t, "test/1", true))
	d.must(t, d.db.Flush())
	d.must(t, os.Rename(d.db.path+"-wal", d.db.path+"-old"))
	content, err := os.ReadFile(d.db.path + "-old")
	d.must(t, err)
	d.must(t, os.WriteFile(d.db.path+"-wal", content, 0o600))
	var synced os.FileInfo
	d.db.flush.sync = func(f *os.File) (err error) {
		synced, err = f.Stat()
		return err
	}
	d.db.flush.committed.Add(1)
	d.must(t, d.db.Flush())
	now, err := os.Stat(d.db.path + "-wal")
	d.must(t, err)
	if !os.SameFile(synced, now) {
		t.Error("the old log was synced")
	}
}
