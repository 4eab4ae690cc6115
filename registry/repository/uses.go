package repository

import (
	"context"
	"errors"
	"fmt"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/imageuse"
)

// usesStep is how many objects one transaction of knowUses reads: other writes wait for it.
const usesStep = 200

const (
	usesKnown = `SELECT 1 FROM gc_settings WHERE name = 'image_uses'`
	knowsUses = `INSERT INTO gc_settings (name, value) VALUES ('image_uses', 1 = 1) ON CONFLICT (name) DO NOTHING`
)

// UsesUnknown is an error until all images that objects name are known: before, nothing may be collected.
func (r *Repositories) UsesUnknown() error {
	if r.usesKnown.Load() {
		return nil
	}
	return errors.New("the images that objects name are being looked up; try again in a minute")
}

// knowUses writes the images of objects that are older than the index, once for a database. Each object is read in
// the transaction that writes its images, so that no change of it comes in between.
func (r *Repositories) knowUses(ctx context.Context) error {
	known, err := r.db.Row(ctx, usesKnown, nil, new(int64))
	if err != nil || known {
		r.usesKnown.Store(known)
		return err
	}
	for _, kind := range imageuse.Kinds() {
		from := store.Selection{Kind: kind, Namespace: store.AllNamespaces, Limit: usesStep}
		for more := true; more; {
			if err := r.store.Transact(ctx, func(tx *store.Tx) error {
				list, err := tx.Select(ctx, from)
				if err != nil {
					return err
				}
				var b sqldb.Batch
				for _, o := range list {
					imageuse.Queue(&b, r.db.Engine(), o.Key, string(o.UID), o.Body, nil, 0)
					from.AfterNamespace, from.After = o.Namespace, o.Name
				}
				more = len(list) == usesStep
				return tx.Send(ctx, &b)
			}); err != nil {
				return fmt.Errorf("find the images of %s: %w", kind, err)
			}
		}
	}
	if err := r.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Exec(ctx, knowsUses) }); err != nil {
		return err
	}
	r.usesKnown.Store(true)
	return nil
}
