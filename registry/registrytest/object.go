package registrytest

import (
	"context"
	"errors"

	"github.com/exeunt/exeunt/sqldb"
)

// The rows of the object of the repository shop/web, without a store: tests hold
// its transactions open.
const (
	insertObject = `INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES ($1, $2, 'repositories.registry.exeunt.dev', 'shop', 'web', $1)`
	insertChange = `
INSERT INTO changes (revision, object, uid, kind, namespace, name, type, body)
VALUES ($1, $1, $2, 'repositories.registry.exeunt.dev', 'shop', 'web', 1, $3)`
	objectBody = `{"spec":{"path":"shop/web"}}`

	// ArchiveObject archives the object before DeleteObject removes it.
	ArchiveObject = `
INSERT INTO archive (id, uid, kind, namespace, name, removed_at, actor, cascade, size)
VALUES (9, 'first', 'repositories.registry.exeunt.dev', 'shop', 'web', 0, '', 'first', 0)`
	DeleteObject = `DELETE FROM objects WHERE uid = 'first'`
)

// Object creates the Repository shop/web, with the uid first.
func (w *World) Object() {
	w.Helper()
	w.Transact(func(b *sqldb.Batch) {
		b.Exec(insertObject, 1, "first")
		b.Exec(insertChange, 1, "first", []byte(objectBody))
	})
}

// Repository creates the Repository shop/web with one image, and returns the id of
// its manifest.
func (w *World) Repository() (manifest int64) {
	w.Helper()
	w.Object()
	return w.Push(Image{Repo: "shop/web", Name: "m", Config: "c", Layers: []string{"l"}, Tags: []string{"t"}})
}

// Restore restores the object from the archive, with the uid second.
func Restore(ctx context.Context, tx *sqldb.Tx) error {
	return errors.Join(
		tx.Exec(ctx, `UPDATE archive SET restored_as = 'second' WHERE id = 9`),
		tx.Exec(ctx, insertObject, 2, "second"), tx.Exec(ctx, insertChange, 2, "second", []byte(objectBody)))
}

// WantImageAt compares the path of the repository that has the image of Repository.
func (w *World) WantImageAt(want string) {
	w.Helper()
	var got string
	if _, err := w.DB.Row(w.Context(), `SELECT r.path FROM repositories r JOIN tags t ON t.repository_id = r.id WHERE t.name = 't'`, nil, &got); err != nil {
		w.Fatal(err)
	}
	if got != want {
		w.Errorf("the image is at %q, not %q", got, want)
	}
}
