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
	var kinds []broker.ObjectType
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var k broker.ObjectType
		err := row.Scan(&k.APIVersion, &k.Kind)
		kinds = append(kinds, k)
		return err
	}, kindsInUse)
	if err := r.db.Read(ctx, nil, &b); err != nil {
		return nil, fmt.Errorf("read kinds in use: %w", err)
	}
	return kinds, nil
}

// MakeDue makes a resource due, if it is under review: reconcile.Substrates.
func (r *Repository) MakeDue(ctx context.Context, id broker.ProvisionedResourceID, due time.Time) error {
	if err := r.exec(ctx, makeDue, string(id), due.UnixMilli()); err != nil {
		return fmt.Errorf("make %s due: %w", id, err)
	}
	return nil
}
