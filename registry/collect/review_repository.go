package collect

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// repositoryReviewer removes the content of repositories whose object is gone
// and can no longer be restored: manifests in steps, lists before their
// manifests; then links to blobs, in steps; then the row. The triggers queue the
// blobs for review.
//
// Clients cannot reach this content: the path of the row is now the uid of the
// object. Only a restore makes it reachable again, and needs the archive's row
// for that. The restore marks that row and gives the repository its path in one
// transaction. On PostgreSQL the review locks the row of the repository before
// it reads the archive. So:
//
//   - A running restore still has its row in the archive: the review sees it
//     and stops.
//   - A finished restore has changed the path: the review finds nothing.
//   - A later restore finds no row in the archive, and fails.
//
// So the first step is final, and after an interruption the next step continues.
type repositoryReviewer struct{ c *Collector }

const (
	// removalStep is how many manifests, or links, one transaction removes; on
	// SQLite sqliteBatch, because pushes wait for it.
	removalStep = 200
	// archivedRecheck is how often the review checks a repository that can still
	// be restored. When it leaves the archive, a trigger has it reviewed at once.
	archivedRecheck = time.Hour

	outcomeArchived = "archived"
	workerRepo      = "repository"
)

// Review is review.Reviewer. The queue's batch size is one.
func (r *repositoryReviewer) Review(ctx context.Context, tx *countingTx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	tx.begin(workerRepo, tasks)
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		v, outcome, err := r.reviewOne(ctx, tx, task.Key)
		if err != nil {
			return nil, fmt.Errorf("remove repository %s: %w", task.Key, err)
		}
		verdicts[i] = v
		tx.note(workerRepo, task.Event, outcome)
	}
	return verdicts, nil
}

func (r *repositoryReviewer) reviewOne(ctx context.Context, tx *countingTx, uid string) (review.Verdict, string, error) {
	var id, namespace int64
	var exists bool
	var b sqldb.Batch
	r.c.sql.begin(&b)
	b.Query(func(row sqldb.Row) error { exists = true; return row.Scan(new(int64)) }, lookRemoved, uid)
	b.Query(func(row sqldb.Row) error { return row.Scan(&id, &namespace) }, r.c.sql.takeRemoved, uid)
	if err := tx.Send(ctx, &b); err != nil {
		return review.Verdict{}, "", err
	}
	switch {
	case !exists: // restored
		return review.Kept(), outcomeKept, nil
	case id == 0:
		return review.Again(busyRecheck), outcomePostponed, nil
	}
	var archived, more bool
	var manifests []int64
	b = sqldb.Batch{}
	b.Query(func(row sqldb.Row) error { return row.Scan(&archived) }, isArchived, uid)
	b.Query(func(row sqldb.Row) error { return row.Scan(&more) }, hasManifests, id)
	b.Query(func(row sqldb.Row) error {
		manifests = append(manifests, 0)
		return row.Scan(&manifests[len(manifests)-1])
	}, r.c.sql.removableManifests, id, r.step())
	if err := tx.Send(ctx, &b); err != nil {
		return review.Verdict{}, "", err
	}
	switch {
	case archived:
		return review.Again(archivedRecheck), outcomeArchived, nil
	case len(manifests) > 0:
		return review.Progressed(0), outcomeDeleted, (&manifestReviewer{r.c}).delete(ctx, tx, manifests)
	case more: // the remaining manifests have their own reviews
		return review.Again(busyRecheck), outcomePostponed, nil
	}
	return r.removeRest(ctx, tx, id, namespace)
}

func (r *repositoryReviewer) step() int {
	if r.c.sql.postgres {
		return removalStep
	}
	return sqliteBatch
}

// removeRest removes links and then the row, when no manifests are left. The foreign
// keys delete its uploads. The namespace is removed if this was its last
// repository.
func (r *repositoryReviewer) removeRest(ctx context.Context, tx *countingTx, id, namespace int64) (review.Verdict, string, error) {
	links := 0
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error { links++; return row.Scan(new(int64)) }, removeLinks, id, r.step())
	if err := tx.Send(ctx, &b); err != nil {
		return review.Verdict{}, "", err
	}
	if links == r.step() {
		return review.Progressed(0), outcomeDeleted, nil
	}
	b = sqldb.Batch{}
	b.Exec(removeRepository, id)
	b.Exec(r.c.sql.removeNamespace, namespace)
	return review.Acted(), outcomeDeleted, tx.Send(ctx, &b)
}
