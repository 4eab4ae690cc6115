package archive

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/authentication/user"
)

// copied returns the objects of a namespace, with itself, as a backup of now has them.
func (w *world) copied(namespace string) (out []v1.BackupObject) {
	w.Helper()
	files := map[string][]byte{}
	err := w.db.Copy(w.Context(), w.TempDir(), func(name string, content io.Reader) (err error) {
		files[name], err = io.ReadAll(content)
		return err
	}, nil)
	if err != nil {
		w.Fatal(err)
	}
	c, err := sqldb.OpenCopied(w.db.Engine(), w.TempDir(), func(name string) (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(files[name])), nil
	})
	if err != nil {
		w.Fatal(err)
	}
	in := func(k object.Key) bool {
		return k.Namespace == namespace || k == object.Key{Kind: object.Namespaces, Name: namespace}
	}
	err = store.Copied(w.Context(), c.Rows, w.keys, in, func(o object.Object) error {
		out = append(out, v1.BackupObject{Kind: o.Kind, Object: runtime.RawExtension{Raw: o.Body}})
		return nil
	})
	if err = errors.Join(err, c.Close()); err != nil {
		w.Fatal(err)
	}
	return out
}

// bring restores objects of a backup as a client does, in two requests.
func (w *world) bring(cascade string, objects []v1.BackupObject, dryRun bool) v1.RestoreStatus {
	w.Helper()
	half := len(objects) / 2
	for _, part := range [][]v1.BackupObject{objects[:half], objects[half:]} {
		spec := v1.RestoreSpec{Cascade: cascade, Objects: part, DryRun: true}
		if _, err := w.archive.answer(w.Context(), &v1.Restore{Spec: spec}, kind.Call{Client: kindtest.Almighty()}); err != nil && len(part) > 0 {
			w.Fatal(err)
		}
	}
	return w.restore(v1.RestoreSpec{Cascade: cascade, DryRun: dryRun})
}

// state is all objects that backups have, as JSON without the order of fields.
func (w *world) state() map[string]string {
	w.Helper()
	all := map[string]string{}
	for _, o := range w.copied("n") {
		var value map[string]any
		if err := json.Unmarshal(o.Object.Raw, &value); err != nil {
			w.Fatal(err)
		}
		text, err := json.Marshal(value)
		if err != nil {
			w.Fatal(err)
		}
		all[o.Kind+"/"+value["metadata"].(map[string]any)["name"].(string)] = string(text)
	}
	return all
}

var storages = map[string]string{"ConfigMap": "configmaps", "Secret": "secrets", "Deployment": "deployments.apps", "Namespace": "namespaces"}

func outcomes(s v1.RestoreStatus) (lines []string) {
	for _, r := range s.Results {
		if r.Outcome == v1.Skipped { // an owner that returns before it gets its references back
			r.Changes = nil
		}
		lines = append(lines, fmt.Sprint(r.Kind, r.Name, r.Outcome, r.Reason, r.UID, r.NewUID, r.Changes))
	}
	slices.Sort(lines)
	return lines
}

// TestRestoreFromBackup: after any deletions and changes, a restore of a namespace from a backup brings back what is
// missing exactly as it was backed up, leaves what exists, and says what differs; its dry run says the same and changes
// nothing, and a repeated restore does nothing. That is so after the archive has forgotten the deletions, and a second time.
func TestRestoreFromBackup(t *testing.T) {
	each(t, func(w *world) {
		random := rand.New(rand.NewPCG(7, 11))
		var made []object.Object
		for i := range 24 {
			kinds := []string{"configmaps", "secrets", "deployments.apps"}
			var owners []object.Object
			for _, o := range made {
				if random.IntN(12) == 0 {
					owners = append(owners, o)
				}
			}
			made = append(made, w.create(fmt.Sprintf("%s:n/o%d", kinds[random.IntN(len(kinds))], i), owners...))
		}
		w.change("namespaces:/n", func(m *metav1.ObjectMeta) { m.Labels = map[string]string{"kubernetes.io/metadata.name": "n"} })
		before := w.state()
		backup := w.copied("n")
		for round := range 3 {
			for _, o := range made {
				now, err := w.store.Get(w.Context(), o.Key)
				switch {
				case object.Is(err, object.NotFound):
				case err != nil:
					w.Fatal(err)
				case random.IntN(3) == 0:
					w.delete(now, background)
				}
			}
			if round == 1 {
				w.delete(storedOf(w, "namespaces:/n"), background)
			}
			if round > 0 { // the archive forgets
				w.forget()
			}
			left := w.state()
			changed := ""
			for _, o := range made {
				if _, there := left[o.Kind+"/"+o.Name]; there && o.Kind == "configmaps" {
					changed = o.Kind + "/" + o.Name
					now, m := w.get(o.Kind + ":n/" + o.Name)
					body := bytes.Replace(now.Body, []byte(`"key":"value"`), []byte(`"key":"other"`), 1)
					if _, err := w.store.Update(w.Context(), store.UpdateRequest{Key: o.Key, IfRevision: now.Revision, Meta: m, Body: body}); err != nil {
						w.Fatal(err)
					}
					break
				}
			}
			left = w.state()
			cascade := fmt.Sprintf("backup-test-%d", round)
			dry := w.bring(cascade, backup, true)
			if got := w.state(); fmt.Sprint(got) != fmt.Sprint(left) {
				w.Fatalf("the dry run changed objects")
			}
			status := w.bring(cascade, backup, false)
			if a, b := outcomes(dry), outcomes(status); !slices.Equal(a, b) || len(a) != len(before) {
				w.Errorf("round %d: the dry run says\n%s\nthe run\n%s", round, strings.Join(a, "\n"), strings.Join(b, "\n"))
			}
			now := w.state()
			for name, body := range before {
				want := body
				if was, there := left[name]; there && (name == changed || now[name] != body) { // references to what returned are back
					want = was
				}
				if now[name] != want {
					w.Errorf("round %d: %s is\n%s, want\n%s", round, name, now[name], want)
				}
			}
			for _, r := range status.Results {
				name := storages[r.Kind] + "/" + r.Name
				if _, there := left[name]; there != (r.Outcome == v1.Skipped) || name == changed && len(r.Changes) == 0 {
					w.Errorf("round %d: %s: %s %s %v", round, name, r.Outcome, r.Reason, r.Changes)
				}
			}
			if again := w.bring(cascade, backup, false); again.Created != 0 {
				w.Errorf("round %d: a repeated restore created %d", round, again.Created)
			}
			if changed != "" { // back to the state of the backup
				parts := strings.Split(changed, "/")
				w.delete(storedOf(w, parts[0]+":n/"+parts[1]), background)
				w.bring(cascade+"-mend", backup, false)
			}
		}
		w.forget()
		if n := dbtest.NewSQL(w.T, w.db).Count(`SELECT count(*) FROM changes WHERE revision < 0`); n != 0 {
			w.Errorf("%d bodies of backups stay after the archive has forgotten them", n)
		}
	})
}

