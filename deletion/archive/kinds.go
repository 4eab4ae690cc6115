package archive

import (
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/runtime/serializer"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// Kinds are ArchivedObject, Cascade and Restore.
func (a *Archive) Kinds() []*kind.Kind {
	archived := newKind("archivedobjects", &v1.ArchivedObject{}, &v1.ArchivedObjectList{}, archivedTable, source{a}, v1.Schema(v1.ArchivedObject{}))
	archived.Namespaced = true
	archived.Versions[0].SelectableFields = slices.Clone(selectable)
	cascade := newKind("cascades", &v1.Cascade{}, &v1.CascadeList{}, cascadeTable, cascades{a}, v1.Schema(v1.Cascade{}))
	cascade.Namespaced = true
	restore := newKind("restores", &v1.Restore{}, &v1.RestoreList{}, restoreTable, requests{a}, v1.Schema(v1.Restore{}))
	restore.Answer = a.answer
	return []*kind.Kind{archived, cascade, restore}
}

// newKind returns a kind with one version, which a Source reads.
func newKind(plural string, example, list runtime.Object, table rest.TableConvertor, from kind.Source, described *spec.Schema) *kind.Kind {
	gvk := v1.GroupVersion.WithKind(reflect.TypeOf(example).Elem().Name())
	k := &kind.Kind{
		Group: gvk.Group, Name: gvk.Kind, ListName: gvk.Kind + "List", Plural: plural, Singular: strings.ToLower(gvk.Kind),
		Storage: kind.StorageName(gvk.Group, plural), Source: from,
	}
	k.Versions = []*kind.Version{{
		Kind: k, GVK: gvk, New: example.DeepCopyObject, NewList: list.DeepCopyObject, Encode: object.Encode,
		Decode: func(body []byte, resourceVersion string) (runtime.Object, error) {
			obj := example.DeepCopyObject()
			return obj, object.DecodeInto(body, resourceVersion, gvk, obj)
		},
		Wire: wire(), Table: table, Schema: kind.SchemaOf(described),
	}}
	return k
}

// warn sends the important parts of a status as warnings: some clients print no
// status, such as kubectl create without -o.
func warn(status v1.RestoreStatus, say func(text string)) {
	if status.LeftBehind > 0 {
		say(fmt.Sprintf("%d more objects of cascade %s are still in the archive: restore with spec.withCascade, or spec.cascade", status.LeftBehind, status.Cascade))
	}
	if status.Conflicts > 0 {
		say(fmt.Sprintf("%d were skipped because another object has the name: see status.results", status.Conflicts))
	}
	if status.Failed > 0 {
		say(fmt.Sprintf("%d could not be restored: see status.results", status.Failed))
	}
}

// scheme has the types of this package, and the types of a server's other answers.
var scheme = sync.OnceValue(func() *runtime.Scheme {
	s := runtime.NewScheme()
	s.AddKnownTypes(v1.GroupVersion, &v1.ArchivedObject{}, &v1.ArchivedObjectList{}, &v1.Cascade{}, &v1.CascadeList{}, &v1.Restore{}, &v1.RestoreList{})
	metav1.AddToGroupVersion(s, v1.GroupVersion)
	metav1.AddToGroupVersion(s, schema.GroupVersion{Version: "v1"})
	convert := func(label, value string) (string, string, error) {
		if label == "metadata.name" || label == "metadata.namespace" || slices.Contains(selectable, label) {
			return label, value, nil
		}
		return "", "", fmt.Errorf("field label not supported: %s", label)
	}
	if err := s.AddFieldLabelConversionFunc(v1.GroupVersion.WithKind("ArchivedObject"), convert); err != nil {
		panic(fmt.Sprintf("archive scheme: %v", err)) // the input is constant: one test call proves it
	}
	return s
})

var wire = sync.OnceValue(func() *kind.Wire {
	s := scheme()
	codecs := serializer.NewCodecFactory(s, serializer.WithStreamingCollectionEncodingToJSON())
	var text []runtime.SerializerInfo // these types have no protobuf form
	for _, info := range codecs.SupportedMediaTypes() {
		if info.EncodesAsText {
			text = append(text, info)
		}
	}
	w := kind.NewWire(s, codecs)
	w.StandardSerializers = text
	return w
})

// archivedTable is what `kubectl get archivedobjects` shows.
var archivedTable = kind.Table[*v1.ArchivedObject]{Columns: []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The uid that the object had."},
	{Name: "Kind", Type: "string", Description: "The kind of the object."},
	{Name: "Object", Type: "string", Description: "The name of the object."},
	{Name: "Removed", Type: "string", Description: "How long ago it was removed."},
	{Name: "Expires", Type: "string", Description: "In what time its cascade leaves the archive, whole."},
	{Name: "Requested By", Type: "string", Description: "The client whose delete began the cascade."},
	{Name: "Actor", Type: "string", Description: "The user that deleted it: the client, or a controller that continued the cascade."},
	{Name: "Cascade", Type: "string", Description: "The id that all objects removed by one delete share."},
}, Cells: func(o *v1.ArchivedObject) []any {
	age := duration.HumanDuration(time.Since(o.Spec.RemovedAt.Time))
	return []any{o.Name, o.Spec.Kind, o.Spec.Name, age, v1.Left(o.Spec.ExpiresAt), o.Spec.RequestedBy, o.Spec.Actor, o.Spec.Cascade}
}}

