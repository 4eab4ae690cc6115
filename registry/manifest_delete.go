package registry

import (
	"context"
	"net/http"
	"strings"

	"github.com/exeunt/exeunt/sqldb"
)

// manifestDelete deletes a tag, or a manifest with all its tags. What only they
// held is reviewed by the collector.
func (r *Registry) manifestDelete(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	var found bool
	err := r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
		if to.Tag != "" {
			var n int64
			found, err = one(ctx, tx, deleteTag, []any{to.Repository, to.Tag}, &n)
			return err
		}
		found, err = r.removeManifest(ctx, tx, to)
		return err
	})
	if err != nil {
		return during("delete manifest", err)
	}
	if !found {
		return r.manifestUnknown(ctx, to)
	}
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// removeManifest deletes a manifest, unless a list holds it: the list would be
// broken for those who pull it. The row is locked before the lists are looked
// for, so none can take it in between.
func (r *Registry) removeManifest(ctx context.Context, tx *sqldb.Tx, to Request) (bool, error) {
	lock := lockManifestSQLite
	if r.db.Engine() == sqldb.Postgres {
		lock = lockManifestPostgres
	}
	var id int64
	found, err := one(ctx, tx, lock, []any{to.Repository, to.Digest.String()}, &id)
	if err != nil || !found {
		return false, err
	}
	var parents []string
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var parent string
		parents = append(parents, parent)
		return row.Scan(&parents[len(parents)-1])
	}, listParents, id)
	if err := tx.Send(ctx, &b); err != nil {
		return false, err
	}
	if len(parents) > 0 {
		return false, errorf(Unsupported, "the manifest is part of a manifest list: delete that first: %s", strings.Join(parents, ", ")).
			as(http.StatusMethodNotAllowed)
	}
	return true, exec(ctx, tx, deleteManifest, id)
}
