// Package provisioning is the broker's API: the kinds Blueprint and
// ProvisionedResource, their admission checks, and the conversion between
// stored objects and the broker's domain.
//
// It promises that an accepted declaration can be provisioned as far as the
// broker can know, and that a refusal names the field; that a
// ProvisionedResource stays until its teardown is over, unless a client removes
// its finalizer; and that a version of a blueprint never changes.
//
// It decides nothing about resources: package broker does, and broker/reconcile
// drives it. Begin with [API].
package provisioning

import (
	"cmp"
	"context"
	_ "embed"
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/reconcile"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/custom"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

const (
	group = "provisioning.exeunt.dev"
	// ResourceStorage is the storage name of ProvisionedResources. The triggers
	// of the schema name it too.
	ResourceStorage = object.ProvisionedResources
	// TeardownFinalizer keeps a ProvisionedResource until its teardown is over.
	TeardownFinalizer = "provisioning.exeunt.dev/teardown"
	// InUseFinalizer keeps a Blueprint while a resource uses it.
	InUseFinalizer = "provisioning.exeunt.dev/in-use"
)

//go:embed blueprint.yaml
var blueprintYAML []byte

//go:embed provisionedresource.yaml
var resourceYAML []byte

// Admission checks a declaration against the objects that it refers to, and
// stores nothing: broker.Service.
type Admission interface {
	Admit(ctx context.Context, request broker.ProvisionRequest) error
}

// API stores the objects of the two kinds. It is safe for concurrent use.
type API struct {
	db        *sqldb.DB
	store     *store.Store
	kinds     *kind.Registry
	log       *slog.Logger
	now       func() time.Time
	admission Admission // set once, by Serve

	blueprints, resources *kind.Version
}

// New makes the API. Call Serve before its kinds are served.
func New(db *sqldb.DB, st *store.Store, kinds *kind.Registry, log *slog.Logger) *API {
	log = cmp.Or(log, slog.Default())
	a := &API{db: db, store: st, kinds: kinds, log: log, now: time.Now}
	a.blueprints = load(blueprintYAML)
	a.blueprints.Strategy = blueprintStrategy{a.blueprints.Strategy}
	a.resources = load(resourceYAML)
	a.resources.Strategy = resourceStrategy{a.resources.Strategy}
	a.resources.Kind.Admit, a.resources.Kind.Reborn = a.admit, true
	return a
}

// Serve sets the admission of declarations and returns the kinds.
func (a *API) Serve(admission Admission) []*kind.Kind {
	a.admission = admission
	return []*kind.Kind{a.blueprints.Kind, a.resources.Kind}
}

// load parses the one version of a kind from its definition.
func load(text []byte) *kind.Version {
	k, err := custom.BuiltIn(text)
	if err != nil {
		panic(err) // the text is embedded: one call in a test proves it
	}
	return k.Versions[0]
}

// at finds the object with a uid, or returns nil.
func (a *API) at(ctx context.Context, v *kind.Version, uid string) (*object.Object, error) {
	heads, err := a.store.Reader().Heads(ctx, []types.UID{types.UID(uid)})
	head, found := heads[types.UID(uid)]
	if err != nil || !found || head.Kind != v.Kind.Storage {
		return nil, err
	}
	o, err := a.store.Get(ctx, head.Key)
	if object.Is(err, object.NotFound) || err == nil && string(o.UID) != uid {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	return &o, nil
}

// resource is a stored ProvisionedResource: the fields that this package reads.
type resource struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		BlueprintRef  broker.BlueprintVersionRef `json:"blueprintRef"`
		CredentialRef struct {
			Name broker.CloudCredentialRef `json:"name"`
		} `json:"credentialRef"`
		Parameters map[string]any `json:"parameters"`
	} `json:"spec"`
}

// request converts the declaration to the broker's type. Its id is the object's
// uid, which is never reused.
func (r *resource) request() broker.ProvisionRequest {
	return broker.ProvisionRequest{
		ID: broker.ProvisionedResourceID(r.Metadata.UID), Project: broker.ProjectID(r.Metadata.Namespace), Name: r.Metadata.Name,
		Blueprint: r.Spec.BlueprintRef, Credential: r.Spec.CredentialRef.Name, Parameters: r.Spec.Parameters,
	}
}

