package registry

import (
	"errors"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// The races between pushes and the removal of a Repository, each with the
// interleaving forced, on PostgreSQL. Package collect has those with its reviews.

// raceWorld is a registry, and its rows.
type raceWorld struct {
	*registrytest.World
	r *Registry
}

func newRaceWorld(t *testing.T) *raceWorld {
	t.Helper()
	t.Parallel()
	w := registrytest.New(t, dbtest.OpenDB(t, sqldb.Postgres))
	return &raceWorld{w, New(Config{DB: w.DB, Blobs: w.Store, SmallBlobs: -1})}
}

// TestRaceRemovalDuringPush: the removal waits for the push, and removes the
// pushed content too.
func TestRaceRemovalDuringPush(t *testing.T) {
	w := newRaceWorld(t)
	manifest := w.Repository()
	var repo repository
	commit := w.Open(func(tx *sqldb.Tx) (err error) {
		repo, err = w.r.lockTarget(w.Context(), tx, "shop/web")
		return errors.Join(err, tx.Exec(w.Context(), statement.PutTag, repo.namespace, repo.id, "late", manifest, 1))
	})
	removed := w.Begin(func() error { return w.Try(func(b *sqldb.Batch) { b.Exec(registrytest.DeleteObject) }) })
	commit()
	if err := <-removed; err != nil {
		t.Fatal(err)
	}
	w.WantImageAt("@first")
	if n := w.Count(`SELECT count(*) FROM tags t JOIN repositories r ON r.id = t.repository_id WHERE r.path NOT LIKE '@%'`); n != 0 {
		t.Errorf("%d tags can be reached", n)
	}
}

// TestRacePushDuringRemoval: the push waits for the removal, and stores nothing
// in the removed repository.
func TestRacePushDuringRemoval(t *testing.T) {
	w := newRaceWorld(t)
	w.Repository()
	commit := w.Open(func(tx *sqldb.Tx) error { return tx.Exec(w.Context(), registrytest.DeleteObject) })
	pushed := w.Begin(func() error { return w.lock() })
	commit()
	if err := <-pushed; !errors.Is(err, errNoTarget) {
		t.Errorf("push: %v", err)
	}
	w.WantImageAt("@first")
}

// TestRacePushDuringMark: the push waits until the object is DELETING, and is
// refused.
func TestRacePushDuringMark(t *testing.T) {
	w := newRaceWorld(t)
	w.Repository()
	commit := w.Open(func(tx *sqldb.Tx) error {
		return tx.Exec(w.Context(), `UPDATE objects SET deletion_time = 1 WHERE uid = 'first'`)
	})
	pushed := w.Begin(func() error { return w.lock() })
	commit()
	var refused *Error
	if err := <-pushed; !errors.As(err, &refused) || refused.Code != Denied {
		t.Errorf("push: %v", err)
	}
}

// TestRaceUploadBeginsDuringRemoval: an upload has found the repository, and
// waits while its row is deleted. It is refused.
func TestRaceUploadBeginsDuringRemoval(t *testing.T) {
	w := newRaceWorld(t)
	w.Repo("to")
	commit := w.Open(func(tx *sqldb.Tx) error { return tx.Exec(w.Context(), `DELETE FROM repositories WHERE path = 'to'`) })
	done := w.Begin(func() error {
		_, err := w.r.begin(w.Context(), Request{Repository: "to", Upload: "begun"}, digest.SHA256, true)
		return err
	})
	commit()
	var refused *Error
	if err := <-done; !errors.As(err, &refused) || refused.Code != Denied {
		t.Errorf("begun: %v", err)
	}
}

// TestRaceMountDuringRemoval: the same for a mount. Nothing is mounted, and the
// client uploads.
func TestRaceMountDuringRemoval(t *testing.T) {
	w := newRaceWorld(t)
	w.Blob("from", "l")
	w.Repo("to")
	commit := w.Open(func(tx *sqldb.Tx) error { return tx.Exec(w.Context(), `DELETE FROM repositories WHERE path = 'to'`) })
	var mounted digest.Digest
	done := w.Begin(func() (err error) {
		mounted, err = w.r.mount(w.Context(), Request{Repository: "to"}, "from", w.DigestOf("l"))
		return err
	})
	commit()
	if err := <-done; err != nil || mounted != "" {
		t.Errorf("mounted %q: %v", mounted, err)
	}
}

// lock runs the first statements of a push.
func (w *raceWorld) lock() error {
	return w.r.writer.do(w.Context(), func(tx *sqldb.Tx) error {
		_, err := w.r.lockTarget(w.Context(), tx, "shop/web")
		return err
	})
}
