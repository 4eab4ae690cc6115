package repository

import (
	"cmp"
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	v1 "github.com/exeunt/exeunt/registry/v1"
)

//go:embed repository.yaml
var definition []byte

// newKind makes Repository a custom kind, from a definition that is not stored: so schema, validation, server-side apply and
// explain work. rules adds the checks of the name, which a definition cannot express.
func newKind() (*kind.Kind, error) {
	k, err := custom.BuiltIn(definition)
	if err != nil {
		return nil, err
	}
	k.Content = content
	v := k.Versions[0]
	v.Strategy = rules{custom.Checked{Strategy: v.Strategy, Check: validate}}
	v.Table = table
	return k, nil
}

// rules set the path of a new object, if it follows from the name.
type rules struct{ lifecycle.Strategy }

// Create is part of lifecycle.Strategy.
func (s rules) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	setPath(obj)
	return s.Strategy.Create(ctx, obj)
}

func setPath(obj runtime.Object) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok || pathOf(u) != "" {
		return
	}
	path, known := v1.Path(u.GetNamespace(), u.GetName())
	if !known {
		return
	}
	if spec, ok := u.Object["spec"].(map[string]any); ok {
		spec["path"] = path
	} else if u.Object["spec"] == nil {
		u.Object["spec"] = map[string]any{"path": path}
	}
}

var pathField = field.NewPath("spec", "path")

func validate(obj runtime.Object) field.ErrorList {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return field.ErrorList{field.InternalError(nil, errNotCustom)}
	}
	var errs field.ErrorList
	switch path := pathOf(u); {
	case path == "":
		errs = append(errs, field.Required(pathField, "it does not follow from the name: set it"))
	case !v1.ValidPath(path):
		errs = append(errs, field.Invalid(pathField, path, "is not the path of a repository: want lower-case letters and digits, separated by one . or _, two _ or any number of -, in components separated by /, 255 characters at most"))
	default:
		if namespace, name := v1.Name(path); namespace != u.GetNamespace() || name != u.GetName() {
			errs = append(errs, field.Invalid(pathField, path, "belongs to the Repository "+name+" in namespace "+namespace))
		}
	}
	for key, value := range u.GetAnnotations() {
		if strings.ContainsRune(value, 0) { // the triggers' JSON functions refuse NUL
			errs = append(errs, field.Invalid(field.NewPath("metadata", "annotations").Key(key), value, "must not contain NUL"))
		}
	}
	return errs
}

func pathOf(u *unstructured.Unstructured) string {
	path, _, _ := unstructured.NestedString(u.Object, "spec", "path")
	return path
}

// table is what `kubectl get repositories` shows.
var table = kind.Table[*unstructured.Unstructured]{Cells: cells, Columns: []metav1.TableColumnDefinition{
	{Name: "Name", Type: "string", Format: "name", Description: "The name in the API."},
	{Name: "Size", Type: "string", Description: "The bytes of all its blobs."},
	{Name: "Tags", Type: "integer", Description: "How many tags it has."},
	{Name: "Last Push", Type: "string", Description: "Time since the last push."},
	{Name: "Reclaimable", Type: "string", Description: "The bytes that collection will remove."},
	{Name: "Age", Type: "string", Description: "Time since its creation."},
	{Name: "Manifests", Type: "integer", Priority: 1, Description: "How many manifests it has."},
	{Name: "Quota", Type: "string", Priority: 1, Description: "How many bytes its blobs may have."},
	{Name: "Path", Type: "string", Priority: 1, Description: "The path for clients of the registry."},
}}

func cells(u *unstructured.Unstructured) []any {
	push := "<never>"
	if text, _, _ := unstructured.NestedString(u.Object, "status", "lastPush"); text != "" {
		if at, err := time.Parse(time.RFC3339, text); err == nil {
			push = duration.HumanDuration(time.Since(at))
		}
	}
	quota, _, _ := unstructured.NestedString(u.Object, "spec", "quota")
	return []any{
		u.GetName(), v1.Size(figure(u, "size")), figure(u, "tags"), push, v1.Size(figure(u, "reclaimable")),
		duration.HumanDuration(time.Since(u.GetCreationTimestamp().Time)), figure(u, "manifests"), cmp.Or(quota, "<none>"), pathOf(u),
	}
}

// content says what a deletion of the repository takes, by its status.
func content(body []byte) string {
	status := gjson.GetBytes(body, "status")
	count := func(field, word string) string {
		n := status.Get(field).Int()
		if n != 1 {
			word += "s"
		}
		return fmt.Sprintf("%d %s", n, word)
	}
	if status.Get("manifests").Int() == 0 {
		return ""
	}
	bytes := v1.Size(status.Get("size").Int())
	if status.Get("size").Int() < 10<<10 {
		bytes = count("size", "byte")
	}
	return fmt.Sprintf("%s, %s and %s", count("tags", "tag"), count("manifests", "manifest"), bytes)
}

// figure returns a number of the status.
func figure(u *unstructured.Unstructured, name string) int64 {
	n, _, _ := unstructured.NestedInt64(u.Object, "status", name)
	return n
}
