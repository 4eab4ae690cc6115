package provisioning

import (
	"context"
	"encoding/json"
	"fmt"
	"math"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// blueprint is a stored Blueprint: the fields that this package reads.
type blueprint struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Spec     struct {
		Provider broker.ProviderKind `json:"provider"`
		Versions []blueprintVersion  `json:"versions"`
	} `json:"spec"`
}

type blueprintVersion struct {
	Name           string                   `json:"name"`
	Withdrawn      bool                     `json:"withdrawn"`
	Injection      broker.InjectionStrategy `json:"injection"`
	Deadline       string                   `json:"deadline"`
	XR             broker.Template          `json:"xr"`
	ProviderConfig broker.Template          `json:"providerConfig"`
	Parameters     broker.ParameterSchema   `json:"parameters"`
}

// domain converts a version to the broker's type.
func (b *blueprint) domain(v blueprintVersion) (broker.BlueprintVersion, error) {
	out := broker.BlueprintVersion{
		Ref: broker.BlueprintVersionRef{Name: b.Metadata.Name, Version: v.Name},
		XR:  v.XR, ProviderConfig: v.ProviderConfig, Schema: v.Parameters,
		Provider: b.Spec.Provider, Injection: v.Injection,
	}
	if v.Deadline == "" {
		return out, nil
	}
	deadline, err := time.ParseDuration(v.Deadline)
	if err == nil && deadline <= 0 {
		err = fmt.Errorf("must be more than zero")
	}
	out.Deadline = deadline
	return out, err
}

// blueprintStrategy adds rules to those of the schema.
type blueprintStrategy struct{ lifecycle.Strategy }

// Create adds the finalizer that keeps a Blueprint while it is in use, and lets the domain
// check every version.
func (s blueprintStrategy) Create(ctx context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	addFinalizer(obj, InUseFinalizer)
	warnings, errs := s.Strategy.Create(ctx, obj)
	if len(errs) > 0 {
		return nil, errs // an object that violates the schema cannot be decoded
	}
	b, err := decode[blueprint](obj)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	return warnings, b.check()
}

// Update allows one change of a version: to withdraw it.
func (s blueprintStrategy) Update(ctx context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	warnings, errs := s.Strategy.Update(ctx, obj, old)
	if len(errs) > 0 {
		return nil, errs
	}
	next, err := decode[blueprint](obj)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	was, err := decode[blueprint](old)
	if err != nil {
		return nil, field.ErrorList{field.InternalError(field.NewPath("spec"), err)}
	}
	return warnings, append(next.check(), next.checkKept(was)...)
}

func (b *blueprint) check() (errs field.ErrorList) {
	spec := field.NewPath("spec")
	for i, v := range b.Spec.Versions {
		path := spec.Child("versions").Index(i)
		domain, err := b.domain(v)
		if err != nil {
			errs = append(errs, field.Invalid(path.Child("deadline"), v.Deadline, err.Error()))
		}
		errs = append(errs, translate(domain.Validate(), func(name string) *field.Path { return blueprintField(path, name) })...)
	}
	return errs
}

// blueprintField is the API path of a field of the domain's BlueprintVersion.
func blueprintField(version *field.Path, name string) *field.Path {
	switch {
	case name == "blueprint.name":
		return field.NewPath("metadata", "name")
	case name == "blueprint.version":
		return version.Child("name")
	case name == "provider":
		return field.NewPath("spec", "provider")
	}
	return version.Child(strings.Replace(name, "schema", "parameters", 1))
}

func (b *blueprint) checkKept(was *blueprint) (errs field.ErrorList) {
	versions := field.NewPath("spec", "versions")
	if b.Spec.Provider != was.Spec.Provider {
		errs = append(errs, field.Invalid(field.NewPath("spec", "provider"), b.Spec.Provider, "cannot be changed"))
	}
	for _, old := range was.Spec.Versions {
		i, next := b.version(old.Name)
		if next == nil {
			errs = append(errs, field.Required(versions.Key(old.Name), "a version cannot be taken back; set withdrawn, and no new resource may name it"))
			continue
		}
		changed := *next
		changed.Withdrawn = old.Withdrawn
		if !equality.Semantic.DeepEqual(canonical(changed), canonical(old)) {
			errs = append(errs, field.Forbidden(versions.Index(i), fmt.Sprintf("version %s cannot be changed; add another", old.Name)))
		}
	}
	return errs
}

