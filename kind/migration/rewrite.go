package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/errgroup"
	migrationv1 "k8s.io/api/storagemigration/v1"
	"k8s.io/apiextensions-apiserver/pkg/apihelpers"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

const (
	// page is how many objects are in memory at a time.
	page = 500
	// writers is how many objects are written at once, so that the store batches them.
	writers = 16
)

// errChanged: the definition changed while its objects were rewritten.
var errChanged = errors.New("the definition changed meanwhile; the migration begins again")

// migrate rewrites all objects and ends the migration. It begins at the first object after a
// crash: objects that were rewritten have a later revision than the migration.
func (c *Controller) migrate(ctx context.Context, m *migration, k *kind.Kind) error {
	upTo, err := object.ParseResourceVersion(m.Status.ResourceVersion)
	if err != nil {
		return err
	}
	request := store.ListRequest{Kind: k.Storage, Limit: page}
	total := 0
	for more := true; more; {
		listing, err := c.store.List(ctx, request)
		if err != nil {
			return err
		}
		var old []object.Object
		for listing.Next() {
			o := listing.Object()
			request.AfterNamespace, request.AfterName = o.Namespace, o.Name
			if total++; o.Revision <= upTo {
				old = append(old, o)
			}
		}
		if err := listing.Err(); err != nil {
			return err
		}
		if err := c.rewrite(ctx, k.Stored(), old); err != nil {
			return err
		}
		more = listing.More()
	}
	if current, err := c.current(ctx, k); err != nil || !current {
		return errors.Join(err, errChanged)
	}
	if total > 0 {
		if err := c.say(ctx, m, fmt.Sprintf(", %d objects verified migrated", total)); err != nil {
			return err
		}
	}
	return c.set(ctx, m, migrationv1.MigrationSucceeded, metav1.ConditionTrue, succeededReason, "Migration completed")
}

// rewrite stores objects as the server would store them now. Nothing is written if that is
// how they are stored already.
func (c *Controller) rewrite(ctx context.Context, v *kind.Version, old []object.Object) error {
	if len(old) == 0 {
		return nil
	}
	decoded, err := decodeAll(ctx, v, old)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(writers)
	for i, o := range old {
		group.Go(task.Catch(func() error {
			body, err := v.Encode(decoded[i])
			if err != nil || bytes.Equal(body, o.Body) {
				return err
			}
			m, err := object.ParseMeta(body)
			if err != nil {
				return err
			}
			_, err = c.store.Update(ctx, store.UpdateRequest{Key: o.Key, IfRevision: o.Revision, Meta: m, Body: body, Actor: actor})
			return lost(err) // another write has stored it, or removed it
		}))
	}
	return group.Wait()
}

func decodeAll(ctx context.Context, v *kind.Version, old []object.Object) ([]runtime.Object, error) {
	if v.DecodeAll != nil {
		return v.DecodeAll(ctx, old)
	}
	out := make([]runtime.Object, len(old))
	for i, o := range old {
		var err error
		if out[i], err = v.Decode(o.Body, o.ResourceVersion()); err != nil {
			return nil, err
		}
	}
	return out, nil
}

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
