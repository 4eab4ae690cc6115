package preview

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestAnswers asks through the kinds, as the API does.
func TestAnswers(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	ref := v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	preview := w.service.Kind()
	if preview.Name != "DeletionPreview" {
		t.Errorf("got a kind %s", preview.Name)
	}
	question := &v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: ref}}
	question.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	_, err := preview.Answer(t.Context(), question, kind.Call{Client: kindtest.Almighty()})
	if !apierrors.IsNotFound(err) || err.Error() != `configmaps "a" not found` {
		t.Errorf("got %v, want that configmap a is not found", err)
	}
	o := w.Create(thing{Namespace: "n", Name: "a"})
	answer, err := preview.Answer(t.Context(), question, kind.Call{Client: kindtest.Almighty()})
	if err != nil {
		t.Fatal(err)
	}
	if p := answer.(*v1.DeletionPreview); p.Status.Total != 1 || p.Status.Object.UID != o.UID || p.ManagedFields != nil || question.Status.Total != 0 {
		t.Errorf("got %+v", p)
	}
}
