package registry

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// manifestReviewer deletes manifests that nothing keeps. What keeps one, in its
// repository: a tag, a list, or its subject. The triggers put under review what
// a deletion leaves without a keeper.
//
// # Why nothing is lost and nothing is forgotten, on PostgreSQL
//
// Whoever gives a manifest a keeper has a lock on its row: a tag or a list by
// its foreign key, a push by its upsert. The review takes the row FOR UPDATE
// before it looks for keepers, and passes over a row that it does not get. So
// while it looks, no keeper can come; one that wants to, waits, and then finds
// no manifest.
//
// Whoever takes a keeper away enqueues the manifest, which clears the claim: a
// review that saw the keeper then settles nothing, and is repeated. The one
// keeper that need not be a row of its own is the subject: a referrer pushed
// while its subject is being deleted is not seen by the subject's trigger. So
// the review keeps the subject, FOR KEY SHARE, or comes back when it cannot.
//
// A review that was postponed after its claim (a push, an existence check) is
// found in the queue after the row has been taken, and not before.
type manifestReviewer struct{ c *Collector }

// manifestKey names a manifest in its queue.
func manifestKey(repository int64, digest string) string {
	return strconv.FormatInt(repository, 10) + "@" + digest
}

func parseManifestKey(key string) (repository int64, digest string, err error) {
	number, digest, ok := strings.Cut(key, "@")
	repository, err = strconv.ParseInt(number, 10, 64)
	if !ok || err != nil || digest == "" {
		return 0, "", fmt.Errorf("%q is not a repository's id, @ and a digest", key)
	}
	return repository, digest, nil
}

// manifestReview is what is known of one manifest.
type manifestReview struct {
	repository int64
	digest     string
	invalid    error // of the key

	id      int64 // 0: there is no such manifest
	subject string
	onHold  bool
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
		tx.note(workerManifest, task.Event, outcome)
	}
	return verdicts, r.delete(ctx, tx, garbage)
}

// take takes the manifests that nobody has, and then looks which of the others
// are there at all.
func (r *manifestReviewer) take(ctx context.Context, tx *countingTx, reviews map[string]*manifestReview) error {
	var keys []string
	for key, m := range reviews {
		if m.invalid == nil {
			keys = append(keys, key)
		}
	}
	var take, look sqldb.Batch
	r.c.sql.begin(&take)
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

// find adds to a batch a statement that finds manifests by their keys.
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
	}, statement, gcList(r.c.sql, keys))
}

// verify looks for keepers. It is sent after take has answered: each statement
// sees what was committed before it began.
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
	among(&b, r.c.sql, kept, r.c.sql.manifestsKept, ids)
	among(&b, r.c.sql, postponed, r.c.sql.manifestsPostponed, keys, now.UnixMilli())
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
	case m.subjectExists: // another transaction has it: perhaps to delete it
		return review.Again(busyRecheck), outcomePostponed
	}
	return review.Acted(), outcomeDeleted
}

// delete deletes manifests. Tags, layers and references go by their foreign
// keys; the triggers do the rest.
func (r *manifestReviewer) delete(ctx context.Context, tx *countingTx, ids []int64) error {
	if len(ids) == 0 {
		return nil
	}
	slices.Sort(ids)
	list := gcList(r.c.sql, ids)
	var b sqldb.Batch
	if r.c.sql.postgres {
		b.Exec(orderDeletedManifests, list)
	}
	b.Exec(r.c.sql.deleteManifests, list)
	if err := tx.Send(ctx, &b); err != nil {
		return fmt.Errorf("delete manifests: %w", err)
	}
	return nil
}
