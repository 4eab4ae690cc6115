package report

import (
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/kindtest"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestAnswers asks through the kind, as the API does.
func TestAnswers(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.Create(thing{Kind: object.Namespaces, Name: "n"})
	report := w.service.Kind()
	if report.Name != "DeletionReport" {
		t.Errorf("got a kind %s", report.Name)
	}
	answer, err := report.Answer(t.Context(), &v1.DeletionReport{Spec: v1.DeletionReportSpec{Namespace: "nowhere"}}, kind.Call{Client: kindtest.Almighty()})
	if err != nil {
		t.Fatal(err)
	}
	if r := answer.(*v1.DeletionReport); r.Status.Exists || r.Status.State != v1.DoesNotExist || r.Status.Object.Name != "nowhere" {
		t.Errorf("got %+v", r)
	}
	if _, err := report.Answer(t.Context(), &v1.DeletionPreview{}, kind.Call{Client: kindtest.Almighty()}); err == nil {
		t.Error("a report answered a preview")
	}
	ref := v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	_, err = w.service.Report(t.Context(), kindtest.Almighty(), v1.DeletionReportSpec{Object: ref, Namespace: "n"})
	if want := "spec.namespace: Forbidden: give an object or a namespace, not both"; err == nil || err.Error() != want {
		t.Errorf("got %v, want %s", err, want)
	}
}
