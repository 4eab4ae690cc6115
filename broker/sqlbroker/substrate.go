package sqlbroker

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/sqldb"
)

// KindsInUse lists the kinds of composite resources and ProviderConfigs of
// resources that are not Deleted: reconcile.Substrates.
func (r *Repository) KindsInUse(ctx context.Context) ([]broker.ObjectType, error) {
	rows, err := r.db.Query(ctx, kindsInUse)
	if err != nil {
		return nil, fmt.Errorf("read kinds in use: %w", err)
	}
	defer func() { _ = rows.Close() }()
	var kinds []broker.ObjectType
	for rows.Next() {
		var k broker.ObjectType
		if err := rows.Scan(&k.APIVersion, &k.Kind); err != nil {
			return nil, fmt.Errorf("read kinds in use: %w", err)
		}
		kinds = append(kinds, k)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("read kinds in use: %w", err)
	}
	return kinds, nil
}

// MakeDue makes a resource due, if it is under review: reconcile.Substrates.
func (r *Repository) MakeDue(ctx context.Context, id broker.ProvisionedResourceID, due time.Time) error {
	err := r.db.Transact(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(makeDue, string(id), due.UnixMilli())
		return tx.Send(ctx, &b)
	})
	if err != nil {
		return fmt.Errorf("make %s due: %w", id, err)
	}
	return nil
}
