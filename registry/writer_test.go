package registry

import (
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func countTypes(t *testing.T, db *sqldb.DB) (n int) {
	t.Helper()
	if _, err := db.Row(t.Context(), `SELECT count(*) FROM media_types WHERE media_type LIKE 'test/%'`, nil, &n); err != nil {
		t.Fatal(err)
	}
	return n
}

// TestWriterTogether: writes that run together fail alone.
func TestWriterTogether(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := &writer{db: db, log: slog.New(slog.DiscardHandler)}
		refused := errors.New("no")
		const writes = 60
		var together sync.WaitGroup
		errs := make([]error, writes)
		for i := range writes {
			together.Go(func() {
				errs[i] = w.do(t.Context(), func(tx *sqldb.Tx) error {
					if err := exec(t.Context(), tx, insertMediaType, fmt.Sprint("test/", i)); err != nil {
						return err
					}
					switch i % 3 {
					case 1:
						return refused
					case 2:
						return exec(t.Context(), tx, `INSERT INTO media_types (media_type) VALUES (NULL)`)
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

// TestWriterCommitFails: a commit that fails fails all that were in it, and the
// next one works.
func TestWriterCommitFails(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		w := &writer{db: db, log: slog.New(slog.DiscardHandler)}
		ctx := t.Context()
		r := New(Config{DB: db})
		repo, err := r.ensure(ctx, "a/b")
		if err != nil {
			t.Fatal(err)
		}
		err = w.do(ctx, func(tx *sqldb.Tx) error {
			if err := exec(ctx, tx, insertMediaType, "test/lost"); err != nil {
				return err
			}
			var parent int64
			_, err := one(ctx, tx, insertManifest, []any{repo.namespace, repo.id, "sha256:0", 3, nil, nil, nil, nil, 0, []byte("{}"), 1}, &parent)
			if err != nil {
				return err
			}
			// The child does not exist, which is found out at the end.
			return exec(ctx, tx, `INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id) VALUES ($1, $2, $3, 4711)`,
				repo.namespace, repo.id, parent)
		})
		if err == nil || countTypes(t, db) != 0 {
			t.Errorf("a commit that cannot be: %v", err)
		}
		err = w.do(ctx, func(tx *sqldb.Tx) error { return exec(ctx, tx, insertMediaType, "test/next") })
		if err != nil || countTypes(t, db) != 1 {
			t.Errorf("the next one: %v", err)
		}
	})
}
