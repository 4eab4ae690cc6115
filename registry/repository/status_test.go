package repository

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/deletion/preview"
	deletionv1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/builtin"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestStatus: it follows the content, is written once for many pushes, and not
// at all when nothing changed.
func TestStatus(t *testing.T) {
	each(t, func(w *world) {
		status := func(want string) *unstructured.Unstructured {
			w.Helper()
			if err := w.repos.RunOne(w.Context()); err != nil {
				w.Fatal(err)
			}
			u := w.object("shop", "web")
			got := fmt.Sprintf("size %d, tags %d, manifests %d, reclaimable %d", figure(u, "size"), figure(u, "tags"), figure(u, "manifests"), figure(u, "reclaimable"))
			if got != want {
				w.Errorf("status is %s, want %s", got, want)
			}
			return u
		}
		first := w.push("shop/web", "1", "1234567890")
		w.push("shop/web", "2", "12345")
		w.push("other", "1", "12345")
		w.fails(w.repos.RunOne, "tags", "repository 1: ")
		u := status("size 17, tags 2, manifests 2, reclaimable 0")
		if at, _, _ := unstructured.NestedString(u.Object, "status", "lastPush"); at == "" {
			w.Error("no last push")
		}
		if same := status("size 17, tags 2, manifests 2, reclaimable 0"); same.GetResourceVersion() != u.GetResourceVersion() {
			w.Error("written although nothing changed")
		}
		if u.GetGeneration() != 1 {
			w.Errorf("generation %d", u.GetGeneration())
		}
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/1")
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/2")
		// The other repository uses the smaller layer, and the config.
		status("size 17, tags 0, manifests 2, reclaimable 10")
		if err := w.update("shop", "web", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, true, "spec", "hold")
		}); err != nil {
			w.Fatal(err)
		}
		w.repos.Touch(int64(w.Count(`SELECT id FROM repositories WHERE path = 'shop/web'`)))
		status("size 17, tags 0, manifests 2, reclaimable 0")
		if err := w.update("shop", "web", func(u *unstructured.Unstructured) {
			_ = unstructured.SetNestedField(u.Object, false, "spec", "hold")
		}); err != nil {
			w.Fatal(err)
		}
		w.clock.Advance(25 * time.Hour)
		w.collect() // touches repositories that lost manifests
		u = status("size 7, tags 0, manifests 0, reclaimable 0")
		if at, _, _ := unstructured.NestedString(u.Object, "status", "lastPush"); at == "" {
			w.Error("the last push was forgotten")
		}
		w.want(404, "", "GET", "/v2/shop/web/manifests/"+first)

		// Blobs without a manifest.
		blob := digest.FromString("loose").String()
		w.do("POST", "/v2/other/blobs/uploads/?digest="+blob, "", "loose")
		w.want(201, "", "POST", "/v2/shop/web/blobs/uploads/?mount="+blob+"&from=other")
		status("size 12, tags 0, manifests 0, reclaimable 5")
		w.want(202, "", "DELETE", "/v2/shop/web/blobs/"+blob)
		status("size 7, tags 0, manifests 0, reclaimable 0")
		w.want(201, "", "POST", "/v2/shop/web/blobs/uploads/?mount="+blob)
		status("size 12, tags 0, manifests 0, reclaimable 5")
		w.clock.Advance(25 * time.Hour)
		w.collect() // touches repositories that lost blobs
		status("size 7, tags 0, manifests 0, reclaimable 0")
	})
}

// TestTable is what kubectl shows.
func TestTable(t *testing.T) {
	u := &unstructured.Unstructured{Object: map[string]any{
		"metadata": map[string]any{"name": "web", "creationTimestamp": time.Now().Add(-2 * time.Hour).UTC().Format(time.RFC3339)},
		"spec":     map[string]any{"path": "shop/web"},
		"status": map[string]any{"size": int64(30 << 20), "tags": int64(3), "manifests": int64(4), "reclaimable": int64(5000),
			"lastPush": time.Now().Add(-5 * time.Minute).UTC().Format(time.RFC3339)},
	}}
	list := &unstructured.UnstructuredList{Items: []unstructured.Unstructured{*u, {Object: map[string]any{"metadata": map[string]any{"name": "empty"}}}}}
	got, err := table.ConvertToTable(t.Context(), list, &metav1.TableOptions{})
	if err != nil || len(got.Rows) != 2 || len(got.Rows[0].Cells) != len(got.ColumnDefinitions) {
		t.Fatalf("%+v, %v", got, err)
	}
	if cells := fmt.Sprint(got.Rows[0].Cells); cells != "[web 30Mi 3 5m 5000 120m 4 <none> shop/web]" {
		t.Errorf("row %s", cells)
	}
	if cells := fmt.Sprint(got.Rows[1].Cells[:5]); cells != "[empty 0 0 <never> 0]" {
		t.Errorf("row %s", cells)
	}
}

