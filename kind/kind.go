// Package kind says which kinds exist and what each is like: names, versions,
// strategies, columns, and how its objects are read from and written to the
// wire. Built-in kinds are in kind/builtin; kinds that a
// CustomResourceDefinition declares are made by kind/custom. The package knows
// no store and serves no request.
package kind

import (
	"context"

	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/managedfields"
	"k8s.io/apiserver/pkg/registry/rest"
	"k8s.io/kube-openapi/pkg/validation/spec"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"github.com/exeunt/exeunt/lifecycle"
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

	// Storage is the name objects are stored under: "deployments.apps". Two
	// kinds may share it when they are two views of the same objects (Events).
	Storage string

	// Versions are the served versions, the preferred one first.
	Versions []*Version

	// Definition is the name of the CustomResourceDefinition that declares the
	// kind; empty for built-in kinds.
	Definition string

	// Rules are the kind's rules of deletion.
	Rules lifecycle.Rules

	// ReturnsDeleted says that a delete answers with the object it removed
	// instead of a Status (Pods and a few more).
	ReturnsDeleted bool

	// OrphanWarning is sent with a delete that names no policy, for a kind
	// whose DefaultPolicy orphans and surprises people. Empty: none.
	OrphanWarning string

	// Refuse, when set, is why no object of this kind can be created now (its
	// CustomResourceDefinition is being deleted). Answered with 403.
	Refuse string

	// Admit, when set, checks a new object against what no Strategy may ask:
	// other objects, other servers. An *object.Error is answered as one.
	Admit func(ctx context.Context, obj runtime.Object) error

	// Ephemeral kinds are answered and never stored (the review kinds): only
	// create works. Answer makes the reply; nil leaves it to the api package.
	Ephemeral bool
	Answer    Answer

	// Source, when set, is where the objects are, instead of the store: get,
	// list and delete work, and nothing else.
	Source Source
}

// Version is a Kind as clients of one API version see it.
type Version struct {
	Kind *Kind
	GVK  schema.GroupVersionKind

	New     func() runtime.Object
	NewList func() runtime.Object

	// Decode reads a stored body into an object of this version, with its
	// apiVersion, kind and resourceVersion set. Encode is its inverse and
	// yields the stored form (object.Encode).
	Decode func(body []byte, resourceVersion string) (runtime.Object, error)
	Encode func(obj runtime.Object) ([]byte, error)

	// Raw says that the stored JSON is this version's JSON, so that reads can
	// be served from stored bytes.
	Raw bool

	Strategy lifecycle.Strategy // for the object itself
	Status   lifecycle.Strategy // for /status; nil: no such subresource
	Scale    *Scale             // for /scale; nil: no such subresource

	// ResetFields are the fields that a strategy resets, which no manager can
	// own through that endpoint. Keyed by apiVersion.
	ResetFields       map[fieldpath.APIVersion]*fieldpath.Set
	StatusResetFields map[fieldpath.APIVersion]*fieldpath.Set

	// SelectableFields are the field labels a fieldSelector may name besides
	// metadata.name and metadata.namespace. Each is the dotted JSON path of a
	// scalar in the stored body: "spec.nodeName".
	SelectableFields []string

	Table rest.TableConvertor
	Wire  *Wire

	// Warning is sent with every answer (a deprecated version). Empty: none.
	Warning string

	// Schema is the OpenAPI v3 schema of the object, for kinds that are not
	// in the built-in definitions. Nil otherwise.
	Schema *spec.Schema
}

// Scale says where a kind keeps what its /scale subresource shows, as dotted
// JSON paths. LabelSelectorPath may be empty; if SelectorIsObject it names a
// metav1.LabelSelector (or, for ReplicationController, a map), otherwise a
// string.
type Scale struct {
	SpecReplicasPath, StatusReplicasPath, LabelSelectorPath string
	SelectorIsObject                                        bool
}

// Wire is how objects of a version are read from and written to requests: what
// the library's handlers need of a scheme, for typed and for custom kinds.
type Wire struct {
	Serializer          runtime.NegotiatedSerializer
	StandardSerializers []runtime.SerializerInfo // nil: all of Serializer's
	ParameterCodec      runtime.ParameterCodec
	Creater             runtime.ObjectCreater
	Convertor           runtime.ObjectConvertor
	UnsafeConvertor     runtime.ObjectConvertor
	Defaulter           runtime.ObjectDefaulter
	Typer               runtime.ObjectTyper
	TypeConverter       managedfields.TypeConverter
	// Custom kinds use the field manager for CRDs, and refuse strategic patches.
	Custom bool
}

// Resource is the version's group, version and plural.
func (v *Version) Resource() schema.GroupVersionResource {
	return v.GVK.GroupVersion().WithResource(v.Kind.Plural)
}

// StorageName is the name a group's plural is stored under.
func StorageName(group, plural string) string {
	if group == "" {
		return plural
	}
	return plural + "." + group
}
