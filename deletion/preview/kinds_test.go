package preview

import (
	"reflect"
	"strings"
	"testing"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// TestAnswers asks as the API does, through the kinds.
func TestAnswers(t *testing.T) {
	w := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite), Options{})
	w.create(thing{kind: object.Namespaces, name: "n"})
	ref := v1.ObjectReference{APIVersion: "v1", Kind: "ConfigMap", Namespace: "n", Name: "a"}
	preview, report := w.service.Kinds()[0], w.service.Kinds()[1]
	for _, k := range []string{preview.Name, report.Name} {
		if k != "DeletionPreview" && k != "DeletionReport" {
			t.Errorf("got a kind %s", k)
		}
	}
	question := &v1.DeletionPreview{Spec: v1.DeletionPreviewSpec{Object: ref}}
	question.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	_, err := preview.Answer(t.Context(), question, kind.Call{})
	if !apierrors.IsNotFound(err) || err.Error() != `configmaps "a" not found` {
		t.Errorf("got %v, want that configmap a is not found", err)
	}
	o := w.create(thing{namespace: "n", name: "a"})
	answer, err := preview.Answer(t.Context(), question, kind.Call{})
	if err != nil {
		t.Fatal(err)
	}
	if p := answer.(*v1.DeletionPreview); p.Status.Total != 1 || p.Status.Object.UID != o.UID || p.ManagedFields != nil || question.Status.Total != 0 {
		t.Errorf("got %+v", p)
	}
	answer, err = report.Answer(t.Context(), &v1.DeletionReport{Spec: v1.DeletionReportSpec{Namespace: "nowhere"}}, kind.Call{})
	if err != nil {
		t.Fatal(err)
	}
	if r := answer.(*v1.DeletionReport); r.Status.Exists || r.Status.State != v1.DoesNotExist || r.Status.Object.Name != "nowhere" {
		t.Errorf("got %+v", r)
	}
	if _, err := report.Answer(t.Context(), question, kind.Call{}); err == nil {
		t.Error("a report answered a preview")
	}
}

// TestSchemas holds what is published against the Go types, field by field.
func TestSchemas(t *testing.T) {
	compare(t, "preview", reflect.TypeFor[v1.DeletionPreview](), *previewSchema(), 0)
	compare(t, "report", reflect.TypeFor[v1.DeletionReport](), *reportSchema(), 0)
}

func compare(t *testing.T, path string, typ reflect.Type, s spec.Schema, depth int) {
	t.Helper()
	for typ.Kind() == reflect.Pointer || typ.Kind() == reflect.Slice {
		if typ.Kind() == reflect.Slice {
			if len(s.Type) != 1 || s.Type[0] != "array" || s.Items == nil {
				t.Errorf("%s: is a list, and the schema says %v", path, s.Type)
				return
			}
			s = *s.Items.Schema
		}
		typ = typ.Elem()
	}
	if typ == reflect.TypeFor[metav1.Time]() || typ.Kind() != reflect.Struct {
		want := map[reflect.Kind]string{reflect.String: "string", reflect.Int64: "integer", reflect.Bool: "boolean", reflect.Struct: "string"}[typ.Kind()]
		if len(s.Type) != 1 || s.Type[0] != want {
			t.Errorf("%s: want %s, the schema says %v", path, want, s.Type)
		}
		return
	}
	if preserved, _ := s.Extensions.GetBool("x-kubernetes-preserve-unknown-fields"); preserved {
		return
	}
	fields := map[string]reflect.Type{}
	jsonFields(typ, fields)
	delete(fields, "metadata") // every object's, and published with it
	delete(fields, "inline")
	for name, of := range fields {
		property, ok := s.Properties[name]
		if !ok {
			t.Errorf("%s.%s has no schema", path, name)
			continue
		}
		if property.Description == "" {
			t.Errorf("%s.%s has no description", path, name)
		}
		compare(t, path+"."+name, of, property, depth+1)
	}
	for name := range s.Properties {
		if _, ok := fields[name]; !ok {
			t.Errorf("%s has no field %s", path, name)
		}
	}
}

// jsonFields collects fields by their JSON names, those of embedded structs
// too; TypeMeta is every object's.
func jsonFields(typ reflect.Type, into map[string]reflect.Type) {
	for i := range typ.NumField() {
		f := typ.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case f.Type == reflect.TypeFor[metav1.TypeMeta]():
		case options == "inline":
			jsonFields(f.Type, into)
		default:
			into[name] = f.Type
		}
	}
}

// TestDeepCopies: a copy shares nothing.
func TestDeepCopies(t *testing.T) {
	policy, grace, now := metav1.DeletePropagationOrphan, int64(3), metav1.Now()
	p := &v1.DeletionPreview{
		Spec: v1.DeletionPreviewSpec{PropagationPolicy: &policy, GracePeriodSeconds: &grace},
		Status: v1.DeletionPreviewStatus{
			Counts: []v1.Count{{Kind: "a"}}, Items: []v1.Item{{Finalizers: []string{"x"}}}, Blockers: []v1.Item{{Finalizers: []string{"x"}}},
		},
	}
	c := p.DeepCopy()
	*c.Spec.PropagationPolicy, *c.Spec.GracePeriodSeconds = "", 0
	c.Status.Counts[0].Kind, c.Status.Items[0].Finalizers[0], c.Status.Blockers[0].Finalizers[0] = "", "", ""
	if policy == "" || grace == 0 || p.Status.Counts[0].Kind == "" || p.Status.Items[0].Finalizers[0] == "" || p.Status.Blockers[0].Finalizers[0] == "" {
		t.Errorf("the copy shares with the original: %+v", p)
	}
	r := &v1.DeletionReport{Status: v1.DeletionReportStatus{Reasons: []v1.Reason{{Children: []v1.Reason{{Since: &now, Object: &v1.ObjectReference{Name: "a"}}}}}}}
	d := r.DeepCopy()
	child := &d.Status.Reasons[0].Children[0]
	child.Object.Name, child.Since.Time = "", now.Add(1)
	if original := r.Status.Reasons[0].Children[0]; original.Object.Name == "" || original.Since != &now || child.Since == &now {
		t.Errorf("the copy shares with the original: %+v", original)
	}
}
