package preview

import (
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestVisible: an answer names the objects that the client may get and counts the others;
// for an object that the client may not get, it does not even say whether it exists.
func TestVisible(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Mixed()
	readable := []string{"configmaps"}
	call := kind.Call{Client: deletiontest.MayGet(&readable)}
	preview := w.service.Kind()
	ref := func(kind, name string) v1.ObjectReference {
		return v1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: "n", Name: name}
	}
	answer, err := preview.Answer(t.Context(), &v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: ref("ConfigMap", "root")}}, call)
	if err != nil {
		t.Fatal(err)
	}
	status := answer.(*v1.DeletionPreview).Status
	if status.Total != 3 || len(status.Items) != 2 || status.Hidden != 1 || len(status.Blockers) != 0 || status.BlockersTotal != 1 {
		t.Errorf("got %+v", status)
	}
	for _, name := range []string{"hidden", "missing"} {
		if _, err := preview.Answer(t.Context(), &v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: ref("Secret", name)}}, call); !apierrors.IsForbidden(err) {
			t.Errorf("preview of %s: %v", name, err)
		}
	}
}
