package registry

import (
	"context"
	"net/http"
	"strings"

	"github.com/exeunt/exeunt/internal/tracing"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/sqldb"
)

// manifestDelete deletes a tag, or a manifest with all its tags. The collector
// reviews what only they kept.
func (r *Registry) manifestDelete(w http.ResponseWriter, req *http.Request, to Request) error {
	ctx := req.Context()
	var found bool
	var repo int64
	err := r.writer.do(ctx, func(tx *sqldb.Tx) (err error) {
		repo, found = 0, false
		return r.traced(ctx, tx, func() error {
			if to.Tag != "" {
				repo, found, err = r.removeTag(ctx, tx, to)
			} else {
				repo, found, err = r.removeManifest(ctx, tx, to)
			}
			return err
		})
	})
	if err != nil {
		return wrapInternal("delete manifest", err)
	}
	if !found {
		return r.manifestUnknown(ctx, to)
	}
	r.touched(repo)
	w.WriteHeader(http.StatusAccepted)
	return nil
}

// removeTag deletes a tag.
func (r *Registry) removeTag(ctx context.Context, tx *sqldb.Tx, to Request) (repo int64, found bool, err error) {
	var b sqldb.Batch
	if r.db.Engine() == sqldb.Postgres {
		b.Exec(orderDeletedTag, to.Repository, to.Tag)
	}
	tags := map[string]string{}
	b.Query(func(row sqldb.Row) error {
		var at string
		err := row.Scan(&at)
		tags[to.Tag] = at
		return err
	}, findTag, to.Repository, to.Tag)
	b.Query(func(row sqldb.Row) error { found = true; return row.Scan(&repo) }, statement.DeleteTag, to.Repository, to.Tag)
	if err := tx.Send(ctx, &b); err != nil {
		return 0, false, err
	}
	return repo, found, checkTags(ctx, tx, to.Repository, tags)
}

// removeManifest deletes a manifest unless a list contains it: clients could not
// pull that list any more. The row is locked before the check, so no list can
// add it in between.
func (r *Registry) removeManifest(ctx context.Context, tx *sqldb.Tx, to Request) (repo int64, found bool, err error) {
	lock := lockManifestSQLite
	if r.db.Engine() == sqldb.Postgres {
		lock = lockManifestPostgres
	}
	var id int64
	found, err = sqldb.First(ctx, tx, []any{&id, &repo}, lock, to.Repository, to.Digest.String())
	if err != nil || !found {
		return 0, false, err
	}
	var parents, names []string
	var b sqldb.Batch
	b.Query(sqldb.Values(&parents), listParents, id)
	b.Query(sqldb.Values(&names), listManifestTags, id)
	if err := tx.Send(ctx, &b); err != nil {
		return 0, false, err
	}
	tags := map[string]string{}
	for _, name := range names {
		tags[name] = to.Digest.String()
	}
	if err := checkTags(ctx, tx, to.Repository, tags); err != nil {
		return 0, false, err
	}
	if len(parents) > 0 {
		return 0, false, errorf(Unsupported, "the manifest is part of a manifest list: delete that first: %s", strings.Join(parents, ", ")).
			as(http.StatusMethodNotAllowed)
	}
	now := r.now().UnixMilli()
	b = sqldb.Batch{}
	b.Exec(rememberManifest, id, now)
	b.Exec(rememberTags, id, now)
	if r.db.Engine() == sqldb.Postgres {
		b.Exec(statement.OrderDeletedManifests, []int64{id})
	}
	b.Exec(deleteManifest, id)
	return repo, true, tx.Send(ctx, &b)
}

// traced runs fn, and gives the rows that it enqueues the trace of the request.
func (r *Registry) traced(ctx context.Context, tx *sqldb.Tx, fn func() error) error {
	traceparent := tracing.Traceparent(ctx)
	if traceparent == "" {
		return fn()
	}
	var mark, unmark sqldb.Batch
	mark.MarkTraces(r.db.Engine(), map[string]string{"": traceparent})
	unmark.UnmarkTraces(r.db.Engine())
	if err := tx.Send(ctx, &mark); err != nil {
		return err
	}
	if err := fn(); err != nil {
		return err // the transaction is rolled back, and the marks with it
	}
	return tx.Send(ctx, &unmark)
}
