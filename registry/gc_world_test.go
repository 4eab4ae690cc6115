package registry

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// gcWorld is a registry at the level of its rows. Tests name blobs and
// manifests; their digests are derived from the names.
type gcWorld struct {
	*testing.T
	db    *sqldb.DB
	store *blobstore.Dir
	c     *Collector

	mu    sync.Mutex
	ahead time.Duration // how far the collector's clock is ahead of the database's; guarded by mu

	repos map[string]int64  // ids by path
	names map[string]string // by digest
	paths map[string]string // of blobs, by name: the latest
}

func eachGC(t *testing.T, test func(w *gcWorld)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(newGCWorld(t, db, Options{})) })
}

func newGCWorld(t *testing.T, db *sqldb.DB, o Options) *gcWorld {
	t.Helper()
	store, err := blobstore.OpenDir(filepath.Join(t.TempDir(), "blobs"))
	if err != nil {
		t.Fatal(err)
	}
	w := &gcWorld{
		T: t, db: db, store: store,
		repos: map[string]int64{}, names: map[string]string{}, paths: map[string]string{},
	}
	w.with(o)
	return w
}

// with replaces the collector of the world.
func (w *gcWorld) with(o Options) {
	w.Helper()
	o.Now, o.Logger = w.now, slog.New(slog.DiscardHandler)
	var err error
	if w.c, err = NewCollector(w.db, w.store, o); err != nil {
		w.Fatal(err)
	}
	if err := w.c.configure(w.Context()); err != nil {
		w.Fatal(err)
	}
}

func (w *gcWorld) now() time.Time {
	w.mu.Lock()
	defer w.mu.Unlock()
	return time.Now().Add(w.ahead)
}

// later moves the collector's clock forward.
func (w *gcWorld) later(d time.Duration) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.ahead += d
}

// digestOf returns the digest of a name.
func (w *gcWorld) digestOf(name string) string {
	if name == "" {
		return ""
	}
	d := digest.FromString(name).String()
	w.names[d] = name
	return d
}

// patience is how long a test waits for an event.
const patience = time.Minute

// until waits until a condition is true.
func (w *gcWorld) until(what string, is func() bool) {
	w.Helper()
	for deadline := time.Now().Add(patience); !is(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			w.Fatalf("not within %s: %s", patience, what)
		}
	}
}

// ended waits for the end of a Run, and returns its error.
func (w *gcWorld) ended(result <-chan error) error {
	w.Helper()
	select {
	case err := <-result:
		return err
	case <-time.After(patience):
		w.Fatalf("Run has not ended within %s", patience)
		return nil
	}
}

// transact sends statements in one transaction.
func (w *gcWorld) transact(fn func(b *sqldb.Batch)) {
	w.Helper()
	if err := w.try(fn); err != nil {
		w.Fatal(err)
	}
}

func (w *gcWorld) try(fn func(b *sqldb.Batch)) error {
	tx, err := w.db.Begin(w.Context())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	var b sqldb.Batch
	fn(&b)
	if err := tx.Send(w.Context(), &b); err != nil {
		return err
	}
	return tx.Commit(w.Context())
}

func (w *gcWorld) exec(statement string, args ...any) {
	w.Helper()
	w.transact(func(b *sqldb.Batch) { b.Exec(statement, args...) })
}

// repo finds or creates a repository.
func (w *gcWorld) repo(path string) int64 {
	w.Helper()
	if id := w.repos[path]; id != 0 {
		return id
	}
	namespace, _, _ := strings.Cut(path, "/")
	now := time.Now().UnixMilli()
	var id int64
	w.transact(func(b *sqldb.Batch) {
		b.Exec(insertNamespace, namespace, now)
		b.Exec(insertRepository, namespace, path, now)
		b.Query(func(row sqldb.Row) error { return row.Scan(&id, new(int64)) }, findRepository, path)
	})
	w.repos[path] = id
	return id
}

// bytes stores a text and returns its path.
func (w *gcWorld) bytes(text string) string {
	w.Helper()
	upload, err := w.store.Create(w.Context())
	if err != nil {
		w.Fatal(err)
	}
	_, err = io.WriteString(upload, text)
	if err := errors.Join(err, upload.Sync(), upload.Close()); err != nil {
		w.Fatal(err)
	}
	return upload.Path()
}

// blob uploads a blob: bytes, row and link.
func (w *gcWorld) blob(repo, name string) {
	w.Helper()
	path, id, now := w.bytes(name), w.repo(repo), time.Now().UnixMilli()
	w.paths[name] = path
	w.transact(func(b *sqldb.Batch) {
		b.Exec(insertBlob, w.digestOf(name), path, len(name), now, false)
		b.Exec(linkBlob, 1, id, w.digestOf(name), now)
	})
}

