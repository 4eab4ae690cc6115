package registrytest

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// Repo finds or creates a repository.
func (w *World) Repo(path string) int64 {
	w.Helper()
	if id := w.Repos[path]; id != 0 {
		return id
	}
	namespace, _, _ := strings.Cut(path, "/")
	now := time.Now().UnixMilli()
	var id int64
	w.Transact(func(b *sqldb.Batch) {
		b.Exec(statement.InsertNamespace, namespace, now)
		b.Exec(statement.InsertRepository, namespace, path, now)
		b.Query(func(row sqldb.Row) error { return row.Scan(&id, new(int64)) }, statement.FindRepository, path)
	})
	w.Repos[path] = id
	return id
}

// Blob uploads a blob: bytes, row and link.
func (w *World) Blob(repo, name string) {
	w.Helper()
	path, id, now := w.Bytes(name), w.Repo(repo), time.Now().UnixMilli()
	w.Paths[name] = path
	w.Transact(func(b *sqldb.Batch) {
		b.Exec(statement.InsertBlob, w.DigestOf(name), path, len(name), now, false)
		b.Exec(statement.LinkBlob, 1, id, w.DigestOf(name), now)
	})
}

// Small uploads a blob that is stored in the database.
func (w *World) Small(repo, name string) {
	w.Helper()
	id, now := w.Repo(repo), time.Now().UnixMilli()
	w.Transact(func(b *sqldb.Batch) {
		b.Exec(statement.InsertBlob, w.DigestOf(name), "at-"+name, len(name), now, true)
		b.Exec(statement.InsertSmall, w.DigestOf(name), []byte(name), "at-"+name)
		b.Exec(statement.LinkBlob, 1, id, w.DigestOf(name), now)
	})
}

// Image is a manifest to push.
type Image struct {
	Repo, Name, Config, Subject string
	Layers, Children, Tags      []string
}

// Push uploads the missing blobs, and the manifest.
func (w *World) Push(m Image) (id int64) {
	w.Helper()
	for _, name := range append(slices.Clone(m.Layers), m.Config) {
		if name != "" && w.Count(`SELECT count(*) FROM blobs WHERE digest = $1`, w.DigestOf(name)) == 0 {
			w.Blob(m.Repo, name)
		}
	}
	w.Repo(m.Repo)
	if err := w.TryPush(m, &id); err != nil {
		w.Fatal(err)
	}
	return id
}

// TryPush is the transaction of a push, with the statements of the registry.
func (w *World) TryPush(m Image, id *int64) error {
	return w.DB.Transact(w.Context(), func(tx *sqldb.Tx) error { return w.SendPush(tx, m, id) })
}

// SendPush sends the statements of a push.
func (w *World) SendPush(tx *sqldb.Tx, m Image, id *int64) error {
	repo, now := w.Repos[m.Repo], time.Now().UnixMilli()
	children, err := w.share(tx, repo, m.Children)
	if err != nil {
		return err
	}
	var b sqldb.Batch
	var config *int64 // null: none
	if m.Config != "" {
		config = new(int64) // an id that no blob has
		b.Query(func(row sqldb.Row) error { return row.Scan(config) }, `SELECT id FROM blobs WHERE digest = $1`, w.DigestOf(m.Config))
		if err := tx.Send(w.Context(), &b); err != nil {
			return err
		}
		b = sqldb.Batch{}
	}
	b.Query(func(row sqldb.Row) error { return row.Scan(id) }, statement.InsertManifest, 1, repo, w.DigestOf(m.Name), 2, nil,
		orNull(w.DigestOf(m.Subject)), nil, config, 0, []byte("{}"), now)
	if err := tx.Send(w.Context(), &b); err != nil {
		return err
	}
	b = sqldb.Batch{}
	for _, layer := range m.Layers {
		b.Exec(`INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)
			VALUES (1, $1, $2, (SELECT id FROM blobs WHERE digest = $3), 8, 0) ON CONFLICT (manifest_id, blob_id) DO NOTHING`, repo, *id, w.DigestOf(layer))
	}
	for _, child := range children {
		b.Exec(`INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id)
			VALUES (1, $1, $2, $3) ON CONFLICT (parent_id, child_id) DO NOTHING`, repo, *id, child)
	}
	for _, tag := range m.Tags {
		b.Exec(statement.PutTag, 1, repo, tag, *id, now)
	}
	return tx.Send(w.Context(), &b)
}

// ErrChildUnknown: a manifest of a list does not exist.
var ErrChildUnknown = errors.New("a manifest of the list is not there")

// share finds the manifests of a list and locks them.
func (w *World) share(tx *sqldb.Tx, repo int64, children []string) (ids []int64, err error) {
	if len(children) == 0 {
		return nil, nil
	}
	share := statement.ShareManifestsSQLite
	if w.DB.Engine() == sqldb.Postgres {
		share = statement.ShareManifestsPostgres
	}
	var digests []string
	for _, name := range children {
		digests = append(digests, w.DigestOf(name))
	}
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var id int64
		err := row.Scan(new(string), &id)
		ids = append(ids, id)
		return err
	}, share, repo, sqldb.JSON(digests))
	if err := tx.Send(w.Context(), &b); err != nil {
		return nil, err
	}
	if len(ids) != len(children) {
		return nil, ErrChildUnknown
	}
	return ids, nil
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

// Untag deletes a tag.
func (w *World) Untag(repo, tag string) {
	w.Helper()
	w.Exec(statement.DeleteTag, repo, tag)
}

// DeleteManifest deletes a manifest.
func (w *World) DeleteManifest(repo, name string) {
	w.Helper()
	w.Exec(`DELETE FROM manifests WHERE repository_id = $1 AND digest = $2`, w.Repos[repo], w.DigestOf(name))
}