// canonical returns a value by which templates compare by meaning.
func canonical(v blueprintVersion) any {
	var xr, config any
	_ = json.Unmarshal(v.XR.Spec, &xr) // both were valid when they were stored
	_ = json.Unmarshal(v.ProviderConfig.Spec, &config)
	v.XR.Spec, v.ProviderConfig.Spec = nil, nil
	return []any{v, xr, config}
}

func (b *blueprint) version(name string) (int, *blueprintVersion) {
	for i := range b.Spec.Versions {
		if b.Spec.Versions[i].Name == name {
			return i, &b.Spec.Versions[i]
		}
	}
	return -1, nil
}

// Catalog is broker.BlueprintCatalog over the stored Blueprints.
type Catalog struct {
	api *API
	all bool
}

// Published returns the versions that new resources may name; Known returns all
// of them, for resources that were built from them.
func (a *API) Published() Catalog { return Catalog{a, false} }

// Known returns all versions: see Published.
func (a *API) Known() Catalog { return Catalog{a, true} }

// Version reads one. A Blueprint is visible to every project.
func (c Catalog) Version(ctx context.Context, _ broker.ProjectID, ref broker.BlueprintVersionRef) (broker.BlueprintVersion, error) {
	o, err := c.api.store.Get(ctx, object.Key{Kind: c.api.blueprints.Kind.Storage, Name: ref.Name})
	if object.Is(err, object.NotFound) {
		return broker.BlueprintVersion{}, fmt.Errorf("blueprint %s: %w", ref.Name, broker.ErrBlueprintNotFound)
	}
	if err != nil {
		return broker.BlueprintVersion{}, err
	}
	var b blueprint
	if err := json.Unmarshal(o.Body, &b); err != nil {
		return broker.BlueprintVersion{}, fmt.Errorf("read blueprint %s: %w", ref.Name, err)
	}
	_, v := b.version(ref.Version)
	if v == nil || !c.all && (v.Withdrawn || b.Metadata.DeletionTimestamp != nil) {
		return broker.BlueprintVersion{}, fmt.Errorf("blueprint %s: %w", ref, broker.ErrBlueprintNotFound)
	}
	return b.domain(*v)
}

// A deleted Blueprint stays until the last resource that was built from it is
// Deleted. Every replica polls for that: it stores no state, and the write is a
// compare-and-swap.
//
// The broker refuses a declaration that was admitted before the deletion and
// that it takes up after the Blueprint is gone; the status says so. A
// declaration that it takes up between the read and the write is accepted and
// finds no blueprint: its rounds report that, it fails at its deadline, and it
// can be deleted at any time, because teardown needs no blueprint.

// isUsed reports whether a resource needs a blueprint.
const isUsed = `SELECT 1 FROM provisioned_resources WHERE blueprint_name = $1 AND phase <> 'Deleted' LIMIT 1`

// ReleaseBlueprints removes the finalizer of deleted Blueprints that no
// resource uses.
func (a *API) ReleaseBlueprints(ctx context.Context) error {
	deleting, err := a.store.Reader().Select(ctx, store.Selection{
		Kind: a.blueprints.Kind.Storage, Namespace: store.AllNamespaces, State: store.Deleting, Limit: math.MaxInt32,
	})
	if err != nil {
		return fmt.Errorf("list deleted blueprints: %w", err)
	}
	for _, o := range deleting {
		used, err := a.db.Row(ctx, isUsed, []any{o.Name}, new(int64))
		if err != nil {
			return fmt.Errorf("look for resources of blueprint %s: %w", o.Name, err)
		}
		if used {
			continue
		}
		if err := a.change(ctx, a.blueprints, string(o.UID), dropFinalizer(InUseFinalizer)); err != nil {
			return fmt.Errorf("release blueprint: %w", err)
		}
	}
	return nil
}

// releaseEvery bounds the delay between the last use of a deleted Blueprint and
// its removal.
const releaseEvery = time.Second

// Run releases Blueprints until ctx ends, and then returns nil.
func (a *API) Run(ctx context.Context) error {
	for task.Sleep(ctx, releaseEvery) {
		if err := a.ReleaseBlueprints(ctx); err != nil && ctx.Err() == nil {
			a.log.Error("cannot release unused blueprints; retrying", "error", err)
		}
	}
	return nil
}
