package report

import (
	"fmt"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/deletion/deletiontest"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestVisible: a report names the objects that the client may get; for an object that the
// client may not get, it does not even say whether it exists.
func TestVisible(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	root := w.Mixed()
	readable := []string{"configmaps"}
	call := kind.Call{Client: deletiontest.MayGet(&readable)}
	report := w.service.Kind()
	ref := func(kind, name string) v1.ObjectReference {
		return v1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: "n", Name: name}
	}
	for _, name := range []string{"hidden", "missing"} {
		if _, err := report.Answer(t.Context(), &v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: ref("Secret", name)}}, call); !apierrors.IsForbidden(err) {
			t.Errorf("report of %s: %v", name, err)
		}
	}
	if _, err := report.Answer(t.Context(), &v1.DeletionReport{Spec: v1.DeletionReportSpec{Namespace: "n"}}, call); !apierrors.IsForbidden(err) {
		t.Errorf("report of a namespace: %v", err)
	}
	w.Delete(root.Key, deletiontest.With(metav1.DeletePropagationForeground))
	w.Collect()
	explain := func() string {
		answer, err := report.Answer(t.Context(), &v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: ref("ConfigMap", "root")}}, call)
		if err != nil {
			t.Fatal(err)
		}
		return fmt.Sprint(answer.(*v1.DeletionReport).Status.Reasons)
	}
	if text := explain(); strings.Contains(text, "hidden") || strings.Contains(text, "x.dev/hold") || !strings.Contains(text, "an object that you may not get") {
		t.Errorf("the report says %s", text)
	}
	readable = append(readable, "secrets")
	if text := explain(); !strings.Contains(text, "x.dev/hold") {
		t.Errorf("the report says %s", text)
	}
}
