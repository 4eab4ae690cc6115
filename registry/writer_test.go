package registry

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime"
	"sync"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const insertMediaType = `INSERT INTO media_types (media_type) VALUES ($1) ON CONFLICT (media_type) DO NOTHING`

func countTypes(t *testing.T, db *sqldb.DB) (n int) {
	t.Helper()
	if _, err := db.Row(t.Context(), `SELECT count(*) FROM media_types WHERE media_type LIKE 'test/%'`, nil, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWriterTogether: a write that fails does not fail the others of its batch.
func TestWriterTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWriter(db, slog.New(slog.DiscardHandler))
		refused := errors.New("no")
		const writes = 60
		var together sync.WaitGroup
		errs := make([]error, writes)
		for i := range writes {
			together.Go(func() {
				errs[i] = w.do(t.Context(), func(tx *sqldb.Tx) error {
					if err := tx.Exec(t.Context(), insertMediaType, fmt.Sprint("test/", i)); err != nil {
						return err
					}
					switch i % 3 {
					case 1:
						return refused
					case 2:
						return tx.Exec(t.Context(), `INSERT INTO media_types (media_type) VALUES (NULL)`)
					}
					return nil
				})
			})
		}
		together.Wait()
		for i, err := range errs {
			if ok := err == nil; ok != (i%3 == 0) || i%3 == 1 && !errors.Is(err, refused) {
				t.Errorf("write %d: %v", i, err)
			}
		}
		if n := countTypes(t, db); n != writes/3 {
			t.Errorf("%d of %d writes are there", n, writes/3)
		}
		if w.busy || len(w.queue) != 0 {
			t.Errorf("busy %v, %d waiting", w.busy, len(w.queue))
		}
	})
}

// TestWriterCommitFails: a failed commit fails all writes of the batch, and the
// next commit works.
func TestWriterCommitFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := newWriter(db, slog.New(slog.DiscardHandler))
		ctx := t.Context()
		r := New(Config{DB: db})
		repo, err := r.ensure(ctx, Request{Repository: "a/b", client: anyone{}})
		if err != nil {
			t.Fatal(err)
		}
		err = w.do(ctx, func(tx *sqldb.Tx) error {
			if err := tx.Exec(ctx, insertMediaType, "test/lost"); err != nil {
				return err
			}
			var parent int64
			_, err := sqldb.First(ctx, tx, []any{&parent}, statement.InsertManifest, repo.namespace, repo.id, "sha256:0", 3, nil, nil, nil, nil, 0, []byte("{}"), 1)
			if err != nil {
				return err
			}
			// The child does not exist, which the commit finds.
			return tx.Exec(ctx, `INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id) VALUES ($1, $2, $3, 4711)`,
				repo.namespace, repo.id, parent)
		})
		if err == nil || countTypes(t, db) != 0 {
			t.Errorf("a commit that must fail: %v", err)
		}
		err = w.do(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, insertMediaType, "test/next") })
		if err != nil || countTypes(t, db) != 1 {
			t.Errorf("the next one: %v", err)
		}
	})
}

// TestWriterWaitsForTheDisk: a write returns when it is durable. Meanwhile the
// next batch runs, and no third one: later writes wait, and become one batch.
func TestWriterWaitsForTheDisk(t *testing.T) {
	w := newWriter(dbtest.OpenDB(t, sqldb.SQLite), slog.New(slog.DiscardHandler))
	disk := make(chan error)
	w.flush = func() error { return <-disk }
	ran, done := make(chan int, 10), make(chan error, 10)
	write := func(n int) {
		done <- w.do(t.Context(), func(tx *sqldb.Tx) error {
			ran <- n
			return tx.Exec(t.Context(), insertMediaType, fmt.Sprint("test/", n))
		})
	}
	go write(1)
	<-ran
	go write(2) // while the disk syncs the first
	<-ran
	for n := 3; n <= 5; n++ {
		go write(n)
	}
	waiting := func() int {
		w.mu.Lock()
		defer w.mu.Unlock()
		return len(w.queue)
	}
	for waiting() < 3 {
		runtime.Gosched()
	}
	if len(ran) != 0 || len(done) != 0 {
		t.Errorf("%d ran and %d returned before the sync ended", len(ran), len(done))
	}
	for batch, writes := range []int{1, 1, 3} {
		disk <- nil
		for range writes {
			if err := <-done; err != nil {
				t.Errorf("batch %d: %v", batch, err)
			}
		}
	}
	if n := countTypes(t, w.db); n != 5 || len(done) != 0 {
		t.Errorf("%d writes are there, %d are done", n, len(done))
	}
}

