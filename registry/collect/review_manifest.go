package collect

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// manifestReviewer deletes manifests that nothing keeps. A manifest is kept, in
// its repository, by a tag, by a list, by its subject, or by a workload that names its digest. When a deletion
// removes a keeper, the triggers queue the manifest for review.
//
// # Why nothing is lost and nothing is forgotten, on PostgreSQL
//
// A transaction that adds a keeper locks the manifest's row: a tag or a list by
// its foreign key, a push by its upsert. The review locks the row FOR UPDATE
// before it looks for keepers, and skips a row that is locked. So no keeper can
// be added while it looks; a transaction that tries to, waits, and then finds no
// manifest.
//
// A transaction that removes a keeper queues the manifest, which clears the
// claim: a review that saw the keeper then settles nothing, and is repeated. One
// keeper may have no row of its own, the subject: if a referrer is pushed while
// its subject is being deleted, the subject's trigger does not see it. So the
// review locks the subject FOR KEY SHARE, or is postponed when it cannot.
//
// A push or an existence check may postpone a review after its claim. The review
// looks for that in the queue after it has locked the row.
type manifestReviewer struct{ c *Collector }

// manifestKey names a manifest in its queue.
func manifestKey(repository int64, digest string) string {
	return strconv.FormatInt(repository, 10) + "@" + digest
}

func parseManifestKey(key string) (repository int64, digest string, err error) {
	number, digest, _ := strings.Cut(key, "@")
	repository, err = strconv.ParseInt(number, 10, 64)
	if err != nil || digest == "" {
		return 0, "", fmt.Errorf("%q is not a repository's id, @ and a digest", key)
	}
	return repository, digest, nil
}

// manifestReview is the state of one manifest.
type manifestReview struct {
	repository int64
	digest     string
	invalid    error // the key cannot be parsed

	id      int64 // 0 means that the manifest does not exist
	subject string
	onHold  bool // its repository is, or a workload names it
	taken   bool

	kept, postponed             bool // kept: by a tag or a list
	subjectExists, subjectTaken bool
}

// Review is review.Reviewer.
func (r *manifestReviewer) Review(ctx context.Context, tx *countingTx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	tx.begin(workerManifest, tasks)
	reviews := make(map[string]*manifestReview, len(tasks))
	for _, task := range tasks {
		m := &manifestReview{}
		m.repository, m.digest, m.invalid = parseManifestKey(task.Key)
		reviews[task.Key] = m
	}
	if err := r.take(ctx, tx, reviews); err != nil {
		return nil, err
	}
	if err := r.verify(ctx, tx, now, reviews); err != nil {
		return nil, err
	}
	verdicts := make([]review.Verdict, len(tasks))
	var garbage []int64
	for i, task := range tasks {
		m := reviews[task.Key]
		var outcome string
		verdicts[i], outcome = m.decide()
		if outcome == outcomeDeleted {
			garbage = append(garbage, m.id)
			tx.changed = append(tx.changed, m.repository)
		}
		tx.note(task, outcome)
	}
	return verdicts, r.delete(ctx, tx, garbage)
}

// take locks the manifests that no push holds, and then checks which of the
// others exist.
func (r *manifestReviewer) take(ctx context.Context, tx *countingTx, reviews map[string]*manifestReview) error {
	var keys []string
	for key, m := range reviews {
		if m.invalid == nil {
			keys = append(keys, key)
		}
	}
	var take, look sqldb.Batch
	r.c.sql.begin(&take)
	if r.c.sql.postgres && len(keys) > 0 {
		take.Exec(lockUsesPostgres, keys)
	}
	r.find(&take, r.c.sql.takeManifests, keys, func(key string, found manifestReview) {
		m := reviews[key]
		m.id, m.subject, m.onHold, m.taken = found.id, found.subject, found.onHold, true
	})
	if err := tx.Send(ctx, &take); err != nil {
		return fmt.Errorf("take manifests: %w", err)
	}
	keys = slices.DeleteFunc(keys, func(key string) bool { return reviews[key].taken })
	r.find(&look, r.c.sql.lookManifests, keys, func(key string, found manifestReview) {
		m := reviews[key]
		m.id, m.subject, m.onHold = found.id, found.subject, found.onHold
	})
	if look.Len() == 0 {
		return nil
	}
	if err := tx.Send(ctx, &look); err != nil {
		return fmt.Errorf("look for manifests: %w", err)
	}
	return nil
}

