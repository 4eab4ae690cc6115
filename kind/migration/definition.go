package migration

import (
	"context"
	"fmt"

	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// stored is a stored definition.
type stored struct {
	*apiextensionsv1.CustomResourceDefinition
	revision int64
}

// definition reads a definition. Its kind may be built in: then there is none.
func (c *Controller) definition(ctx context.Context, name string) (d stored, found bool, err error) {
	o, err := c.store.Get(ctx, object.Key{Kind: c.definitions.Kind.Storage, Name: name})
	if object.Is(err, object.NotFound) {
		return d, false, nil
	}
	if err != nil {
		return d, false, err
	}
	obj, err := c.definitions.Decode(o.Body, o.ResourceVersion())
	if err != nil {
		return d, false, err
	}
	crd, ok := obj.(*apiextensionsv1.CustomResourceDefinition)
	if !ok {
		return d, false, fmt.Errorf("%s is a %T", name, obj)
	}
	return stored{crd, o.Revision}, true, nil
}

// current reports whether this replica serves the kind as its stored definition declares it. A
// replica whose watch is late must not write the old storage version.
func (c *Controller) current(ctx context.Context, k *kind.Kind) (bool, error) {
	if k.Definition == "" {
		return true, nil
	}
	d, found, err := c.definition(ctx, k.Definition)
	return found && d.Generation == k.Generation, err
}

// beginDefinition marks the definition of a custom kind, with the generation whose storage
// version the objects get.
func (c *Controller) beginDefinition(ctx context.Context, k *kind.Kind, name string) error {
	if k.Definition == "" {
		return nil
	}
	d, found, err := c.definition(ctx, k.Definition)
	if err != nil || !found {
		return err
	}
	return c.mark(ctx, d, apiextensionsv1.ConditionTrue, runningReason, fmt.Sprintf("Migration %s is running", name))
}

// endDefinition marks the definition of a custom kind. After a success, only the storage
// version is left in status.storedVersions, unless the definition changed since the begin.
func (c *Controller) endDefinition(ctx context.Context, r metav1.GroupResource, success bool) error {
	d, found, err := c.definition(ctx, kind.StorageName(r.Group, r.Resource))
	if err != nil || !found {
		return err
	}
	began := apihelpers.FindCRDCondition(d.CustomResourceDefinition, apiextensionsv1.StorageMigrating)
	if began == nil || began.Status != apiextensionsv1.ConditionTrue {
		return nil
	}
	unchanged := began.ObservedGeneration == d.Generation
	reason, message := "MigrationFailed", "The migration has failed"
	if success {
		reason, message = "MigrationSucceeded", "The migration has succeeded but the stored versions have not been updated due to a generation mismatch"
	}
	if success && unchanged {
		message = "The migration has succeeded and the stored versions have been updated"
		for _, v := range d.Spec.Versions {
			if v.Storage {
				d.Status.StoredVersions = []string{v.Name}
			}
		}
	}
	return c.mark(ctx, d, apiextensionsv1.ConditionFalse, reason, message)
}

// mark writes the condition StorageMigrating.
func (c *Controller) mark(ctx context.Context, d stored, status apiextensionsv1.ConditionStatus, reason, message string) error {
	apihelpers.SetCRDCondition(d.CustomResourceDefinition, apiextensionsv1.CustomResourceDefinitionCondition{
		Type: apiextensionsv1.StorageMigrating, Status: status, Reason: reason, Message: message,
	})
	set := apihelpers.FindCRDCondition(d.CustomResourceDefinition, apiextensionsv1.StorageMigrating)
	set.ObservedGeneration, set.LastTransitionTime = d.Generation, set.LastTransitionTime.Rfc3339Copy()
	body, err := c.definitions.Encode(d.CustomResourceDefinition)
	if err != nil {
		return err
	}
	_, err = c.store.Update(ctx, store.UpdateRequest{
		Key: object.Key{Kind: c.definitions.Kind.Storage, Name: d.Name}, IfRevision: d.revision, Meta: d.ObjectMeta, Body: body, Actor: actor,
	})
	return err
}
