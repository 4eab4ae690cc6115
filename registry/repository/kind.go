package repository

import (
	"cmp"
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/tidwall/gjson"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/duration"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/registry"
	v1 "github.com/exeunt/exeunt/registry/v1"
)

// maxDelay is 100 years, in seconds.
const maxDelay = 100 * 365 * 24 * 60 * 60

// newKind makes Repository a custom kind, from a definition that is not stored:
// so schema, validation, server-side apply and explain work. rules adds the
// checks of the name, which a definition cannot express.
func newKind() (*kind.Kind, error) {
	k, err := custom.New(definition(), nil)
	if err != nil {
		return nil, err
	}
	k.Definition = "" // no stored definition declares it, so none can be deleted
	k.Content = content
	v := k.Versions[0]
	v.Strategy = rules{v.Strategy}
	v.Table = table
	return k, nil
}

func definition() *apiextensionsv1.CustomResourceDefinition {
	crd := &apiextensionsv1.CustomResourceDefinition{}
	crd.Name = kind.StorageName(v1.GroupVersion.Group, v1.Plural)
	crd.Spec.Group, crd.Spec.Scope = v1.GroupVersion.Group, apiextensionsv1.NamespaceScoped
	crd.Spec.Names = apiextensionsv1.CustomResourceDefinitionNames{
		Plural: v1.Plural, Singular: "repository", Kind: "Repository", ListKind: "RepositoryList", ShortNames: []string{"repo", "repos"},
	}
	crd.Status.AcceptedNames = crd.Spec.Names
	crd.Spec.Versions = []apiextensionsv1.CustomResourceDefinitionVersion{{
		Name: v1.GroupVersion.Version, Served: true, Storage: true,
		Schema:       &apiextensionsv1.CustomResourceValidation{OpenAPIV3Schema: schema()},
		Subresources: &apiextensionsv1.CustomResourceSubresources{Status: &apiextensionsv1.CustomResourceSubresourceStatus{}},
	}}
	return crd
}

type props = apiextensionsv1.JSONSchemaProps

func schema() *props {
	number := func(description string) props {
		return props{Type: "integer", Format: "int64", Description: description}
	}
	least, most, longest := 0.0, float64(maxDelay), int64(v1.MaxPath)
	return &props{
		Type: "object",
		Description: "Repository is a repository of the OCI registry. The first push to a path creates it, or a client of the API does. " +
			"Deleting it deletes its tags and manifests; while it is in the archive, restoring it brings them back.",
		Properties: map[string]props{
			"apiVersion": {Type: "string"}, "kind": {Type: "string"}, "metadata": {Type: "object"},
			"spec": {
				Type: "object", Description: "The desired state.",
				Properties: map[string]props{
					"path": {
						Type: "string", MaxLength: &longest,
						Description: "The path for clients of the registry. It follows from namespace and name, and cannot be changed: " +
							"\"web\" in namespace shop has the path shop/web, in namespace default the path web. " +
							"A path of more components needs the name that the first push would give it.",
					},
					"anonymousPull": {Type: "boolean", Description: "If true, clients that have not logged in may pull from it."},
					"hold":          {Type: "boolean", Description: "If true, the collector removes nothing of it. It can still be deleted."},
					"quota": {
						Type: "string", Pattern: `^[0-9]{1,15}(Ki|Mi|Gi|Ti|k|M|G|T)?$`,
						Description: "How many bytes its blobs may have together, such as 10Gi, each counted once in this repository. What is there already stays. " +
							"A ResourceQuota limits all repositories of a namespace together: " + registry.BytesResource + ".",
					},
					"reviewAfterSeconds": {
						Type: "integer", Format: "int64", Minimum: &least, Maximum: &most,
						Description: "Seconds between the deletion or move of a tag or list, or the push of a manifest, and the review of its manifest: " +
							"until then it can be undeleted. Default: the registry's settings. These also set how long blobs stay, " +
							"and with them a manifest that was deleted by its digest, and the minimum: existence_check.",
					},
				},
			},
			"status": {
				Type: "object", Description: "The content of the repository, a few seconds old.",
				Properties: map[string]props{
					"size":      number("The bytes of all its blobs, each counted once."),
					"tags":      number("How many tags it has."),
					"manifests": number("How many manifests it has, tagged or not."),
					"reclaimable": number("The bytes of its blobs that collection will remove, if nothing changes until then: " +
						"no manifest that stays uses them, here or elsewhere."),
					"lastPush": {Type: "string", Format: "date-time", Description: "When a manifest or tag was pushed last."},
				},
			},
		},
	}
}

// rules are the rules of a custom kind, and those of the name.
type rules struct{ lifecycle.Strategy }

// Create sets the path, if it follows from the name, and checks that the two match.
func (s rules) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	setPath(obj)
	warnings, errs := s.Strategy.Create(ctx, obj)
	return warnings, append(errs, validate(obj)...)
}

// Update also checks that the path has not changed.
func (s rules) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	return warnings, append(errs, validate(obj)...)
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
