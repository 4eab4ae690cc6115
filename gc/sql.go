package gc

import "github.com/exeunt/exeunt/sqldb"

// The statements of the package, on its tables gc_object_reviews,
// gc_admission_reviews and gc_state, the
// same on both engines unless the name ends in SQLite or Postgres. The store reads objects, owners and the archive.

// indexesOnly begins a review on PostgreSQL. Where most references name one
// owner, the planner would read the whole table: it expects to find the
// references of any owner soon.
const indexesOnly = `SET LOCAL enable_seqscan = off`

// onePlan is for the same transactions: with indexes only, the plan of a statement does not depend on its
// arguments. Planning each of them again takes longer than running it.
const onePlan = `SET LOCAL plan_cache_mode = force_generic_plan`

// The events of reviews of a removed owner, namespaced and cluster-scoped. The
// triggers write them, and later events of the row do not replace them: they
// prove the removal, also when the archive is off.
const (
	ownerRemoved        = "owner_removed"
	clusterOwnerRemoved = "cluster_owner_removed"
)

// removedReviews selects the uids whose review proves a removal, and whether the
// object was in a namespace.
var removedReviews = sqldb.WithLists(`
SELECT uid, event = 'owner_removed' FROM gc_object_reviews
WHERE uid IN LIST($1, text) AND event IN ('owner_removed', 'cluster_owner_removed')`)

// ReviewByUID reads the review of a uid, for reports: failures, when it was
// created, when it is due, the last error, and the end of the lease (0 if there is none);
// times in Unix milliseconds.
const ReviewByUID = `
SELECT review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0)
FROM gc_object_reviews WHERE uid = $1`

// AdmissionByUID is ReviewByUID for a delete that waits for its admission.
const AdmissionByUID = `
SELECT review_count, created_at, review_after, coalesce(last_error, ''), coalesce(claim_until, 0)
FROM gc_admission_reviews WHERE uid = $1`

// askEnqueue adds a delete that waits for its admission, if it has no row. The event is
// the uid of the owner or namespace that causes it.
const askEnqueue = `
INSERT INTO gc_admission_reviews (uid, review_after, review_count, event, created_at)
VALUES ($1, $2, 0, $3, $2)
ON CONFLICT (uid) DO NOTHING`

// maxUnknownReports bounds the dependents of an owner of an unserved kind that one
// review reports.
const maxUnknownReports = 20

// settled deletes a review that was done in the transaction that caused it.
const settled = `DELETE FROM gc_object_reviews WHERE uid = $1`

// scanEnqueue adds a review if the uid has none.
const scanEnqueue = `
INSERT INTO gc_object_reviews (uid, review_after, review_count, event, created_at)
VALUES ($1, 0, 0, 'scan', $2)
ON CONFLICT (uid) DO NOTHING
RETURNING uid`

// failing lists reviews that failed last time, those with the most attempts first.
const failing = `
SELECT uid, event, review_count, review_after, coalesce(last_error, '')
FROM gc_object_reviews WHERE review_count > 0
UNION ALL
SELECT uid, 'admission', review_count, review_after, coalesce(last_error, '')
FROM gc_admission_reviews WHERE review_count > 0
ORDER BY 3 DESC, 1 LIMIT $1`

const (
	readPaused  = `SELECT paused, reason FROM gc_state`
	writePaused = `UPDATE gc_state SET paused = $1, reason = $2`
)
