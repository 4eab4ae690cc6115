package registry

import "context"

// On SQLite a blob's entry in blob_digests stays when the blob is deleted.
// Digests are random, so removing each entry at once would read, log and write
// one page per blob. The collector waits until one entry in five is garbage, and
// then removes them in key order, many per page. See docs/decisions/0012.

// The statements. If a digest is pushed again between digestStep and
// removeDigests, its entry has a new number and stays.
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
	// digestsStep is how many entries one transaction reads: about 3 ms.
	digestsStep = 500
	// digestsLeast is how many garbage entries the smallest registry keeps.
	digestsLeast = 1000
)

// worthForgetting says whether there is enough garbage: a quarter of the number
// of blobs, plus digestsLeast.
func worthForgetting(entries, blobs int64) bool { return entries-blobs >= blobs/4+digestsLeast }

// ForgetDigests removes the entries of deleted blobs, if there are many, and
// returns how many it removed. PostgreSQL has none.
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

// forgetDigests scans all entries, in steps.
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
