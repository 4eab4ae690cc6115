package backup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// files returns all files of the target, by their paths.
func (w *world) files() (paths []string) {
	w.Helper()
	err := filepath.WalkDir(w.target, func(path string, entry fs.DirEntry, err error) error {
		if err == nil && entry.Type().IsRegular() && !strings.Contains(path, "lock") {
			paths = append(paths, path)
		}
		return err
	})
	if err != nil {
		w.Fatal(err)
	}
	slices.Sort(paths)
	return paths
}

// tryRestore restores the newest backup to a new place and returns the error and the place.
func (w *world) tryRestore() (Server, error) {
	w.Helper()
	to := Server{Data: filepath.Join(w.TempDir(), "restored")}
	if w.DB.Engine() == sqldb.Postgres {
		to.Database = w.emptyDatabase()
	}
	target, err := OpenTarget(w.Context(), w.target, false)
	if err != nil {
		return to, err
	}
	m, err := target.Find(w.Context(), "")
	if err != nil {
		return to, err
	}
	_, err = Restore(w.Context(), target, m, to, nil)
	return to, err
}

// emptyDatabase returns an empty database: that of the last restore, if it wrote nothing to it.
// Most restores of a damaged backup end before, and a new database costs much more than the rest.
func (w *world) emptyDatabase() string {
	w.Helper()
	if w.empty != "" {
		if still, err := sqldb.Empty(w.Context(), w.empty); err != nil {
			w.Fatal(err)
		} else if still {
			return w.empty
		}
	}
	w.empty = dbtest.Open(w, sqldb.Postgres)
	return w.empty
}

// wantRefused: a restore failed with a reason, and no server starts in its place.
func (w *world) wantRefused(what string, to Server, err error) {
	w.Helper()
	if !errors.Is(err, ErrDamaged) && !errors.Is(err, blobstore.ErrNotFound) && !errors.Is(err, blobstore.ErrPath) {
		w.Errorf("%s: the restore ended with %v", what, err)
		return
	}
	if _, failed := os.Stat(filepath.Join(to.Data, "exeunt.db")); failed == nil {
		w.Errorf("%s: a refused restore left a database", what)
	}
	_, marked := os.Stat(filepath.Join(to.Data, RestoringFile))
	if entries, _ := os.ReadDir(to.Data); len(entries) > 0 && marked != nil {
		w.Errorf("%s: a server could start in %v", what, entries)
	}
}

// TestTamperedBackup: a backup of which any bit is flipped, or any end is cut off, is not
// restored, and the error says that it is damaged.
func TestTamperedBackup(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		w.Blob("shop/web", strings.Repeat("two", 50_000))
		w.create(CreateOptions{})
		random := rand.New(rand.NewPCG(1, 2))
		for _, path := range w.files() {
			whole, err := os.ReadFile(path)
			if err != nil {
				w.Fatal(err)
			}
			if len(whole) == 0 {
				continue
			}
			tries := 1
			if strings.HasSuffix(path, manifestSuffix) {
				tries = 60 // each of its fields has a meaning of its own
				switch {
				case w.DB.Engine() == sqldb.Postgres && testing.Short():
					tries = 2 // and none of them depends on the engine
				case w.DB.Engine() == sqldb.Postgres:
					tries = 10
				case testing.Short():
					tries = 30
				}
			}
			for range tries {
				at, bit := random.IntN(len(whole)), random.IntN(8)
				flipped := slices.Clone(whole)
				flipped[at] ^= 1 << bit
				w.damaged(path, whole, flipped, fmt.Sprintf("bit %d of byte %d", bit, at))
			}
			w.damaged(path, whole, whole[:random.IntN(len(whole))], "an end that is cut off")
		}
		if to, err := w.tryRestore(); err != nil {
			w.Errorf("the backup without damage: %v, in %s", err, to.Data)
		}
	})
}

// damaged restores with other content in a file, and puts the file back.
func (w *world) damaged(path string, whole, content []byte, what string) {
	w.Helper()
	if string(whole) == string(content) || harmless(path, whole, content) {
		return
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		w.Fatal(err)
	}
	to, err := w.tryRestore()
	w.wantRefused(what+" of "+filepath.Base(path), to, err)
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		w.Fatal(err)
	}
}

// harmless reports whether the change of a manifest changes white space only.
func harmless(path string, whole, content []byte) bool {
	if !strings.HasSuffix(path, manifestSuffix) {
		return false
	}
	var a, b Manifest
	return json.Unmarshal(whole, &a) == nil && json.Unmarshal(content, &b) == nil && fmt.Sprint(a) == fmt.Sprint(b)
}

// TestHostileManifest: a manifest that somebody wrote, with a checksum that fits, names no
// file outside of the places of a restore, and none that a backup does not have.
func TestHostileManifest(t *testing.T) {
	each(t, func(w *world) {
		w.Blob("shop/web", "one")
		w.create(CreateOptions{})
		target := w.openTarget()
		m, err := target.Find(w.Context(), "")
		if err != nil {
			w.Fatal(err)
		}
		outside := filepath.Join(filepath.Dir(w.target), "planted")
		for _, name := range []string{
			"../../planted", "../restored-planted", outside, "pki/../../../planted", "restoring", "exeunt.db", "blobs/aa/planted", "", ".", "pki", "pki/", "pki//ca.key", "pki/a/../b",
		} {
			hostile := m
			hostile.Files = slices.Clone(m.Files)
			i := slices.IndexFunc(hostile.Files, func(f File) bool { return strings.HasPrefix(f.Name, keyFolder) })
			hostile.Files[i].Name = keyFolder + name
			if err := target.put(w.Context(), hostile); err != nil {
				w.Fatal(err)
			}
			to, err := w.tryRestore()
			w.wantRefused("a key file "+name, to, err)
		}
		for what, change := range map[string]func(*Manifest){
			"a path outside":  func(m *Manifest) { m.Files[0].Path = "../../../etc/passwd" },
			"an empty path":   func(m *Manifest) { m.Files[0].Path = "" },
			"a negative size": func(m *Manifest) { m.Files[0].Size = -1 },
			"no files":        func(m *Manifest) { m.Files = nil },
		} {
			hostile := m
			hostile.Files = slices.Clone(m.Files)
			change(&hostile)
			if err := target.put(w.Context(), hostile); err != nil {
				w.Fatal(err)
			}
			to, err := w.tryRestore()
			w.wantRefused(what, to, err)
		}
		if err := target.put(w.Context(), m); err != nil {
			w.Fatal(err)
		}
		// A manifest under the name of another: a prune would remove the wrong one.
		manifests, err := filepath.Glob(filepath.Join(w.target, ".documents", "*"+manifestSuffix))
		if err != nil || len(manifests) != 1 {
			w.Fatal(manifests, err)
		}
		if err := os.Rename(manifests[0], filepath.Join(filepath.Dir(manifests[0]), "20200101T000000Z-aaaaaaaa"+manifestSuffix)); err != nil {
			w.Fatal(err)
		}
		to, err := w.tryRestore()
		w.wantRefused("a manifest with another name", to, err)
		if _, err := os.Stat(outside); err == nil {
			w.Error("a file outside was written")
		}
	})
}
