package backup

import (
	"errors"
	"io"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/collect"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

var things = object.Key{Kind: "things.example.com", Namespace: "a"}

func thing(name string) object.Key {
	key := things
	key.Name = name
	return key
}

// world is the data of a server, and a target for its backups.
type world struct {
	*registrytest.World
	server Server
	store  *store.Store
	target string
	empty  string // a database for the next restore, see emptyDatabase
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	t.Parallel()
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			test(newWorld(t, engine))
		})
	}
}

func newWorld(t *testing.T, engine sqldb.Engine) *world {
	t.Helper()
	dir := t.TempDir()
	w := &world{target: filepath.Join(dir, "target")}
	w.server = Server{Data: filepath.Join(dir, "data"), Database: dbtest.Migrated(t, engine)}.WithDefaults()
	for name, content := range map[string]string{"pki/ca.crt": "certificate", "pki/ca.key": "key", "kubeconfig": "login", encryptionFile: "secret"} {
		path := filepath.Join(w.server.Data, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	db := dbtest.Connect(t, w.server.Database)
	w.World = registrytest.New(t, db)
	var err error
	if w.Store, err = blobstore.OpenDir(w.server.Storage); err != nil {
		t.Fatal(err)
	}
	if err := registry.BindBlobStore(t.Context(), db, w.Store, false, slog.New(slog.DiscardHandler)); err != nil {
		t.Fatal(err)
	}
	w.store = storetest.Run(t, store.Options{DB: db})
	return w
}

func (w *world) openTarget() *Target {
	w.Helper()
	t, err := OpenTarget(w.Context(), w.target, true)
	if err != nil {
		w.Fatal(err)
	}
	return t
}

func (w *world) create(o CreateOptions) Result {
	w.Helper()
	made, err := Create(w.Context(), w.server, w.openTarget(), o)
	if err != nil {
		w.Fatal(err)
	}
	return made
}

// restore makes the data of a new server from the newest backup.
func (w *world) restore() (Server, int64) {
	w.Helper()
	t := w.openTarget()
	m, err := t.Find(w.Context(), "")
	if err != nil {
		w.Fatal(err)
	}
	top := w.TempDir()
	to := Server{Data: filepath.Join(top, "data"), Storage: filepath.Join(top, "storage"), Database: filepath.Join(top, "database", "x.db")}
	// Root restores for the user of the service, who owns the folders; others restore for themselves.
	owner := os.Geteuid()
	if owner == 0 {
		owner = 65532
	}
	for _, dir := range []string{to.Data, to.Storage, filepath.Dir(to.Database)} {
		if err := errors.Join(os.Mkdir(dir, 0o700), os.Chown(dir, owner, -1)); err != nil {
			w.Fatal(err)
		}
	}
	if m.Engine == string(sqldb.Postgres) {
		to.Database = dbtest.Open(w, sqldb.Postgres)
	}
	revision, err := Restore(w.Context(), t, m, to, nil)
	if err != nil {
		w.Fatal(err)
	}
	err = filepath.WalkDir(top, func(path string, entry fs.DirEntry, err error) error {
		if err != nil || path == top {
			return err
		}
		info, err := entry.Info()
		if err == nil && int(info.Sys().(*syscall.Stat_t).Uid) != owner {
			w.Errorf("%s does not belong to the owner of the folder", path)
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	return to.WithDefaults(), revision
}

// wantBlob compares the bytes of a blob of a restored server.
func (w *world) wantBlob(s Server, path, content string) {
	w.Helper()
	blobs, err := blobstore.OpenDir(s.Storage)
	if err != nil {
		w.Fatal(err)
	}
	f, err := blobs.Open(w.Context(), path, 0)
	if err != nil {
		w.Fatal(err)
	}
	defer f.Close()
	if got, err := io.ReadAll(f); err != nil || string(got) != content {
		w.Errorf("the blob at %s is %q, want %q: %v", path, got, content, err)
	}
}

// wantWhole checks that every listed backup has its bytes, and that the target has no
// other bytes and no temporary files.
func (w *world) wantWhole(want int) {
	w.Helper()
	t := w.openTarget()
	list, err := t.List(w.Context())
	if err != nil || len(list) != want {
		w.Fatalf("%d backups, want %d: %v", len(list), want, err)
	}
	for _, m := range list {
		if err := t.Verify(w.Context(), m, false, func(err error) { w.Error(err) }, nil); err != nil {
			w.Error(err)
		}
	}
	if rests, err := t.sweep(w.Context()); err != nil || rests != 0 {
		w.Errorf("%d bytes that no backup needs: %v", rests, err)
	}
	if rests, err := filepath.Glob(filepath.Join(w.target, stagingPrefix+"*")); err != nil || len(rests) > 0 {
		w.Errorf("temporary files %v: %v", rests, err)
	}
}

// drop deletes the row of a blob; a trigger queues its bytes for the unlinker.
func (w *world) drop(name string) {
	w.Helper()
	w.Exec(`DELETE FROM blobs WHERE digest = $1`, w.DigestOf(name))
}

// collector returns a collector for which everything in the queues is due.
func (w *world) collector(blobs blobstore.Store) *collect.Collector {
	w.Helper()
	c, err := collect.New(w.DB, blobs, collect.Options{
		Logger: slog.New(slog.DiscardHandler), Now: func() time.Time { return time.Now().Add(1000 * time.Hour) },
	})
	if err != nil {
		w.Fatal(err)
	}
	return c
}

// collect lets a collector work once.
func (w *world) collect(c *collect.Collector) {
	w.Helper()
	if _, err := c.RunOne(w.Context()); err != nil {
		w.Error(err)
	}
}

// stored reports whether the server has bytes at a path.
func (w *world) stored(path string) bool {
	w.Helper()
	_, err := w.Store.Stat(w.Context(), path)
	if err != nil && !strings.Contains(err.Error(), blobstore.ErrNotFound.Error()) {
		w.Fatal(err)
	}
	return err == nil
}
