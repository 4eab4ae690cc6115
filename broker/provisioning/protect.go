package provisioning

import (
	"context"
	"fmt"
	"math"
	"time"

	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/store"
)

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