// TestUndeleted: after an undelete the status is correct at once, even if the
// repository was slow to count.
func TestUndeleted(t *testing.T) {
	each(t, func(w *world) {
		figures := func() string {
			u := w.object("shop", "web")
			return fmt.Sprintf("size %d, tags %d, reclaimable %d", figure(u, "size"), figure(u, "tags"), figure(u, "reclaimable"))
		}
		w.push("shop/web", "1", "12345")
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/1")
		if err := w.repos.RunOne(t.Context()); err != nil {
			t.Fatal(err)
		}
		if got := figures(); got != "size 7, tags 0, reclaimable 7" {
			t.Fatalf("after the delete: %s", got)
		}
		var id int64
		if _, err := w.DB.Row(t.Context(), `SELECT id FROM repositories WHERE path = 'shop/web'`, nil, &id); err != nil {
			t.Fatal(err)
		}
		w.repos.rest[id] = time.Now().Add(time.Hour)
		// The undelete comes while another count is under way, whose result is older.
		err := w.repos.writer.SetStatus(t.Context(), v1.GroupVersion.WithResource(v1.Plural), "shop", "web", func(status map[string]any) error {
			_, err := w.registry.Undelete(t.Context(), "shop/web", "1", "", false)
			status["tags"] = int64(0)
			status["reclaimable"] = int64(8)
			return err
		})
		if !object.Is(err, object.Conflict) {
			t.Errorf("an older count replaces a newer one: %v", err)
		}
		if got := figures(); got != "size 7, tags 1, reclaimable 0" {
			t.Errorf("after the undelete: %s", got)
		}
	})
}

// TestPreviewed: the preview of a deletion shows what a Repository takes with it.
func TestPreviewed(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "1", "1234567890")
		if err := w.repos.RunOne(w.Context()); err != nil {
			w.Fatal(err)
		}
		previews, err := preview.New(w.store, kind.NewRegistry(append(builtin.Kinds(), w.repos.Kind())), preview.Options{})
		if err != nil {
			w.Fatal(err)
		}
		for name, object := range map[string]deletionv1.ObjectReference{
			"itself":        {APIVersion: "registry.exeunt.dev/v1", Kind: "Repository", Namespace: "shop", Name: "web"},
			"its namespace": {APIVersion: "v1", Kind: "Namespace", Name: "shop"},
		} {
			status, err := previews.Preview(w.Context(), kindtest.Almighty(), deletionv1.DeletionPreviewSpec{Object: object})
			if err != nil {
				w.Fatal(err)
			}
			var reasons []string
			for _, item := range status.Items {
				if item.Kind == "Repository" {
					reasons = append(reasons, item.Reason)
				}
			}
			if len(reasons) != 1 || !strings.HasSuffix(reasons[0], "; with it go 1 tag, 1 manifest and 12 bytes") {
				w.Errorf("%s: %q", name, reasons)
			}
		}
	})
}

// refuseWarnings fails the test when a warning is logged.
type refuseWarnings struct {
	slog.Handler
	t *testing.T
}

func (refuseWarnings) Enabled(_ context.Context, level slog.Level) bool {
	return level >= slog.LevelWarn
}

func (r refuseWarnings) Handle(_ context.Context, record slog.Record) error {
	record.Attrs(func(a slog.Attr) bool {
		r.t.Errorf("logged: %s: %s", record.Message, a)
		return true
	})
	return nil
}

// TestRefresh: the status is right at once.
func TestRefresh(t *testing.T) {
	each(t, func(w *world) {
		w.push("shop/web", "1", "12345")
		var id int64
		if found, err := w.DB.Row(t.Context(), `SELECT id FROM repositories WHERE path = 'shop/web'`, nil, &id); err != nil || !found {
			t.Fatal(found, err)
		}
		if err := w.repos.Refresh(t.Context(), id); err != nil || figure(w.object("shop", "web"), "tags") != 1 {
			t.Errorf("%v, the object is %v", err, w.object("shop", "web"))
		}
	})
}

// TestRun: the status of a restored repository, and of one that is put on hold,
// is updated without a push.
func TestRun(t *testing.T) {
	each(t, func(w *world) {
		w.repos.opts.Every = time.Millisecond
		w.repos.opts.Logger = slog.New(refuseWarnings{slog.DiscardHandler, w.T})
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error, 1)
		go func() { ended <- w.repos.Run(ctx) }()
		defer func() {
			cancel()
			if err := <-ended; err != nil {
				w.Error(err)
			}
		}()
		figures := func(want string) {
			w.Helper()
			dbtest.Until(w, "the status is right", func() error {
				var got string
				if u := w.object("shop", "web"); u != nil {
					got = fmt.Sprintf("size %d, tags %d, reclaimable %d", figure(u, "size"), figure(u, "tags"), figure(u, "reclaimable"))
				}
				if got != want {
					return fmt.Errorf("status is %s, want %s", got, want)
				}
				return nil
			})
		}
		w.push("shop/web", "1", "12345")
		figures("size 7, tags 1, reclaimable 0")
		w.delete("shop", "web")
		w.restore("shop", "web")
		figures("size 7, tags 1, reclaimable 0")
		w.want(202, "", "DELETE", "/v2/shop/web/manifests/1")
		figures("size 7, tags 0, reclaimable 7")
		for err := error(object.Errorf(object.Conflict, "")); object.Is(err, object.Conflict); {
			err = w.update("shop", "web", func(u *unstructured.Unstructured) {
				_ = unstructured.SetNestedField(u.Object, true, "spec", "hold")
			})
		}
		figures("size 7, tags 0, reclaimable 0")
	})
}
