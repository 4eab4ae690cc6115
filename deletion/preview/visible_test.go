package preview

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestVisible: an answer names what the client may get and counts the rest; about an object
// that the client may not get it says nothing, not even whether it exists.
func TestVisible(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.create(thing{kind: object.Namespaces, name: "n"})
	root := w.create(thing{namespace: "n", name: "root"})
	w.create(thing{namespace: "n", name: "seen", owners: w.ownedBy(root)})
	w.create(thing{kind: "secrets", namespace: "n", name: "hidden", owners: w.ownedBy(root), finalizers: []string{"x.dev/hold"}})
	readable := []string{"configmaps"}
	ctx := kind.WithClient(t.Context(), kind.Client{May: func(verb string, r schema.GroupResource, namespace, name string) error {
		if verb == "get" && slices.Contains(readable, r.Resource) {
			return nil
		}
		return apierrors.NewForbidden(r, name, fmt.Errorf("no %s in %s", verb, namespace))
	}})
	preview, report := w.service.Kinds()[0], w.service.Kinds()[1]
	ref := func(kind, name string) v1.ObjectReference {
		return v1.ObjectReference{APIVersion: "v1", Kind: kind, Namespace: "n", Name: name}
	}
	answer, err := preview.Answer(ctx, &v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: ref("ConfigMap", "root")}}, kind.Call{})
	if err != nil {
		t.Fatal(err)
	}
	status := answer.(*v1.DeletionPreview).Status
	if status.Total != 3 || len(status.Items) != 2 || status.Hidden != 2 || len(status.Blockers) != 0 || status.BlockersTotal != 1 {
		t.Errorf("got %+v", status)
	}
	for _, name := range []string{"hidden", "missing"} {
		if _, err := preview.Answer(ctx, &v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: ref("Secret", name)}}, kind.Call{}); !apierrors.IsForbidden(err) {
			t.Errorf("preview of %s: %v", name, err)
		}
		if _, err := report.Answer(ctx, &v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: ref("Secret", name)}}, kind.Call{}); !apierrors.IsForbidden(err) {
			t.Errorf("report of %s: %v", name, err)
		}
	}
	if _, err := report.Answer(ctx, &v1.DeletionReport{Spec: v1.DeletionReportSpec{Namespace: "n"}}, kind.Call{}); !apierrors.IsForbidden(err) {
		t.Errorf("report of a namespace: %v", err)
	}
	w.delete(root.Key, with(metav1.DeletePropagationForeground))
	w.collect()
	explain := func() string {
		answer, err := report.Answer(ctx, &v1.DeletionReport{Spec: v1.DeletionReportSpec{Object: ref("ConfigMap", "root")}}, kind.Call{})
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