// small uploads a blob that is stored in the database.
func (w *gcWorld) small(repo, name string) {
	w.Helper()
	id, now := w.repo(repo), time.Now().UnixMilli()
	w.transact(func(b *sqldb.Batch) {
		b.Exec(insertBlob, w.digestOf(name), "at-"+name, len(name), now, true)
		b.Exec(insertSmall, w.digestOf(name), []byte(name), "at-"+name)
		b.Exec(linkBlob, 1, id, w.digestOf(name), now)
	})
}

// image is a manifest to push.
type image struct {
	repo, name, config, subject string
	layers, children, tags      []string
}

// push uploads the missing blobs, and the manifest.
func (w *gcWorld) push(m image) (id int64) {
	w.Helper()
	for _, name := range append(slices.Clone(m.layers), m.config) {
		if name != "" && w.count(`SELECT count(*) FROM blobs WHERE digest = $1`, w.digestOf(name)) == 0 {
			w.blob(m.repo, name)
		}
	}
	w.repo(m.repo)
	if err := w.tryPush(m, &id); err != nil {
		w.Fatal(err)
	}
	return id
}

// tryPush is the transaction of a push, with the statements of the API.
func (w *gcWorld) tryPush(m image, id *int64) error {
	tx, err := w.db.Begin(w.Context())
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := w.sendPush(tx, m, id); err != nil {
		return err
	}
	return tx.Commit(w.Context())
}

func (w *gcWorld) sendPush(tx *sqldb.Tx, m image, id *int64) error {
	repo, now := w.repos[m.repo], time.Now().UnixMilli()
	children, err := w.share(tx, repo, m.children)
	if err != nil {
		return err
	}
	var b sqldb.Batch
	var config *int64 // null: none
	if m.config != "" {
		config = new(int64) // an id that no blob has
		b.Query(func(row sqldb.Row) error { return row.Scan(config) }, `SELECT id FROM blobs WHERE digest = $1`, w.digestOf(m.config))
		if err := tx.Send(w.Context(), &b); err != nil {
			return err
		}
		b = sqldb.Batch{}
	}
	b.Query(func(row sqldb.Row) error { return row.Scan(id) }, insertManifest, 1, repo, w.digestOf(m.name), 2, nil,
		orNull(w.digestOf(m.subject)), nil, config, 0, []byte("{}"), now)
	if err := tx.Send(w.Context(), &b); err != nil {
		return err
	}
	b = sqldb.Batch{}
	for _, layer := range m.layers {
		b.Exec(`INSERT INTO layers (top_level_namespace_id, repository_id, manifest_id, blob_id, media_type_id, size)
			VALUES (1, $1, $2, (SELECT id FROM blobs WHERE digest = $3), 8, 0) ON CONFLICT (manifest_id, blob_id) DO NOTHING`, repo, *id, w.digestOf(layer))
	}
	for _, child := range children {
		b.Exec(`INSERT INTO manifest_references (top_level_namespace_id, repository_id, parent_id, child_id)
			VALUES (1, $1, $2, $3) ON CONFLICT (parent_id, child_id) DO NOTHING`, repo, *id, child)
	}
	for _, tag := range m.tags {
		b.Exec(putTag, 1, repo, tag, *id, now)
	}
	return tx.Send(w.Context(), &b)
}

var errChildUnknown = errors.New("a manifest of the list is not there")

// share finds the manifests of a list and locks them.
func (w *gcWorld) share(tx *sqldb.Tx, repo int64, children []string) (ids []int64, err error) {
	if len(children) == 0 {
		return nil, nil
	}
	statement := shareManifestsSQLite
	if w.db.Engine() == sqldb.Postgres {
		statement = shareManifestsPostgres
	}
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var id int64
		err := row.Scan(new(string), &id)
		ids = append(ids, id)
		return err
	}, statement, repo, w.digests(children))
	if err := tx.Send(w.Context(), &b); err != nil {
		return nil, err
	}
	if len(ids) != len(children) {
		return nil, errChildUnknown
	}
	return ids, nil
}

// digests encodes a list of names for the statements.
func (w *gcWorld) digests(names []string) string {
	var list []string
	for _, name := range names {
		list = append(list, w.digestOf(name))
	}
	text, err := json.Marshal(list)
	if err != nil {
		w.Fatal(err)
	}
	return string(text)
}

func orNull(text string) any {
	if text == "" {
		return nil
	}
	return text
}

func (w *gcWorld) untag(repo, tag string) {
	w.Helper()
	w.exec(deleteTag, repo, tag)
}

func (w *gcWorld) deleteManifest(repo, name string) {
	w.Helper()
	w.exec(`DELETE FROM manifests WHERE repository_id = $1 AND digest = $2`, w.repos[repo], w.digestOf(name))
}

func (w *gcWorld) count(statement string, args ...any) (n int) {
	w.Helper()
	if _, err := w.db.Row(w.Context(), statement, args, &n); err != nil {
		w.Fatal(err)
	}
	return n
}

