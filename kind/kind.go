// Package kind describes the kinds that exist: their names, versions, strategies,
// columns, and codecs. kind/builtin holds the built-in kinds. kind/custom builds
// the kinds that a CustomResourceDefinition declares. The package does not use the
// store and serves no requests.
package kind

import (
	"context"
	"reflect"
	"slices"
	"strings"

	"github.com/tidwall/gjson"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// Kind is one kind of object. It is immutable once registered: a changed
// CustomResourceDefinition makes a new Kind.
type Kind struct {
	Group      string
	Name       string // "Deployment"
	ListName   string // "DeploymentList"
	Plural     string // "deployments"
	Singular   string // "deployment"
	ShortNames []string
	Categories []string
	Namespaced bool

	// Storage is the name that objects are stored under: "deployments.apps". Two
	// kinds share it if they are two views of the same objects (Events).
	Storage string

	// Versions are the served versions, the preferred one first.
	Versions []*Version

	// StoredAs is the name of the version in which objects are written: "v1". It may be a
	// version that is not served. Empty means the preferred one.
	StoredAs string

	// Definition is the name of the CustomResourceDefinition that declares the
	// kind; empty for built-in kinds. Generation is that of the definition.
	Definition string
	Generation int64

	// Fingerprint differs for kinds that are described differently, and is the same on all
	// replicas. Empty if not known.
	Fingerprint string

	// Rules are the kind's rules of deletion.
	Rules lifecycle.Rules

	// Most, if not 0, is how many objects of the kind a namespace may have; of a cluster-scoped kind, how many there may be.
	Most int64

	// ReturnsDeleted makes a delete answer with the removed object instead of a
	// Status (Pods and a few more).
	ReturnsDeleted bool

	// OrphanWarning is sent with a delete that names no policy, for a kind whose
	// DefaultPolicy orphans its dependents. Empty means no warning.
	OrphanWarning string

	// Refuse, if set, is the reason why objects of this kind cannot be created now (its
	// CustomResourceDefinition is being deleted). The client gets a 403.
	Refuse string

	// Admit, if set, checks a new object against other objects or other servers, which a
	// Strategy must not do. An *object.Error goes to the client.
	Admit func(ctx context.Context, obj runtime.Object) error

	// Attach, if set, completes an object after its validation and returns the objects
	// that the same transaction must create: the addresses of a Service. Old is nil for a
	// new object. It may read the store.
	Attach func(ctx context.Context, obj, old runtime.Object) (Attachment, error)

	// Content, if set, says what outside the store goes with an object, from its stored
	// body: "2 tags and 3Mi". Empty means nothing does.
	Content func(body []byte) string

	// Restored, if set, changes an object that comes back from the archive, before it is
	// created. Credentials are left out unless the client asks for them.
	Restored func(obj runtime.Object, keepTokens bool) (warnings []string)

	// ReadOnly kinds are written by the server only: clients can get, list and watch.
	ReadOnly bool

	// Ephemeral kinds (the review kinds) are answered and never stored: only create
	// works. Answer computes the reply; nil if the api package answers.
	Ephemeral bool
	Answer    Answer

	// Reborn: a restored object is a new one, with a new uid. What the old uid stood for
	// elsewhere is gone for good: the substrate of a ProvisionedResource, the certificates of a
	// User.
	Reborn bool

	// Source, if set, provides the objects instead of the store. Only get, list and
	// delete work, and create if there is an Answer.
	Source Source
}

// Version is a Kind as clients of one API version see it.
type Version struct {
	Kind *Kind
	GVK  schema.GroupVersionKind

	New     func() runtime.Object
	NewList func() runtime.Object

	// Decode decodes a stored body into an object of this version, with its
	// apiVersion, kind and resourceVersion set. Encode is its inverse and returns the
	// stored form (object.Encode).
	Decode func(body []byte, resourceVersion string) (runtime.Object, error)
	Encode func(obj runtime.Object) ([]byte, error)

	// DecodeAll decodes many objects of a kind whose versions are converted by a webhook, with
	// few calls of it. It may take seconds: the client holds no transaction. DecodeStored
	// decodes a body in the version it was written in, without the webhook. Nil means that
	// Decode calls no webhook.
	DecodeAll    func(ctx context.Context, stored []object.Object) ([]runtime.Object, error)
	DecodeStored func(body []byte, resourceVersion string) (runtime.Object, error)

	// Raw says that the stored JSON equals this version's JSON, so that reads are
	// served from stored bytes.
	Raw bool

	Strategy lifecycle.Strategy // for the object itself
	Status   lifecycle.Strategy // for /status, if there is one
	Scale    *Scale             // for /scale, if there is one

	// ResetFields are the fields that a strategy resets, so no manager can own them
	// through that endpoint. The key is the apiVersion.
	ResetFields       map[fieldpath.APIVersion]*fieldpath.Set
	StatusResetFields map[fieldpath.APIVersion]*fieldpath.Set

	// SelectableFields are the field labels that a fieldSelector may name besides
	// metadata.name and metadata.namespace. Each is the dotted JSON path of a scalar
	// in the stored body: "spec.nodeName".
	SelectableFields []string

	// Attributes returns the labels and the fields by which selectors select a decoded
	// object, if the stored body may lack them or show them differently (custom kinds).
	// Nil if the stored body has them.
	Attributes func(obj runtime.Object) (labels.Set, fields.Set, error)

	Table rest.TableConvertor // if nil, a client that asks for a Table gets 406
	Wire  *Wire

	// Warning is sent with every answer (a deprecated version). Empty means none.
	Warning string

	// Schema is the OpenAPI v3 schema of the object, for kinds that are not in the
	// built-in definitions. Nil otherwise. Its answer must not be changed, and
	// is nil if the schema cannot be read.
	Schema func() *spec.Schema
}

// Scale holds the dotted JSON paths of the fields that /scale shows.
// LabelSelectorPath may be empty. It points to a metav1.LabelSelector (or, for
// ReplicationController, a map) if SelectorIsObject, and to a string otherwise.
type Scale struct {
	SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string
	SelectorIsObject                                        bool
}

// Wire holds the codecs of a version: what the library's handlers need of a scheme,
// for typed and for custom kinds.
type Wire struct {
	Serializer          runtime.NegotiatedSerializer
	StandardSerializers []runtime.SerializerInfo // nil if all of Serializer are
	ParameterCodec      runtime.ParameterCodec
	Creater             runtime.ObjectCreater
	Convertor           runtime.ObjectConvertor
	UnsafeConvertor     runtime.ObjectConvertor
	Defaulter           runtime.ObjectDefaulter
	Typer               runtime.ObjectTyper
	TypeConverter       managedfields.TypeConverter
	// Custom kinds use the field manager for CRDs and refuse strategic merge patches.
	Custom bool
}

// AppendWire appends a stored object as JSON, behind a prefix of object.WirePrefix. The kind is Raw, so no body names its
// version, except for a moment in which another replica knows of a changed storage version
// and this one does not.
func (v *Version) AppendWire(dst, prefix []byte, o object.Object) []byte {
	body := o.Body
	if v.Kind.Definition != "" && object.MayHaveVersion(body) {
		if _, unmarked, err := object.CutVersion(body); err == nil {
			body = unmarked
		}
	}
	return object.AppendWire(dst, prefix, body, o.Revision)
}

// Resource returns the version's group, version and plural.
func (v *Version) Resource() schema.GroupVersionResource {
	return v.GVK.GroupVersion().WithResource(v.Kind.Plural)
}

// Equivalents returns the versions of the kind as the library wants them: a webhook that
// names one of them is called for all.
func (v *Version) Equivalents() runtime.EquivalentResourceMapper {
	equivalent := runtime.NewEquivalentResourceRegistry()
	for _, other := range v.Kind.Versions {
		equivalent.RegisterKindFor(other.Resource(), "", other.GVK)
		if other.Status != nil {
			equivalent.RegisterKindFor(other.Resource(), "status", other.GVK)
		}
	}
	return equivalent
}

// Stored returns the version in which objects are stored, or the preferred version if that
// one is not served. It is nil if no version is served.
func (k *Kind) Stored() *Version {
	for _, v := range k.Versions {
		if v.GVK.Version == k.StoredAs {
			return v
		}
	}
	if len(k.Versions) == 0 {
		return nil
	}
	return k.Versions[0]
}

// ObjectsPath is the path of the objects of a resource in a namespace.
func ObjectsPath(gv schema.GroupVersion, namespace, resource string) string {
	path := "/apis/" + gv.String()
	if gv.Group == "" {
		path = "/api/" + gv.Version
	}
	if namespace != "" {
		path += "/namespaces/" + namespace
	}
	return path + "/" + resource
}

// StorageName returns the name under which objects of a group and plural are stored.
func StorageName(group, plural string) string {
	if group == "" {
		return plural
	}
	return plural + "." + group
}

// The verbs by type of kind, as discovery shows them: in alphabetical order but for customVerbs.
var (
	allVerbs       = []string{"create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"}
	namespaceVerbs = []string{"create", "delete", "get", "list", "patch", "update", "watch"}
	readVerbs      = []string{"get", "list", "watch"}
	sourceVerbs    = []string{"delete", "get", "list"}
	answerVerbs    = []string{"create"}
	keptVerbs      = []string{"create", "delete", "get", "list"}
	// customVerbs is the order in which Kubernetes shows those of custom kinds.
	customVerbs = []string{"delete", "deletecollection", "get", "list", "patch", "create", "update", "watch"}
)

// Verbs returns the verbs that the kind supports.
func (k *Kind) Verbs() []string {
	switch {
	case k.Ephemeral:
		return answerVerbs
	case k.ReadOnly:
		return readVerbs
	case k.Source != nil && k.Answer != nil:
		return keptVerbs
	case k.Source != nil:
		return sourceVerbs
	case k.Definition != "":
		return customVerbs
	case k.IsNamespace():
		// A request that deletes all namespaces is always a mistake.
		return namespaceVerbs
	}
	return allVerbs
}

// Allows reports whether the kind supports the verb.
func (k *Kind) Allows(verb string) bool { return slices.Contains(k.Verbs(), verb) }

// IsNamespace reports whether this is the kind Namespace.
func (k *Kind) IsNamespace() bool { return k.Group == "" && k.Name == "Namespace" }

// Defined returns the storage name of the kind that a stored
// CustomResourceDefinition declares; false if it cannot be read.
func Defined(definition []byte) (storage string, ok bool) {
	spec := gjson.GetBytes(definition, "spec")
	plural := spec.Get("names.plural").String()
	return StorageName(spec.Get("group").String(), plural), plural != ""
}

// Source provides the objects of a kind that are not in the store and cannot be
// created by clients. It returns objects of the kind's only version, and an
// *object.Error for the client. It is safe for concurrent use.
type Source interface {
	Get(ctx context.Context, c Client, namespace, name string) (runtime.Object, error)
	// List returns a list of the kind. It may return a part with a continue token.
	List(ctx context.Context, c Client, q SourceQuery) (runtime.Object, error)
	// Delete returns the object that it deleted.
	Delete(ctx context.Context, c Client, namespace, name string, dryRun bool) (runtime.Object, error)
}

// SourceQuery holds the options of a list. The selectors may be nil.
type SourceQuery struct {
	Namespace string // empty means all
	Labels    labels.Selector
	Fields    fields.Selector
	Limit     int64 // 0 if not set by the client
	Continue  string
}

// ReportsGeneration reports whether the schema of the kind has a
// status.observedGeneration: the generation that its controller has seen.
func (k *Kind) ReportsGeneration() bool {
	return slices.ContainsFunc(k.Versions, (*Version).reportsGeneration)
}

// reportsGeneration reads the schema of a custom kind, or the Go type of a built-in
// one.
func (v *Version) reportsGeneration() bool {
	if v.Schema != nil {
		s := v.Schema()
		if s == nil {
			return false
		}
		_, found := s.Properties["status"].Properties["observedGeneration"]
		return found
	}
	if v.New == nil {
		return false
	}
	status, found := fieldOf(reflect.TypeOf(v.New()), "status")
	if !found {
		return false
	}
	_, found = fieldOf(status, "observedGeneration")
	return found
}

// fieldOf returns the type of a struct's field by its JSON name.
func fieldOf(t reflect.Type, name string) (reflect.Type, bool) {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	if t.Kind() != reflect.Struct {
		return nil, false
	}
	for i := range t.NumField() {
		tag, _, _ := strings.Cut(t.Field(i).Tag.Get("json"), ",")
		if tag == name {
			return t.Field(i).Type, true
		}
	}
	return nil, false
}
