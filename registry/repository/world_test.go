package repository

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/google/uuid"
	"github.com/opencontainers/go-digest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/deletion/archive"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/cache"
	"github.com/exeunt/exeunt/registry/collect"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/registry/retain"
	v1registry "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/storetest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// world is a store, a registry, and the Repositories that connect them.
type world struct {
	*testing.T
	dbtest.SQL
	store     *store.Store
	repos     *Repositories
	registry  *registry.Registry
	garbage   *collect.Collector
	archive   *archive.Archive
	retention *retain.Retention
	now       time.Time // retention's
	lostTags  []int64   // the repositories of which retention took tags
	api       *api.API
	// before and after run around the creates of pushes, by resource.
	before, after map[string]func()
	clock         dbtest.Clock // the collector's
	blobs         *blobstore.Dir
	caches        *cache.Caches
	cacheClock    dbtest.Clock
}

// settings are the options of tests.
type settings struct {
	options   Options
	noArchive bool
	keepSpace bool          // namespaces are not created
	patience  time.Duration // with upstreams
}

func each(t *testing.T, test func(w *world)) {
	t.Helper()
	eachWith(t, settings{}, test)
}

func eachWith(t *testing.T, s settings, test func(w *world)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(newWorld(t, db, s)) })
}

func newWorld(t *testing.T, db *sqldb.DB, s settings) *world {
	t.Helper()
	log := slog.New(slog.DiscardHandler)
	archived := store.ArchiveOptions{For: time.Hour}
	if s.noArchive {
		archived.For = 0
	}
	st := storetest.Run(t, store.Options{DB: db, Archive: archived})
	w := &world{T: t, SQL: dbtest.NewSQL(t, db), store: st}
	s.options.Logger, s.options.Create = log, w.createAs
	s.options.Every = time.Hour // so that no repository counts as slow
	if !s.keepSpace {
		s.options.CreateNamespace = w.createNamespace
	}
	var err error
	if w.repos, err = New(db, st, s.options); err != nil {
		t.Fatal(err)
	}
	w.retention, err = retain.New(db, st, retain.Options{Now: func() time.Time { return w.now }, Changed: func(id int64) { w.lostTags = append(w.lostTags, id) }, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	w.caches, err = cache.New(st, cache.Options{Secret: w.secret, Patience: s.patience, Now: w.cacheClock.Now, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	kinds := kind.NewRegistry(append(builtin.Kinds(), w.repos.Kind(), w.retention.Kind(), w.caches.Kind()))
	w.api = api.New(api.Config{
		Store: st, Kinds: kinds, Access: accesstest.Control(), Admission: accesstest.NoAdmission{}, OpenAPI: http.NotFoundHandler(), Metrics: http.NotFoundHandler(),
		Logger: log, Version: "test",
	})
	t.Cleanup(func() { w.api.Close(context.Background()) })
	w.before, w.after = map[string]func(){}, map[string]func(){}
	if w.archive, err = archive.New(db, st, kinds, archive.Options{Logger: log}); err != nil {
		t.Fatal(err)
	}
	blobs, err := blobstore.OpenDir(registrytest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	w.blobs = blobs
	w.registry = registry.New(registry.Config{DB: db, Blobs: blobs, Declare: w.repos.Declare, Upstream: w.caches.Of, Adopt: w.repos.Adopt, Touched: w.repos.Touch, Refresh: w.repos.Refresh, Logger: log})
	t.Cleanup(w.registry.Close)
	w.garbage, err = collect.New(db, blobs, collect.Options{Changed: w.repos.Touch, Now: w.clock.Now, Logger: log})
	if err != nil {
		t.Fatal(err)
	}
	return w
}

// createAs posts an object to the API, as an administrator.
func (w *world) createAs(ctx context.Context, _ registry.Client, resource string, obj *unstructured.Unstructured) error {
	hook := func(hooks map[string]func()) {
		if run := hooks[resource]; run != nil {
			delete(hooks, resource)
			run()
		}
	}
	hook(w.before)
	defer hook(w.after)
	path := "/api/v1/namespaces"
	if resource == v1registry.Plural {
		path = "/apis/" + v1registry.GroupVersion.String() + "/namespaces/" + obj.GetNamespace() + "/" + resource
	}
	body, err := obj.MarshalJSON()
	if err != nil {
		return err
	}
	req := accesstest.Admin(httptest.NewRequestWithContext(ctx, "POST", path, bytes.NewReader(body)))
	req.Header.Set("Content-Type", "application/json")
	answer := httptest.NewRecorder()
	w.api.ServeHTTP(answer, req)
	if answer.Code == 201 {
		return nil
	}
	var status metav1.Status
	if err := json.Unmarshal(answer.Body.Bytes(), &status); err != nil {
		return err
	}
	return apierrors.FromObject(&status)
}

func (w *world) createNamespace(ctx context.Context, name string) error {
	_, err := w.store.Create(ctx, storetest.Namespace(w, name))
	if object.Is(err, object.AlreadyExists) {
		return nil
	}
	return err
}

// do sends a request to the registry.
func (w *world) do(method, path, contentType, body string) *httptest.ResponseRecorder {
	req := httptest.NewRequestWithContext(w.Context(), method, path, strings.NewReader(body))
	req.Header.Set("Content-Type", contentType)
	answer := httptest.NewRecorder()
	w.registry.ServeHTTP(answer, req)
	return answer
}

// want sends a request whose answer must have a status and contain a text.
func (w *world) want(status int, text, method, path string) {
	w.Helper()
	if a := w.do(method, path, "", ""); a.Code != status || !strings.Contains(a.Body.String(), text) {
		w.Errorf("%s %s: %d %s; want %d and %q", method, path, a.Code, a.Body, status, text)
	}
}

const (
	manifestType = "application/vnd.oci.image.manifest.v1+json"
	indexType    = "application/vnd.oci.image.index.v1+json"
)

// image returns a manifest with one layer, and both digests.
func image(content string) (manifest, manifestDigest, layer string) {
	d := digest.FromString(content)
	descriptor := func(mediaType string, d digest.Digest, size int) string {
		return fmt.Sprintf(`{"mediaType":%q,"digest":%q,"size":%d}`, mediaType, d, size)
	}
	manifest = fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"config":%s,"layers":[%s]}`, manifestType,
		descriptor("application/vnd.oci.empty.v1+json", digest.FromString("{}"), 2),
		descriptor("application/vnd.oci.image.layer.v1.tar", d, len(content)))
	return manifest, digest.FromString(manifest).String(), d.String()
}

// push pushes an image and returns its digest.
func (w *world) push(repo, tag, content string) string {
	w.Helper()
	if a := w.tryPush(repo, tag, content); a.Code != 201 {
		w.Fatalf("push %s:%s: %d %s", repo, tag, a.Code, a.Body)
	}
	_, d, _ := image(content)
	return d
}

// fails runs something while a table is missing: it fails, and says at what.
func (w *world) fails(run func(context.Context) error, table, in string) {
	w.Helper()
	w.Exec("ALTER TABLE " + table + " RENAME TO missing")
	if err := run(w.Context()); err == nil || !strings.Contains(err.Error(), in) {
		w.Errorf("without the table %s: %v", table, err)
	}
	w.Exec("ALTER TABLE missing RENAME TO " + table)
}

// tryPush returns the first answer that is not 201, or the last one.
func (w *world) tryPush(repo, tag, content string) *httptest.ResponseRecorder {
	manifest, _, layer := image(content)
	for d, blob := range map[string]string{digest.FromString("{}").String(): "{}", layer: content} {
		if a := w.do("POST", "/v2/"+repo+"/blobs/uploads/?digest="+d, "application/octet-stream", blob); a.Code != 201 {
			return a
		}
	}
	return w.do("PUT", "/v2/"+repo+"/manifests/"+tag, manifestType, manifest)
}

// pulls expects an image to exist with all its content.
func (w *world) pulls(repo, tag, content string) {
	w.Helper()
	manifest, _, layer := image(content)
	if a := w.do("GET", "/v2/"+repo+"/manifests/"+tag, "", ""); a.Code != 200 || a.Body.String() != manifest {
		w.Errorf("pull %s:%s: %d %s", repo, tag, a.Code, a.Body)
	}
	if a := w.do("GET", "/v2/"+repo+"/blobs/"+layer, "", ""); a.Code != 200 || a.Body.String() != content {
		w.Errorf("pull layer of %s:%s: %d %s", repo, tag, a.Code, a.Body)
	}
}

// object reads a Repository; nil if there is none.
func (w *world) object(namespace, name string) *unstructured.Unstructured {
	w.Helper()
	o, err := w.store.Get(w.Context(), w.repos.key(namespace, name))
	if object.Is(err, object.NotFound) {
		return nil
	}
	if err != nil {
		w.Fatal(err)
	}
	u, err := object.DecodeUnstructured(o.Body, o.ResourceVersion(), w.repos.version.GVK)
	if err != nil {
		w.Fatal(err)
	}
	return u
}

// declare creates a Repository as a client would.
func (w *world) declare(namespace, name, spec string, change ...func(*unstructured.Unstructured)) error {
	w.Helper()
	if err := w.createNamespace(w.Context(), namespace); err != nil {
		w.Fatal(err)
	}
	u := &unstructured.Unstructured{Object: map[string]any{}}
	if err := json.Unmarshal([]byte(`{"spec":`+spec+`}`), &u.Object); err != nil {
		w.Fatal(err)
	}
	u.SetGroupVersionKind(w.repos.version.GVK)
	u.SetName(name)
	for _, fn := range change {
		fn(u)
	}
	_, err := lifecycle.BeforeCreate(w.Context(), w.repos.version.Strategy, u,
		lifecycle.Creation{Namespace: namespace, Now: time.Now(), UID: types.UID(uuid.NewString())})
	if err != nil {
		return err
	}
	return w.write(u, func(m metav1.ObjectMeta, body []byte) error {
		_, err := w.store.Create(w.Context(), store.CreateRequest{Key: w.repos.key(namespace, name), Meta: m, Body: body, InNamespace: true})
		return err
	})
}

// update changes a Repository by its rules.
func (w *world) update(namespace, name string, change func(*unstructured.Unstructured)) error {
	w.Helper()
	old := w.object(namespace, name)
	u := old.DeepCopy()
	change(u)
	updated, err := lifecycle.BeforeUpdate(w.Context(), w.repos.version.Strategy, u, old, lifecycle.Change{Namespace: namespace})
	if err != nil {
		return err
	}
	revision, err := object.ParseResourceVersion(old.GetResourceVersion())
	if err != nil {
		w.Fatal(err)
	}
	return w.write(u, func(m metav1.ObjectMeta, body []byte) error {
		_, err := w.store.Update(w.Context(), store.UpdateRequest{
			Key: w.repos.key(namespace, name), IfRevision: revision, Meta: m, Body: body, Remove: updated.Remove,
		})
		return err
	})
}

func (w *world) write(u *unstructured.Unstructured, fn func(metav1.ObjectMeta, []byte) error) error {
	w.Helper()
	body, err := w.repos.version.Encode(u)
	if err != nil {
		w.Fatal(err)
	}
	m, err := object.ParseMeta(body)
	if err != nil {
		w.Fatal(err)
	}
	return fn(m, body)
}

// delete deletes a Repository.
func (w *world) delete(namespace, name string) {
	w.Helper()
	if err := w.tryDelete(namespace, name); err != nil {
		w.Fatal(err)
	}
}

func (w *world) tryDelete(namespace, name string) error {
	_, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: w.repos.key(namespace, name), Rules: w.repos.Kind().Rules, Actor: "me"})
	return err
}

// restore restores the newest removal of a Repository.
func (w *world) restore(namespace, name string) v1.RestoreResult {
	w.Helper()
	status, err := w.archive.Restore(w.Context(), kindtest.Almighty(), v1.RestoreSpec{
		Object: &v1.ObjectName{Kind: "Repository", Namespace: namespace, Name: name},
	})
	if err != nil || len(status.Results) != 1 {
		w.Fatalf("restore: %+v, %v", status, err)
	}
	return status.Results[0]
}

// purge empties the archive.
func (w *world) purge() {
	w.Helper()
	rows, err := w.DB.Reader().QueryContext(w.Context(), `SELECT id FROM archive`)
	if err != nil {
		w.Fatal(err)
	}
	var ids []int64
	for rows.Next() {
		var id int64
		if err := rows.Scan(&id); err != nil {
			w.Fatal(err)
		}
		ids = append(ids, id)
	}
	if err := errors.Join(rows.Err(), rows.Close()); err != nil {
		w.Fatal(err)
	}
	if _, err := w.store.ForgetArchived(w.Context(), ids); err != nil {
		w.Fatal(err)
	}
}

// collect runs every review that is due.
func (w *world) collect() {
	w.Helper()
	for range 1000 {
		turn, err := w.garbage.RunOne(w.Context())
		if err != nil {
			w.Fatal(err)
		}
		if turn.Repositories.Failed+turn.Manifests.Failed+turn.Blobs.Failed+turn.Unlinks.Failed > 0 {
			w.Fatalf("a review failed: %+v", turn)
		}
		if turn.Idle() {
			return
		}
	}
	w.Fatal("the collector does not become idle")
}
