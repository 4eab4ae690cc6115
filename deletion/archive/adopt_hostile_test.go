package archive

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
)

// ownerOf may do everything in one namespace, and nothing elsewhere.
func ownerOf(namespace string) kind.Client {
	client := kindtest.Almighty()
	client.Authorize = func(verb string, r schema.GroupResource, in, name string) error {
		if in == namespace {
			return nil
		}
		return apierrors.NewForbidden(r, name, fmt.Errorf("no %s in %q", verb, in))
	}
	return client
}

// forge sends one made-up object of a backup, and restores it.
func (w *world) forge(client kind.Client, cascade, kindName, body string) (*v1.Restore, error) {
	objects := []v1.BackupObject{{Kind: kindName, Object: runtime.RawExtension{Raw: []byte(body)}}}
	_, err := w.archive.answer(w.Context(), &v1.Restore{Spec: v1.RestoreSpec{Cascade: cascade, Objects: objects}}, kind.Call{Client: client})
	if err != nil {
		return nil, err
	}
	status, err := w.archive.Restore(w.Context(), client, v1.RestoreSpec{Cascade: cascade})
	return &v1.Restore{Status: status}, err
}

// TestForgedScope: the owner of a namespace makes no object outside of it, whatever namespace a forged object of a
// backup claims to be in: there is no cluster-scoped object in a namespace, and no namespaced one outside.
func TestForgedScope(t *testing.T) {
	each(t, func(w *world) {
		for i, k := range w.kinds.Snapshot().Kinds {
			if k.Ephemeral || k.Source != nil {
				continue
			}
			name := fmt.Sprintf("forged-%d", i)
			body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"n","uid":"00000000-0000-4000-8000-%012d"}}`, name, i)
			if _, err := w.forge(ownerOf("n"), "backup-"+name, k.Storage, body); err == nil && !k.Namespaced {
				w.Errorf("%s in a namespace is accepted", k.Storage)
			}
			if _, err := w.store.Get(w.Context(), object.Key{Kind: k.Storage, Name: name}); !object.Is(err, object.NotFound) {
				w.Errorf("the owner of a namespace makes the cluster-scoped %s/%s: %v", k.Storage, name, err)
			}
			loose := strings.Replace(body, `,"namespace":"n"`, ``, 1)
			if _, err := w.forge(kindtest.Almighty(), "backup-loose-"+name, k.Storage, loose); err == nil && k.Namespaced {
				w.Errorf("%s without a namespace is accepted", k.Storage)
			}
		}
	})
}

// TestForgedNames: names and uids that no stored object can have are refused as the client's mistake.
func TestForgedNames(t *testing.T) {
	each(t, func(w *world) {
		long := strings.Repeat("x", 5000)
		for i, m := range []map[string]string{
			{"name": "a/b", "uid": "u"}, {"name": "..", "uid": "u"}, {"name": "a\x00b", "uid": "u"}, {"name": long, "uid": "u"},
			{"name": "a", "uid": long}, {"name": "a", "uid": "a\x00b"}, {"name": "a", "uid": "\x1b[31m"}, {"name": "a", "uid": "a b"},
			{"name": "a", "uid": "u", "namespace": long}, {"name": "a", "uid": "u", "namespace": "n\x00"},
		} {
			if m["namespace"] == "" {
				m["namespace"] = "n"
			}
			body, err := json.Marshal(map[string]any{"metadata": m})
			if err != nil {
				w.Fatal(err)
			}
			if _, err := w.forge(kindtest.Almighty(), fmt.Sprintf("backup-%d", i), "configmaps", string(body)); !object.Is(err, object.BadRequest) {
				w.Errorf("%.80s: %v", body, err)
			}
		}
		for i, storage := range []string{long, "config\x00maps", "ConfigMaps", "a/b", "../a"} {
			if _, err := w.forge(kindtest.Almighty(), fmt.Sprintf("backup-k%d", i), storage, `{"metadata":{"name":"a","namespace":"n","uid":"u"}}`); !object.Is(err, object.BadRequest) {
				w.Errorf("kind %.80q: %v", storage, err)
			}
		}
	})
}

// TestForgedUID: an object of a backup takes no uid of an object that exists under another name, or is in the archive under
// one: the restore says so, and ends.
func TestForgedUID(t *testing.T) {
	each(t, func(w *world) {
		w.create("namespaces:/m")
		victim := w.create("configmaps:m/victim")
		removed := w.create("configmaps:m/victim-that-left")
		w.delete(removed, background)
		for i, uid := range []types.UID{victim.UID, removed.UID} {
			body := fmt.Sprintf(`{"metadata":{"name":"forged","namespace":"n","uid":%q},"data":{"a":"b"}}`, uid)
			r, err := w.forge(ownerOf("n"), fmt.Sprint("backup-uid-", i), "configmaps", body)
			if err != nil {
				w.Fatal(err)
			}
			if len(r.Status.Results) != 1 || r.Status.Results[0].Outcome != v1.Failed || strings.Contains(fmt.Sprint(r.Status), "victim") {
				w.Errorf("%+v", r.Status)
			}
		}
		if now, _ := w.get("configmaps:m/victim"); string(now.Body) != string(victim.Body) || w.exists("configmaps:n/forged") {
			w.Error("the victim changed, or the forged object exists")
		}
		w.create("configmaps:n/other") // the store works on
	})
}

// TestForgedComparison: the comparison of an object of a backup with the one that exists shows a client nothing that it may
// not get, and nothing of Secrets: results are stored in plain text.
func TestForgedComparison(t *testing.T) {
	each(t, func(w *world) {
		secret, plain := w.create("secrets:n/s"), w.create("configmaps:n/c")
		for i, o := range []object.Object{secret, plain} {
			data := []string{`"password":"Zm9yZ2Vk"`, `"key":"forged"`}[i]
			body := fmt.Sprintf(`{"metadata":{"name":%q,"namespace":"n","uid":%q},"data":{%s}}`, o.Name, o.UID, data)
			r, err := w.forge(kindtest.Almighty(), fmt.Sprintf("backup-c%d", i), o.Kind, body)
			if err != nil {
				w.Fatal(err)
			}
			if len(r.Status.Results) != 1 || r.Status.Results[0].Outcome != v1.Skipped || len(r.Status.Results[0].Changes) == 0 {
				w.Fatalf("%+v", r.Status)
			}
			text := fmt.Sprint(r.Status.Results[0].Changes)
			if shows := strings.Contains(text, "forged") && strings.Contains(text, "value"); shows != (o.Kind == "configmaps") {
				w.Errorf("a %s: %s", o.Kind, text)
			}
			if strings.Contains(text, "cGFzcw") || strings.Contains(text, "Zm9yZ2Vk") {
				w.Errorf("the result shows a Secret: %s", text)
			}
		}
	})
}
