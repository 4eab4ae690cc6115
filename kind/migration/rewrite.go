package migration

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	migrationv1 "k8s.io/api/storagemigration/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"

	"golang.org/x/sync/errgroup"

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