// find adds a statement to a batch that finds manifests by their keys.
func (r *manifestReviewer) find(b *sqldb.Batch, statement string, keys []string, found func(key string, m manifestReview)) {
	if len(keys) == 0 {
		return
	}
	b.Query(func(row sqldb.Row) error {
		var key string
		var m manifestReview
		err := row.Scan(&key, &m.id, &m.subject, &m.onHold)
		if err == nil {
			found(key, m)
		}
		return err
	}, statement, sqldb.List(r.c.db.Engine(), keys))
}

// verify looks for keepers. It runs after take has returned, because each
// statement sees what was committed before it began.
func (r *manifestReviewer) verify(ctx context.Context, tx *countingTx, now time.Time, reviews map[string]*manifestReview) error {
	var ids []int64
	var keys, subjects []string
	for key, m := range reviews {
		if !m.taken || m.onHold {
			continue
		}
		ids, keys = append(ids, m.id), append(keys, key)
		if m.subject != "" {
			subjects = append(subjects, manifestKey(m.repository, m.subject))
		}
	}
	kept, postponed, subjectTaken, subjectExists := map[int64]bool{}, map[string]bool{}, map[string]bool{}, map[string]bool{}
	var b sqldb.Batch
	among(&b, r.c.db.Engine(), kept, manifestsKept[r.c.db.Engine()], ids)
	among(&b, r.c.db.Engine(), postponed, manifestsPostponed[r.c.db.Engine()], keys, now.UnixMilli())
	r.find(&b, r.c.sql.keepManifests, subjects, func(key string, _ manifestReview) { subjectTaken[key] = true })
	r.find(&b, r.c.sql.lookManifests, subjects, func(key string, _ manifestReview) { subjectExists[key] = true })
	if err := tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("verify manifests: %w", err)
	}
	for key, m := range reviews {
		subject := manifestKey(m.repository, m.subject)
		m.kept, m.postponed = kept[m.id], postponed[key]
		m.subjectTaken, m.subjectExists = subjectTaken[subject], subjectExists[subject]
	}
	return nil
}

// decide is pure. The outcome is what the metrics count.
func (m *manifestReview) decide() (review.Verdict, string) {
	switch {
	case m.invalid != nil:
		return review.Failed(m.invalid), outcomeFailed
	case m.id == 0:
		return review.Kept(), outcomeKept
	case m.onHold:
		return review.Again(holdRecheck), outcomePostponed
	case !m.taken, m.postponed:
		return review.Again(busyRecheck), outcomePostponed
	case m.kept, m.subjectTaken:
		return review.Kept(), outcomeKept
	case m.subjectExists: // another transaction has it locked, perhaps to delete it
		return review.Again(busyRecheck), outcomePostponed
	}
	return review.Acted(), outcomeDeleted
}

// delete deletes manifests. Their tags, layers and references are deleted by
// foreign keys; the triggers queue the rest.
func (r *manifestReviewer) delete(ctx context.Context, tx *countingTx, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	list := sqldb.List(r.c.db.Engine(), ids)
	var b sqldb.Batch
	if r.c.sql.postgres {
		b.Exec(statement.OrderDeletedManifests, list)
	}
	b.Exec(deleteManifests[r.c.db.Engine()], list)
	if err := tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("delete manifests: %w", err)
	}
	return nil
}

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
		tx.note(task, outcome)
	}
	return verdicts, nil
}

func (r *repositoryReviewer) reviewOne(ctx context.Context, tx *countingTx, uid string) (review.Verdict, string, error) {
	var id, namespace int64
	var exists bool
	var b sqldb.Batch
	r.c.sql.begin(&b)
	b.Found(&exists, lookRemoved, uid)
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
	b.Query(sqldb.Values(&manifests), r.c.sql.removableManifests, id, r.step())
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
