package repository

import (
	"errors"
	"fmt"
	"net/http/httptest"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/access/accesstest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/registry"
	v1 "github.com/exeunt/exeunt/registry/v1"
	"github.com/exeunt/exeunt/store"
)

// The races of first pushes, each with the interleaving forced before or after a create
// of the push (docs/spec/registry-tracking.md).

// firstPush pushes a manifest that needs no blobs, and returns status and body.
func (w *world) firstPush(path string) (int, string) {
	w.Helper()
	a := w.do("PUT", "/v2/"+path+"/manifests/1", indexType, fmt.Sprintf(`{"schemaVersion":2,"mediaType":%q,"manifests":[]}`, indexType))
	return a.Code, a.Body.String()
}

func (w *world) wantFirstPush(path string, code int, text string) {
	w.Helper()
	if got, said := w.firstPush(path); got != code || !strings.Contains(said, text) {
		w.Errorf("push %s: %d %s; want %d and %q", path, got, said, code, text)
	}
}

// deleteNamespace deletes a namespace. It stays Terminating: no collector runs.
func (w *world) deleteNamespace(name string) {
	w.Helper()
	req := accesstest.Admin(httptest.NewRequestWithContext(w.Context(), "DELETE", "/api/v1/namespaces/"+name, nil))
	answer := httptest.NewRecorder()
	if w.api.ServeHTTP(answer, req); answer.Code != 200 {
		w.Fatalf("delete namespace %s: %d %s", name, answer.Code, answer.Body)
	}
}

// removeNamespace removes an empty namespace, as the collector does in the end.
func (w *world) removeNamespace(name string) {
	w.Helper()
	if _, err := w.store.Delete(w.Context(), store.DeleteRequest{Key: object.Key{Kind: object.Namespaces, Name: name}}); err != nil {
		w.Fatal(err)
	}
}

func (w *world) rows() int { return w.Count(`SELECT count(*) FROM repositories`) }

// TestRaceNamespaceDeleted: the namespace is deleted after the push has seen it. The push is refused, and
// leaves nothing.
func TestRaceNamespaceDeleted(t *testing.T) {
	each(t, func(w *world) {
		if err := w.createNamespace(w.Context(), "shop"); err != nil {
			w.Fatal(err)
		}
		w.before[v1.Plural] = func() { w.deleteNamespace("shop") }
		w.wantFirstPush("shop/web", 403, "namespace shop is being deleted")
		w.wantFirstPush("shop/web", 403, "namespace shop is being deleted")
		w.before[v1.Plural] = func() { w.removeNamespace("fair") } // which the push has created
		w.wantFirstPush("fair/web", 403, "namespace fair is being deleted")
		if n := w.rows(); n != 0 || w.object("shop", "web") != nil || w.object("fair", "web") != nil {
			w.Errorf("%d repositories are left", n)
		}
		w.wantFirstPush("fair/web", 201, "")
	})
}

// TestRaceTwoFirstPushes: another push creates the namespace, or the repository, after
// this one has found none. Both succeed, on one repository.
func TestRaceTwoFirstPushes(t *testing.T) {
	each(t, func(w *world) {
		w.before[object.Namespaces] = func() { w.wantFirstPush("shop/web", 201, "") }
		w.wantFirstPush("shop/web", 201, "")
		w.before[v1.Plural] = func() { w.wantFirstPush("shop/api", 201, "") }
		w.wantFirstPush("shop/api", 201, "")
		w.want(200, `"tags":["1"]`, "GET", "/v2/shop/web/tags/list")
		w.want(200, `"tags":["1"]`, "GET", "/v2/shop/api/tags/list")
		if n := w.rows(); n != 2 {
			w.Errorf("%d repositories", n)
		}
	})
}

// TestRaceRepositoryDeleted: the repository is deleted as soon as the push has created it.
// The client is told to push again, and can.
func TestRaceRepositoryDeleted(t *testing.T) {
	each(t, func(w *world) {
		w.after[v1.Plural] = func() { w.delete("shop", "web") }
		w.wantFirstPush("shop/web", 403, "it was deleted")
		w.wantFirstPush("shop/web", 201, "")
	})
}

// TestCrashBetweenCreates: a process that dies after it has created the namespace leaves an empty
// one; row and object of a repository are one transaction. The next push goes on.
func TestCrashBetweenCreates(t *testing.T) {
	each(t, func(w *world) {
		w.before[v1.Plural] = func() { panic("crash") }
		func() {
			defer func() { _ = recover() }()
			w.firstPush("shop/web")
		}()
		if n := w.rows(); n != 0 || w.object("shop", "web") != nil {
			w.Errorf("%d repositories are left", n)
		}
		if err := w.createNamespace(w.Context(), "shop"); err != nil { // it exists: nothing changes
			w.Fatal(err)
		}
		w.before[object.Namespaces] = func() { w.Error("the namespace is created again") }
		w.wantFirstPush("shop/web", 201, "")
	})
}

// TestReservedNamespace: no push creates a namespace that Kubernetes reserves; pushes to
// one that exists are as any.
func TestReservedNamespace(t *testing.T) {
	each(t, func(w *world) {
		w.wantFirstPush("kube-evil/web", 403, "reserved for the system")
		if err := w.createNamespace(w.Context(), "kube-evil"); err != nil {
			w.Fatal(err)
		}
		w.wantFirstPush("kube-evil/web", 201, "")
	})
}

// TestRefusalOfAPush: a client of the registry learns whether it may not push, or should try again, and why; an error that is no
// answer of the API stays one of the server.
func TestRefusalOfAPush(t *testing.T) {
	for want, err := range map[registry.Code]error{
		registry.Denied:          apierrors.NewForbidden(schema.GroupResource{Resource: "repositories"}, "a", errors.New("no")),
		registry.TooManyRequests: apierrors.NewTooManyRequests("no", 1),
		registry.Unknown:         apierrors.NewInternalError(errors.New("no")),
		registry.Unavailable:     apierrors.NewServiceUnavailable("no"),
	} {
		var refused *registry.Error
		if got := refusal(err, "what"); !errors.As(got, &refused) || refused.Code != want || !strings.HasPrefix(refused.Message, "what: ") || !strings.HasSuffix(refused.Message, "no") {
			t.Errorf("%v: %v, want %s", err, got, want)
		}
	}
	lost := errors.New("lost")
	if got := refusal(lost, "what"); !errors.Is(got, lost) || errors.As(got, new(*registry.Error)) {
		t.Errorf("%v: %v", lost, got)
	}
}
