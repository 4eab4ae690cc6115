package collect

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// blobReviewer deletes the rows of blobs that no manifest of any repository
// uses. A trigger queues the path for the unlinker in the same transaction. So
// bytes are removed after their row, and never inside a transaction. If the same
// content is pushed again, it gets a new row and a new path.
//
// On PostgreSQL a push locks the rows of the blobs that its manifest uses, and
// the row of a blob that it uploads. The review locks a row FOR UPDATE before it
// looks for users of the blob, and skips a row that is locked: the argument is
// that of manifestReviewer.
type blobReviewer struct{ c *Collector }

// blobReview is the state of one blob.
type blobReview struct {
	id                      int64 // 0 means that the blob does not exist
	taken                   bool
	used, onHold, postponed bool
	repositories            []int64 // that have it; read only if the blob is neither used nor postponed
}

// Review is review.Reviewer.
func (r *blobReviewer) Review(ctx context.Context, tx *countingTx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	tx.begin(workerBlob, tasks)
	digests := make([]string, len(tasks))
	for i, task := range tasks {
		digests[i] = task.Key
	}
	reviews, err := r.take(ctx, tx, digests)
	if err != nil {
		return nil, err
	}
	if err := r.verify(ctx, tx, now, reviews); err != nil {
		return nil, err
	}
	verdicts := make([]review.Verdict, len(tasks))
	var garbage, losers []int64
	for i, task := range tasks {
		var outcome string
		blob := reviews[task.Key]
		verdicts[i], outcome = blob.decide()
		if outcome == outcomeDeleted {
			garbage, losers = append(garbage, blob.id), append(losers, blob.repositories...)
		}
		tx.note(task, outcome)
	}
	slices.Sort(losers)
	tx.changed = append(tx.changed, slices.Compact(losers)...)
	return verdicts, r.delete(ctx, tx, garbage)
}

// take locks the blobs that no push holds, and then checks which of the others
// exist.
func (r *blobReviewer) take(ctx context.Context, tx *countingTx, digests []string) (map[string]*blobReview, error) {
	reviews := make(map[string]*blobReview, len(digests))
	for _, digest := range digests {
		reviews[digest] = &blobReview{}
	}
	find := func(statement string, taken bool) error {
		list := slices.DeleteFunc(slices.Clone(digests), func(digest string) bool { return reviews[digest].taken })
		if len(list) == 0 {
			return nil
		}
		var b sqldb.Batch
		r.c.sql.begin(&b)
		b.Query(func(row sqldb.Row) error {
			var digest string
			var id int64
			err := row.Scan(&digest, &id)
			if err == nil {
				reviews[digest].id, reviews[digest].taken = id, taken
			}
			return err
		}, statement, sqldb.List(r.c.db.Engine(), list))
		return tx.Send(ctx, &b)
	}
	if err := find(r.c.sql.takeBlobs, true); err != nil {
		return nil, fmt.Errorf("take blobs: %w", err)
	}
	if err := find(r.c.sql.lookBlobs, false); err != nil {
		return nil, fmt.Errorf("look for blobs: %w", err)
	}
	return reviews, nil
}

// verify looks for manifests that use the blobs, after take has returned, and
// for the repositories of the unused ones.
func (r *blobReviewer) verify(ctx context.Context, tx *countingTx, now time.Time, reviews map[string]*blobReview) error {
	var digests []string
	var ids []int64
	for digest, blob := range reviews {
		if blob.taken {
			digests, ids = append(digests, digest), append(ids, blob.id)
		}
	}
	slices.Sort(ids)
	used, postponed := map[int64]bool{}, map[string]bool{}
	var b sqldb.Batch
	among(&b, r.c.db.Engine(), used, blobsUsed[r.c.db.Engine()], ids)
	among(&b, r.c.db.Engine(), postponed, blobsPostponed[r.c.db.Engine()], digests, now.UnixMilli())
	if err := tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("verify blobs: %w", err)
	}
	unused := make(map[int64]*blobReview, len(ids))
	for digest, blob := range reviews {
		blob.used, blob.postponed = used[blob.id], postponed[digest]
		if blob.taken && !blob.used && !blob.postponed {
			unused[blob.id] = blob
		}
	}
	return r.findRepositories(ctx, tx, unused)
}

func (r *blobReviewer) findRepositories(ctx context.Context, tx *countingTx, blobs map[int64]*blobReview) error {
	if len(blobs) == 0 {
		return nil
	}
	if err := sqldb.Each(ctx, tx, func(row sqldb.Row) error {
		var id, repository int64
		var onHold bool
		err := row.Scan(&id, &repository, &onHold)
		if err == nil {
			blob := blobs[id]
			blob.repositories, blob.onHold = append(blob.repositories, repository), blob.onHold || onHold
		}
		return err
	}, r.c.sql.blobsLinked, sqldb.List(r.c.db.Engine(), slices.Sorted(maps.Keys(blobs)))); err != nil {
		return fmt.Errorf("find the repositories of blobs: %w", err)
	}
	return nil
}

// decide is pure. The string is the outcome for the metrics.
func (b *blobReview) decide() (review.Verdict, string) {
	switch {
	case b.id == 0:
		return review.Kept(), outcomeKept
	case !b.taken, b.postponed:
		return review.Again(busyRecheck), outcomePostponed
	case b.used:
		return review.Kept(), outcomeKept
	case b.onHold:
		return review.Again(holdRecheck), outcomePostponed
	}
	return review.Acted(), outcomeDeleted
}

// delete deletes blobs. The bytes of small blobs are deleted with their rows.
func (r *blobReviewer) delete(ctx context.Context, tx *countingTx, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	small := recovered{worker: workerBlob, event: EventBlobDelete}
	sizes, err := sqldb.Column[int64](ctx, tx, deleteBlobs[r.c.db.Engine()], sqldb.List(r.c.db.Engine(), ids))
	if err != nil {
		return fmt.Errorf("delete blobs: %w", err)
	}
	for _, size := range sizes {
		small.bytes += size
	}
	tx.giveBack(small)
	return nil
}
