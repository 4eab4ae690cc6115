package registry

import (
	"context"
	"fmt"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// repositoryReviewer removes the content of repositories whose object is gone
// and cannot be restored any more: manifests in steps, lists before what they
// hold; then links to blobs, in steps; then the row. The triggers put the blobs
// under review.
//
// What it removes cannot be reached: the path of the row is the uid of the
// object. Only a restore could make it reachable again, and needs the row of the
// archive for that. It marks that row and gives the repository its path in one
// transaction. So on PostgreSQL, where the review has the row of the repository
// before it looks into the archive:
//
//   - A restore that is under way still has its row of the archive: the review
//     sees it, and leaves.
//   - One that has ended changed the path: the review finds nothing.
//   - One that comes later finds its row of the archive gone, and fails.
//
// From the first step on there is therefore no way back, and a step that is
// interrupted is simply followed by the next.
type repositoryReviewer struct{ c *Collector }

const (
	// removalStep is how many manifests, or links, one transaction removes; on
	// SQLite sqliteBatch, because pushes wait for it.
	removalStep = 200
	// archivedRecheck is how often a repository that can still be restored is
	// looked at. When it leaves the archive a trigger has it reviewed at once.
	archivedRecheck = time.Hour

	outcomeArchived = "archived"
	workerRepo      = "repository"
)

// Review is review.Reviewer. Tasks come one by one.
func (r *repositoryReviewer) Review(ctx context.Context, tx *countingTx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	tx.begin(workerRepo, tasks)
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		v, outcome, err := r.one(ctx, tx, task.Key)
		if err != nil {
			return nil, fmt.Errorf("remove repository %s: %w", task.Key, err)
		}
		verdicts[i] = v
		tx.note(workerRepo, task.Event, outcome)
	}
	return verdicts, nil
}

func (r *repositoryReviewer) one(ctx context.Context, tx *countingTx, uid string) (review.Verdict, string, error) {
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
	case more: // they are under review themselves
		return review.Again(busyRecheck), outcomePostponed, nil
	}
	return r.rest(ctx, tx, id, namespace)
}

func (r *repositoryReviewer) step() int {
	if r.c.sql.postgres {
		return removalStep
	}
	return sqliteBatch
}

// rest removes links and then the row, when there are no manifests left. What
// uploads have begun goes with the row. So does the namespace, if it was the
// last there.
func (r *repositoryReviewer) rest(ctx context.Context, tx *countingTx, id, namespace int64) (review.Verdict, string, error) {
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