// resourceStrategy adds rules to those of the schema.
type resourceStrategy struct{ lifecycle.Strategy }

// Create adds the finalizer, so that a stored resource stays until its teardown is over.
func (s resourceStrategy) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	addFinalizer(obj, TeardownFinalizer)
	return s.Strategy.Create(ctx, obj)
}

// Update keeps the spec of a resource immutable.
func (s resourceStrategy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	next, ok := obj.(*unstructured.Unstructured)
	was, okOld := old.(*unstructured.Unstructured)
	if ok && okOld && !equality.Semantic.DeepEqual(next.Object["spec"], was.Object["spec"]) {
		errs = append(errs, field.Forbidden(field.NewPath("spec"), "cannot be changed: declare another resource"))
	}
	return warnings, errs
}

// decode reads an object of one of this package's kinds.
func decode[T any](obj runtime.Object) (*T, error) {
	u, ok := obj.(*unstructured.Unstructured)
	if !ok {
		return nil, fmt.Errorf("a %T is not of this package's kinds", obj)
	}
	body, err := u.MarshalJSON()
	if err != nil {
		return nil, err
	}
	out := new(T)
	return out, json.Unmarshal(body, out)
}

func addFinalizer(obj runtime.Object, name string) {
	m, err := meta.Accessor(obj)
	if err != nil {
		return // the name validation refuses it
	}
	if !slices.Contains(m.GetFinalizers(), name) {
		m.SetFinalizers(append(m.GetFinalizers(), name))
	}
}

// admit checks a new declaration against blueprint, credential and namespace:
// kind.Kind.Admit. The answer may be outdated when the object is stored; then
// the broker refuses the declaration, and the object's status says so.
func (a *API) admit(ctx context.Context, obj runtime.Object) error {
	r, err := decode[resource](obj)
	if err != nil {
		return object.BadRequestf("read ProvisionedResource: %v", err)
	}
	err = a.admission.Admit(ctx, r.request())
	var refused broker.FieldErrors
	switch {
	case err == nil:
		return nil
	case !errors.As(err, &refused):
		a.log.Warn("cannot check a declaration", "resource", r.Metadata.Name, "namespace", r.Metadata.Namespace, "error", err)
		return apierrors.NewServiceUnavailable(fmt.Sprintf("the management cluster cannot be asked whether the resource can be provisioned: %v", err))
	}
	for _, f := range refused {
		// Kubernetes' own errors, which every client knows.
		if f.Field == "project" && errors.Is(f, broker.ErrNamespaceUnavailable) {
			if strings.HasSuffix(f.Detail, string(broker.NamespaceTerminating)) {
				return object.Errorf(object.Terminating, "%s", f.Detail)
			}
			return object.Errorf(object.NoNamespace, "%s", f.Detail)
		}
	}
	return object.InvalidFields(translate(refused, resourceField))
}

// translate converts field errors of the domain to those of the API. It does
// not repeat values: they may be large, or secret.
func translate(err error, where func(string) *field.Path) (errs field.ErrorList) {
	var refused broker.FieldErrors
	if !errors.As(err, &refused) {
		return nil
	}
	for _, f := range refused {
		kind := field.ErrorTypeInvalid
		switch {
		case errors.Is(f, broker.ErrBlueprintNotFound), errors.Is(f, broker.ErrCloudCredentialNotFound):
			kind = field.ErrorTypeNotFound
		case f.Detail == "is required":
			kind = field.ErrorTypeRequired
		}
		errs = append(errs, &field.Error{Type: kind, Field: where(f.Field).String(), BadValue: field.OmitValueType{}, Detail: f.Detail})
	}
	return errs
}

// resourceField is the API path of a field of the domain's ProvisionRequest.
func resourceField(name string) *field.Path {
	spec := field.NewPath("spec")
	switch name {
	case "id":
		return field.NewPath("metadata", "uid")
	case "name":
		return field.NewPath("metadata", "name")
	case "project":
		return field.NewPath("metadata", "namespace")
	case "blueprint":
		return spec.Child("blueprintRef")
	case "blueprint.name":
		return spec.Child("blueprintRef", "name")
	case "blueprint.version":
		return spec.Child("blueprintRef", "version")
	case "credential":
		return spec.Child("credentialRef", "name")
	}
	return spec.Child(name)
}

