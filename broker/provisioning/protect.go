package provisioning

import (
	"context"
	"fmt"
	"time"
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

// leaving lists the Blueprints that are being deleted and that no resource
// uses: the unique index of objects begins with the kind, and there are few.
const leaving = `
SELECT uid FROM objects o
WHERE o.kind = $1 AND o.deletion_time IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM provisioned_resources r WHERE r.blueprint_name = o.name AND r.phase <> 'Deleted')`

// ReleaseBlueprints removes the finalizer of deleted Blueprints that no
// resource uses.
func (a *API) ReleaseBlueprints(ctx context.Context) error {
	rows, err := a.db.Query(ctx, leaving, a.blueprints.Kind.Storage)
	if err != nil {
		return fmt.Errorf("list unused blueprints: %w", err)
	}
	var uids []string
	for rows.Next() {
		var uid string
		if err := rows.Scan(&uid); err != nil {
			return fmt.Errorf("list unused blueprints: %w", err)
		}
		uids = append(uids, uid)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("list unused blueprints: %w", err)
	}
	for _, uid := range uids {
		if err := a.change(ctx, a.blueprints, uid, dropFinalizer(InUseFinalizer)); err != nil {
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
	ticker := time.NewTicker(releaseEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
		}
		if err := a.ReleaseBlueprints(ctx); err != nil && ctx.Err() == nil {
			a.log.Error("cannot release unused blueprints; retrying", "error", err)
		}
	}
}