// TestAdoptRights: objects of a backup need the right to create archived objects, in each of their namespaces, besides
// those that a restore needs. Names of cascades of deletions are refused.
func TestAdoptRights(t *testing.T) {
	each(t, func(w *world) {
		w.create("configmaps:n/a")
		objects := w.copied("n")
		client := kindtest.Almighty()
		client.Authorize = func(verb string, r schema.GroupResource, namespace, _ string) error {
			if verb == "create" && r.Resource == "archivedobjects" && namespace == "n" {
				return errors.New("no")
			}
			return nil
		}
		ask := func(client kind.Client, cascade string) error {
			_, err := w.archive.answer(w.Context(), &v1.Restore{Spec: v1.RestoreSpec{Cascade: cascade, Objects: objects, Last: true}}, kind.Call{Client: client})
			return err
		}
		if err := ask(client, "backup-x"); err == nil || err.Error() != "no" {
			w.Errorf("without the right: %v", err)
		}
		if err := ask(kind.Client{}, "backup-x"); err == nil {
			w.Error("no client may restore")
		}
		if err := ask(kindtest.Almighty(), string(storedOf(w, "configmaps:n/a").UID)); !object.Is(err, object.BadRequest) {
			w.Errorf("a cascade of deletions: %v", err)
		}
		err := w.archive.each(w.Context(), filter{}, 0, 10, func(r *row) error { return fmt.Errorf("%s is in the archive", r.Key()) })
		if err != nil {
			w.Error(err)
		}
	})
}

func storedOf(w *world, name string) object.Object {
	w.Helper()
	o, _ := w.get(name)
	return o
}

// forget takes all out of the archive.
func (w *world) forget() {
	w.Helper()
	var ids []int64
	err := w.archive.each(w.Context(), filter{}, 0, 10_000, func(r *row) error {
		ids = append(ids, r.ID)
		return nil
	})
	if err == nil {
		_, err = w.store.ForgetArchived(w.Context(), ids)
	}
	if err != nil {
		w.Fatal(err)
	}
}

// TestBackupIsNotKept: the row of a restore from a backup has nothing of the objects that the client sent, which may be
// Secrets; nor has the answer.
func TestBackupIsNotKept(t *testing.T) {
	each(t, func(w *world) {
		secret := w.create("secrets:n/s")
		objects := w.copied("n")
		w.delete(secret, background)
		w.forget()
		w.stepwise(func(_ context.Context, u user.Info) kind.Client { return asUser(u.GetName()) })
		w.archive.opts.Spare = time.Hour // the time of the request is over at once
		ctx, cancel := context.WithTimeout(w.Context(), time.Minute)
		defer cancel()
		answer, err := w.archive.answer(ctx, &v1.Restore{Spec: v1.RestoreSpec{Cascade: "backup-x", Objects: objects, Last: true}}, kind.Call{Client: asUser("alice")})
		if err != nil {
			w.Fatal(err)
		}
		r := answer.(*v1.Restore)
		if len(r.Spec.Objects) > 0 || w.Count(`SELECT count(*) FROM restores WHERE state LIKE '%"objects"%'`) > 0 {
			w.Error("the Restore has the objects that the client sent")
		}
		w.archive.opts.Spare = 0
		w.turn()
		if s := w.stored(r.Name); s.Created != 1 || !w.exists("secrets:n/s") {
			w.Errorf("got %+v", s)
		}
	})
}

// TestSealedChanges: of a kind that the database seals a result says what was added, removed and changed, and no value.
func TestSealedChanges(t *testing.T) {
	each(t, func(w *world) {
		r := w.archive.begin(kindtest.Almighty(), v1.RestoreSpec{}, w.names())
		defer r.end()
		for storage, want := range map[string]string{
			"secrets":    "[a is not set now, and was … b is … now, and was not set c is … now, and was …]",
			"configmaps": "[a is not set now, and was 1 b is 2 now, and was not set c is 4 now, and was 3]",
		} {
			changes := []v1.Change{{Field: "a", Was: "1"}, {Field: "b", Is: "2"}, {Field: "c", Was: "3", Is: "4"}}
			if r.hideSealed(storage, changes); fmt.Sprint(changes) != want {
				w.Errorf("%s: %v, want %s", storage, changes, want)
			}
		}
	})
}