// Find reads a declaration: reconcile.Declarations.
func (a *API) Find(ctx context.Context, id broker.ProvisionedResourceID) (reconcile.Declaration, bool, error) {
	o, err := a.at(ctx, a.resources, string(id))
	if err != nil || o == nil {
		return reconcile.Declaration{}, false, err
	}
	var r resource
	if err := json.Unmarshal(o.Body, &r); err != nil {
		return reconcile.Declaration{}, false, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return reconcile.Declaration{Request: r.request(), Deleting: r.Metadata.DeletionTimestamp != nil}, true, nil
}

// Show writes the status of a declaration: reconcile.Declarations. An error
// that is new in the status becomes an Event as well.
func (a *API) Show(ctx context.Context, id broker.ProvisionedResourceID, view reconcile.View) error {
	var about object.Object
	news := false
	err := a.change(ctx, a.resources, string(id), func(u *unstructured.Unstructured) {
		was, _, _ := unstructured.NestedMap(u.Object, "status")
		u.Object["status"] = status(view, was, u.GetGeneration(), a.now())
		news = view.Error != "" && view.Error != lastError(was)
		about = object.Object{Key: object.Key{Kind: ResourceStorage, Namespace: u.GetNamespace(), Name: u.GetName()}, UID: u.GetUID()}
	})
	if err != nil || !news {
		return err
	}
	return a.recordFailure(ctx, about, view)
}

// Release removes the finalizer: reconcile.Declarations.
func (a *API) Release(ctx context.Context, id broker.ProvisionedResourceID) error {
	return a.change(ctx, a.resources, string(id), dropFinalizer(TeardownFinalizer))
}

func dropFinalizer(name string) func(*unstructured.Unstructured) {
	return func(u *unstructured.Unstructured) {
		u.SetFinalizers(slices.DeleteFunc(u.GetFinalizers(), func(f string) bool { return f == name }))
	}
}

// change rewrites an object, with retries on conflicts, and removes it if it
// has lost its last finalizer. change does nothing if the object is gone or
// stays the same.
func (a *API) change(ctx context.Context, v *kind.Version, uid string, fn func(*unstructured.Unstructured)) error {
	for {
		o, err := a.at(ctx, v, uid)
		if err != nil || o == nil {
			return err
		}
		err = a.changeOnce(ctx, v, *o, fn)
		switch {
		case object.Is(err, object.Conflict) && ctx.Err() == nil:
			continue
		case object.Is(err, object.NotFound):
			return nil
		}
		return err
	}
}

func (a *API) changeOnce(ctx context.Context, v *kind.Version, o object.Object, fn func(*unstructured.Unstructured)) error {
	decoded, err := v.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return fmt.Errorf("read %s: %w", o.Key, err)
	}
	was, ok := decoded.(*unstructured.Unstructured)
	if !ok {
		return fmt.Errorf("read %s: a %T", o.Key, decoded)
	}
	next := was.DeepCopy()
	fn(next)
	body, err := v.Encode(next)
	if err != nil {
		return fmt.Errorf("write %s: %w", o.Key, err)
	}
	_, err = a.store.Update(ctx, store.UpdateRequest{
		Key: o.Key, IfRevision: o.Revision, Body: body, Actor: actor,
		Meta: metav1.ObjectMeta{
			Name: next.GetName(), Namespace: next.GetNamespace(), UID: next.GetUID(), Finalizers: next.GetFinalizers(),
			OwnerReferences: next.GetOwnerReferences(), Labels: next.GetLabels(), Annotations: next.GetAnnotations(),
			DeletionTimestamp: next.GetDeletionTimestamp(), DeletionGracePeriodSeconds: next.GetDeletionGracePeriodSeconds(),
		},
		Remove: lifecycle.LastFinalizerGone(next, was),
	})
	return err
}

// actor is the broker's user name.
const actor = "system:broker"
