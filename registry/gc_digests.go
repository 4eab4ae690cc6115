package registry

import "context"

// On SQLite the entry of a blob in blob_digests stays when the blob goes. To
// remove it there and then would be a page read, logged and written back for each
// blob: digests are random. So they are left until every fifth entry is such a
// one, and are then taken in order, many from a page. See docs/decisions/0012.

// The statements. Between digestStep and removeDigests a digest may be pushed
// again: its entry has another number by then, and stays.
const (
	countDigests = `SELECT (SELECT count(*) FROM blob_digests), (SELECT count(*) FROM blobs)`
	digestStep   = `
SELECT coalesce(max(step.digest), '') FROM (SELECT digest FROM blob_digests WHERE digest > $1 ORDER BY digest LIMIT $2) AS step`
	removeDigests = `
DELETE FROM blob_digests WHERE digest > $1 AND digest <= $2
    AND NOT EXISTS (SELECT 1 FROM blobs b WHERE b.id = blob_digests.blob_id AND b.digest = blob_digests.digest)
RETURNING 1`
)

const (
	// digestsStep is how many entries one transaction looks at: about 3 ms.
	digestsStep = 500
	// digestsLeast is how many of them may be of no use in the smallest registry.
	digestsLeast = 1000
)

// worthForgetting says whether enough entries are of no use: for every blob a
// quarter of one, and then some.
func worthForgetting(entries, blobs int64) bool { return entries-blobs >= blobs/4+digestsLeast }

// ForgetDigests removes the entries of blobs that are gone, if they are many, and
// returns how many it removed. There are none on PostgreSQL.
func (c *Collector) ForgetDigests(ctx context.Context) (forgotten int, err error) {
	if c.sql.postgres {
		return 0, nil
	}
	var entries, blobs int64
	if _, err := c.db.Row(ctx, countDigests, nil, &entries, &blobs); err != nil || !worthForgetting(entries, blobs) {
		return 0, wrap("count digests", err)
	}
	return c.forgetDigests(ctx)
}

// forgetDigests goes through all entries, in steps.
func (c *Collector) forgetDigests(ctx context.Context) (forgotten int, err error) {
	for after, until := "", ""; ; after = until {
		if _, err := c.db.Row(ctx, digestStep, []any{after, digestsStep}, &until); err != nil || until == "" {
			return forgotten, wrap("look for digests", err)
		}
		n, err := c.removeSome(ctx, removeDigests, after, until)
		if err != nil {
			return forgotten, wrap("forget digests", err)
		}
		forgotten += n
	}
}
