package provisioning

import (
	"context"
	"fmt"
	"time"
)

// A Blueprint that is deleted stays, for those that were built by it, until the
// last of them is Deleted. That one is looked for again and again, by every
// replica: nothing is remembered, and the write compares.
//
// A declaration that was admitted before the deletion, and that the broker takes
// up after the Blueprint has left, is refused; its status says so. One that is
// taken up between the look and the write is accepted and finds no blueprint:
// its rounds say so, it fails at its deadline, and it can be deleted at any
// time, since teardown needs no blueprint.

// leaving lists the Blueprints that are being deleted and that nothing was built
// by: the unique index of objects begins with the kind, and there are few.
const leaving = `
SELECT uid FROM objects o
WHERE o.kind = $1 AND o.deletion_time IS NOT NULL AND NOT EXISTS (
    SELECT 1 FROM provisioned_resources r WHERE r.blueprint_name = o.name AND r.phase <> 'Deleted')`

// ReleaseBlueprints lets the Blueprints go that nothing needs any more.
func (a *API) ReleaseBlueprints(ctx context.Context) error {
	rows, err := a.db.Query(ctx, leaving, a.blueprints.Kind.Storage)
	if err != nil {
		return fmt.Errorf("look for blueprints that may leave: %w", err)
	}
	var uids []string
	for rows.Next() {
		var uid string
		if err := rows.Scan(&uid); err != nil {
			return fmt.Errorf("look for blueprints that may leave: %w", err)
		}
		uids = append(uids, uid)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("look for blueprints that may leave: %w", err)
	}
	for _, uid := range uids {
		if err := a.change(ctx, a.blueprints, uid, dropFinalizer(InUseFinalizer)); err != nil {
			return fmt.Errorf("release blueprint: %w", err)
		}
	}
	return nil
}

// releaseEvery is how long a Blueprint may stay longer than it must.
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
			a.log.Error("blueprints are not released", "error", err)
		}
	}
}