// cascadeTable is what `kubectl get cascades` shows.
var cascadeTable = kind.Table[*v1.Cascade]{Columns: []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The id of the cascade."},
	{Name: "Kind", Type: "string", Description: "The kind of the object that it began with."},
	{Name: "Object", Type: "string", Description: "The name of that object."},
	{Name: "Requested By", Type: "string", Description: "The client whose delete began it."},
	{Name: "State", Type: "string", Description: "running, held, ended, partly restored or restored."},
	{Name: "Removed", Type: "integer", Description: "How many objects are gone."},
	{Name: "Remaining", Type: "integer", Description: "How many have to follow."},
	{Name: "Bytes", Type: "integer", Description: "The size of the removed objects."},
	{Name: "Expires", Type: "string", Description: "In what time it leaves the archive, whole."},
	{Name: "Age", Type: "string", Description: "How long ago it began."},
}, Cells: func(c *v1.Cascade) []any {
	return []any{
		c.Name, c.Spec.Root.Kind, c.Spec.Root.Name, c.Spec.RequestedBy, string(c.Status.State), c.Status.Removed, c.Status.Remaining, c.Status.Bytes,
		v1.Left(c.Status.ExpiresAt), duration.HumanDuration(time.Since(c.Spec.StartedAt.Time)),
	}
}}

// restoreTable is what `kubectl get restores` shows.
var restoreTable = kind.Table[*v1.Restore]{Columns: []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name of the Restore."},
	{Name: "Phase", Type: "string", Description: "Running, Waiting, Complete or Incomplete."},
	{Name: "Created", Type: "integer", Description: "How many objects were created."},
	{Name: "Changed", Type: "integer", Description: "How many a revert changed."},
	{Name: "Deleted", Type: "integer", Description: "How many a revert deleted."},
	{Name: "Skipped", Type: "integer", Description: "How many were skipped."},
	{Name: "Failed", Type: "integer", Description: "How many could not be restored."},
	{Name: "Waiting", Type: "integer", Description: "How many wait for what is being deleted."},
	{Name: "Age", Type: "string", Description: "How long ago it was asked for."},
}, Cells: func(r *v1.Restore) []any {
	s := r.Status
	cells := []any{r.Name, string(s.Phase)}
	for _, n := range []int{s.Created, s.Changed, s.Deleted, s.Skipped, s.Failed, s.Waiting} {
		cells = append(cells, int64(n))
	}
	return append(cells, duration.HumanDuration(time.Since(r.CreationTimestamp.Time)))
}}

// statusOf returns a function that sets the status that an object has now. The rules of a
// create replace the status and do not change its parts, so it needs no copy.
func statusOf(obj runtime.Object) func(runtime.Object) {
	if custom, ok := obj.(*unstructured.Unstructured); ok {
		status, has := custom.Object["status"]
		return func(obj runtime.Object) {
			if made, ok := obj.(*unstructured.Unstructured); ok && has {
				made.Object["status"] = status
			}
		}
	}
	field := reflect.ValueOf(obj).Elem().FieldByName("Status")
	if !field.IsValid() {
		return func(runtime.Object) {}
	}
	status := reflect.ValueOf(field.Interface())
	return func(obj runtime.Object) { reflect.ValueOf(obj).Elem().FieldByName("Status").Set(status) }
}