// lines reads rows of text as one line each, sorted, with digests replaced by
// their names.
func (w *gcWorld) lines(statement string, args ...any) string {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(w.Context(), statement, args...)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var out []string
	for rows.Next() {
		var text sql.NullString
		if err := rows.Scan(&text); err != nil {
			w.Fatal(err)
		}
		for digest, name := range w.names {
			text.String = strings.ReplaceAll(text.String, digest, name)
		}
		for name, path := range w.paths {
			text.String = strings.ReplaceAll(text.String, path, "bytes-of-"+name)
		}
		for path, id := range w.repos {
			if number, rest, ok := strings.Cut(text.String, "@"); ok && number == fmt.Sprint(id) {
				text.String = path + "@" + rest
			}
		}
		out = append(out, text.String)
	}
	if err := rows.Err(); err != nil {
		w.Fatal(err)
	}
	slices.Sort(out)
	return strings.Join(out, "; ")
}

func (w *gcWorld) wantLines(what, want, statement string, args ...any) {
	w.Helper()
	if diff := cmp.Diff(want, w.lines(statement, args...)); diff != "" {
		w.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

// The queues as text: key, event, time from now, and whether it is claimed.
func (w *gcWorld) wantBlobQueue(want string) {
	w.Helper()
	w.wantQueue("gc_blob_review_queue", "digest", want)
}

func (w *gcWorld) wantManifestQueue(want string) {
	w.Helper()
	w.wantQueue("gc_manifest_review_queue", "manifest", want)
}

func (w *gcWorld) wantUnlinkQueue(want string) {
	w.Helper()
	w.wantQueue("gc_unlink_queue", "path", want)
}

func (w *gcWorld) wantQueue(table, key, want string) {
	w.Helper()
	// Rounded to minutes: the jitter in tests is less than one minute, unless a
	// test says otherwise.
	statement := fmt.Sprintf(`SELECT %s || ' ' || event || ' ' ||
		CASE WHEN review_after < CAST($1 AS bigint) + 1000 THEN 'due' ELSE CAST((review_after - $1 + 60000) / 120000 * 2 AS text) || 'm' END ||
		CASE WHEN claim_token IS NULL THEN '' ELSE ' claimed' END FROM %s`, key, table)
	w.wantLines(table, want, statement, time.Now().UnixMilli())
}

// want compares the manifests, with their tags, and the blobs.
func (w *gcWorld) want(want string) {
	w.Helper()
	w.wantLines("manifests and blobs", want, `
		SELECT CAST(m.repository_id AS text) || '@' || m.digest || coalesce((SELECT ':' || min(t.name) FROM tags t WHERE t.manifest_id = m.id), '') FROM manifests m
		UNION ALL SELECT digest FROM blobs`)
}

// settle moves the clock and runs the collector until it is idle.
func (w *gcWorld) settle(after time.Duration) {
	w.Helper()
	w.later(after)
	for range 50 {
		turn, err := w.c.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if turn.Manifests.Failed+turn.Blobs.Failed+turn.Unlinks.Failed > 0 {
			w.Fatalf("reviews failed: %+v", turn)
		}
		if turn.Idle() {
			return
		}
	}
	w.Fatal("the collector does not come to rest")
}

// drain settles day after day, until the queues are empty.
func (w *gcWorld) drain() {
	w.Helper()
	for range 20 {
		w.settle(25 * time.Hour)
		stats, err := w.c.Stats(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if stats.Manifests.Depth+stats.Blobs.Depth+stats.Unlinks.Depth+stats.Abandoned == 0 {
			w.check()
			return
		}
	}
	w.Fatal("the queues do not empty")
}

// check checks the invariants: every row has its bytes; and, if nothing is
// queued, all bytes have a row.
func (w *gcWorld) check() {
	w.Helper()
	known := map[string]bool{}
	for _, path := range strings.Split(w.raw(`SELECT path FROM blobs`), " ") {
		if path == "" {
			continue
		}
		known[path] = true
		if _, err := w.store.Stat(w.Context(), path); err != nil {
			w.Errorf("a row points at missing bytes: %v", err)
		}
	}
	err := w.store.Walk(w.Context(), func(path string, _ int64, _ time.Time) error {
		if !known[path] {
			w.Errorf("bytes at %s have no row", path)
		}
		return nil
	})
	if err != nil {
		w.Error(err)
	}
}

func (w *gcWorld) raw(statement string) string {
	w.Helper()
	rows, err := w.db.Reader().QueryContext(w.Context(), statement)
	if err != nil {
		w.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var out []string
	for rows.Next() {
		var text string
		if err := rows.Scan(&text); err != nil {
			w.Fatal(err)
		}
		out = append(out, text)
	}
	return strings.Join(out, " ")
}

// delays sets the delays of events.
func (w *gcWorld) delays(delays map[string]time.Duration) {
	w.Helper()
	for event, after := range delays {
		if err := w.c.SetReviewAfter(context.WithoutCancel(w.Context()), event, after); err != nil {
			w.Fatal(err)
		}
	}
}