// TestWriterDiskFails: a write that may not be durable returns an error.
func TestWriterDiskFails(t *testing.T) {
	w := newWriter(dbtest.OpenDB(t, sqldb.SQLite), slog.New(slog.DiscardHandler))
	broken := errors.New("no such sector")
	w.flush = func() error { return broken }
	err := w.do(t.Context(), func(tx *sqldb.Tx) error { return tx.Exec(t.Context(), insertMediaType, "test/lost") })
	if !errors.Is(err, broken) {
		t.Errorf("a write that is not durable: %v", err)
	}
}

// TestWriterSoon: a write that need not be durable returns although the disk hangs, and the next
// one that must be waits for the disk.
func TestWriterSoon(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	w := newWriter(db, slog.New(slog.DiscardHandler))
	disk := make(chan error)
	w.flush = func() error { return <-disk }
	insert := func(name string) func(tx *sqldb.Tx) error {
		return func(tx *sqldb.Tx) error { return tx.Exec(t.Context(), insertMediaType, name) }
	}
	if err := w.doSoon(t.Context(), insert("test/soon")); err != nil || countTypes(t, db) != 1 {
		t.Fatalf("a write that does not wait for the disk: %v", err)
	}
	done := make(chan error, 1)
	go func() { done <- w.do(t.Context(), insert("test/durable")) }()
	disk <- nil // the write asks for it
	if err := <-done; err != nil || countTypes(t, db) != 2 {
		t.Errorf("the next write: %v", err)
	}
	failed := errors.New("refused")
	if err := w.doSoon(t.Context(), func(*sqldb.Tx) error { return failed }); !errors.Is(err, failed) {
		t.Errorf("a refused write answers %v", err)
	}
}

// TestWriterDurability: on PostgreSQL a write waits for the disk, unless it need not be durable.
func TestWriterDurability(t *testing.T) {
	w := newWriter(dbtest.OpenSynced(t), slog.New(slog.DiscardHandler))
	for want, do := range map[string]func(context.Context, func(*sqldb.Tx) error) error{"on": w.do, "off": w.doSoon} {
		var got string
		err := do(t.Context(), func(tx *sqldb.Tx) error {
			_, err := sqldb.First(t.Context(), tx, []any{&got}, "SELECT current_setting('synchronous_commit')")
			return err
		})
		if err != nil || got != want {
			t.Errorf("synchronous_commit is %q (%v), want %s", got, err, want)
		}
	}
}

// TestPromiseIsDurable: a client learns that a manifest exists when its push is durable, also if
// that push has not been answered yet.
func TestPromiseIsDurable(t *testing.T) {
	db := dbtest.OpenDB(t, sqldb.SQLite)
	ctx, r := t.Context(), New(Config{DB: db})
	repo, err := r.ensure(ctx, Request{Repository: "a/b", client: anyone{}})
	if err != nil {
		t.Fatal(err)
	}
	var disk error
	synced := 0
	r.writer.flush = func() error { synced++; return disk }
	pushed := digest.FromString("{}")
	err = r.writer.doSoon(ctx, func(tx *sqldb.Tx) error {
		var id int64
		_, err := sqldb.First(ctx, tx, []any{&id}, statement.InsertManifest, repo.namespace, repo.id, pushed.String(), 3, nil, nil, nil, nil, 0, []byte("{}"), 1)
		return err
	})
	if err != nil || synced != 0 {
		t.Fatalf("a push that is not durable yet: %v; %d syncs", err, synced)
	}
	if _, found, err := r.promiseManifest(ctx, Request{Repository: "a/b", Digest: pushed}); err != nil || !found || synced != 1 {
		t.Errorf("found %v after %d syncs, want one: %v", found, synced, err)
	}
	disk = errors.New("broken")
	if _, _, err := r.promiseManifest(ctx, Request{Repository: "a/b", Digest: pushed}); !errors.Is(err, disk) {
		t.Errorf("with a broken disk: %v", err)
	}
}
