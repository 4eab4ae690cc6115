package backup

import (
	"bytes"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"filippo.io/age"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/seal"
	"github.com/exeunt/exeunt/store/storetest"
)

// identity writes the file of a new identity and returns it with its recipient.
func (w *world) identity() (file, recipient string) {
	w.Helper()
	made, err := age.GenerateX25519Identity()
	if err != nil {
		w.Fatal(err)
	}
	file = filepath.Join(w.TempDir(), "identity")
	if err := os.WriteFile(file, []byte(made.String()+"\n"), 0o600); err != nil {
		w.Fatal(err)
	}
	return file, made.Recipient().String()
}

// TestEncrypted: nothing of an encrypted backup but digests can be read without an identity of its recipients; with one it
// is the same as another backup. Who has no identity can add, list and prune backups, also beside plain ones and those of
// other recipients, whose blobs are never mixed up.
func TestEncrypted(t *testing.T) {
	each(t, func(w *world) {
		storetest.Create(w, w.store, storetest.Object(w, thing("kept"), `"data":"very secret content"`))
		w.Push(registrytest.Image{Repo: "shop/web", Name: "image", Config: "config", Layers: []string{"one", "two"}, Tags: []string{"v1"}})
		file, recipient := w.identity()
		other, otherRecipient := w.identity()
		first := w.create(CreateOptions{Recipients: []string{recipient}})
		if first.Copied != 3 {
			w.Errorf("copied %d blobs", first.Copied)
		}
		err := filepath.WalkDir(w.target, func(path string, e fs.DirEntry, err error) error {
			if err != nil || e.IsDir() {
				return err
			}
			content, err := os.ReadFile(path)
			for _, secret := range []string{"very secret content", "certificate", "kept"} {
				if bytes.Contains(content, []byte(secret)) {
					w.Errorf("%s has %q", path, secret)
				}
			}
			return err
		})
		if err != nil {
			w.Fatal(err)
		}
		if again := w.create(CreateOptions{Recipients: []string{recipient}}); again.Copied != 0 {
			w.Errorf("a second backup copied %d blobs", again.Copied)
		}
		if others := w.create(CreateOptions{Recipients: []string{otherRecipient}}); others.Copied != 3 {
			w.Errorf("a backup for others copied %d blobs", others.Copied)
		}
		plain := w.create(CreateOptions{})
		target, err := OpenTarget(w.Context(), w.target, false)
		if err != nil {
			w.Fatal(err)
		}
		if _, err := target.Prune(w.Context(), 4); err != nil {
			w.Fatal(err)
		}
		verify := func(m Manifest) error {
			var found []error
			err := target.Verify(w.Context(), m, false, func(err error) { found = append(found, err) }, nil)
			return errors.Join(append(found, err)...)
		}
		if err := verify(first.Manifest); err == nil || errors.Is(err, ErrDamaged) || !strings.Contains(err.Error(), "--identity") {
			w.Errorf("without an identity: %v", err)
		}
		if err := verify(plain.Manifest); err != nil {
			w.Error(err)
		}
		if err := target.Unlock(other); err != nil {
			w.Fatal(err)
		}
		if err := target.Objects(w.Context(), first.Manifest, func(object.Key) bool { return true }, nil); err == nil || !strings.Contains(err.Error(), recipient) {
			w.Errorf("with the identity of another: %v", err)
		}
		if err := target.Unlock(file); err != nil {
			w.Fatal(err)
		}
		if err := verify(first.Manifest); err != nil {
			w.Error(err)
		}
		server := Server{Data: filepath.Join(w.TempDir(), "new")}
		if first.Engine == string(sqldb.Postgres) {
			server.Database = dbtest.Open(t, sqldb.Postgres)
		}
		if _, err := Restore(w.Context(), target, first.Manifest, server, nil); err != nil {
			w.Fatal(err)
		}
		server = server.WithDefaults()
		w.wantKeys(server)
		for _, layer := range []string{"config", "one", "two"} {
			w.wantBlob(server, w.Paths[layer], layer)
		}
		damaged := filepath.Join(w.target, blobPath(first.Recipients, w.DigestOf("one")))
		content, err := os.ReadFile(damaged)
		if err != nil {
			w.Fatal(err)
		}
		content[len(content)-1] ^= 1
		if err := os.WriteFile(damaged, content, 0o600); err != nil {
			w.Fatal(err)
		}
		if err := verify(first.Manifest); !errors.Is(err, ErrDamaged) {
			w.Errorf("of a damaged blob: %v", err)
		}
	})
}

// TestObjects: the objects of a backup are those of the store at its time, whatever their content, without those that
// were being deleted.
func TestObjects(t *testing.T) {
	each(t, func(w *world) {
		want := map[object.Key]string{}
		for i, data := range []string{`"a"`, `"tab\there, \\N \\x41 and a line\nbreak"`, `"ü\u0000\u2028"`, `{"x":[1,2.50,null,"\\\\"]}`} {
			key := thing(strings.Repeat("n", i+1))
			want[key] = string(storetest.Create(w, w.store, storetest.Object(w, key, `"data":`+data)).Body)
		}
		gone := storetest.Create(w, w.store, storetest.Object(w, thing("gone"), `"data":"1"`))
		if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: gone.Key}); err != nil {
			w.Fatal(err)
		}
		keys := filepath.Join(w.server.Data, encryptionFile)
		_, err := seal.Create(keys + ".new")
		if err = errors.Join(err, os.Rename(keys+".new", keys)); err != nil {
			w.Fatal(err)
		}
		made := w.create(CreateOptions{})
		target, err := OpenTarget(w.Context(), w.target, false)
		if err != nil {
			w.Fatal(err)
		}
		err = target.Objects(w.Context(), made.Manifest, func(k object.Key) bool { return k.Kind == things.Kind }, func(o object.Object) error {
			if string(o.Body) != want[o.Key] {
				w.Errorf("%s is %s, want %s", o.Key, o.Body, want[o.Key])
			}
			delete(want, o.Key)
			return nil
		})
		if err != nil || len(want) > 0 {
			w.Errorf("%v are missing: %v", want, err)
		}
	})
}

// TestBadRecipients: a word that is no recipient is refused, also beside one that is: no backup is written in plain text for it.
func TestBadRecipients(t *testing.T) {
	made, err := age.GenerateX25519Identity()
	if err != nil {
		t.Fatal(err)
	}
	for _, recipients := range [][]string{{"nobody"}, {made.Recipient().String(), "age1nobody"}, {made.String()}} {
		if err := CheckRecipients(recipients); err == nil {
			t.Errorf("accepted %q", recipients)
		}
		var written bytes.Buffer
		if w, err := encrypt(&written, recipients); err == nil {
			t.Errorf("%q: encrypts for them with a %T", recipients, w)
		}
	}
}
