package collect

import (
	"context"

	"github.com/exeunt/exeunt/review"
)

// Stats is the state of the collection, for operators.
type Stats struct {
	// Repositories are the removed ones that can be restored or are waiting for
	// removal.
	Repositories              review.Stats
	Manifests, Blobs, Unlinks review.Stats
	// UnlinkBytes is the number of bytes in the unlink queue.
	UnlinkBytes int64
	// Reclaimed is the number of bytes that were removed today (UTC).
	Reclaimed int64
	// Uploads is the number of open uploads, Abandoned that of the ones that
	// will be removed.
	Uploads, Abandoned int
}

// Stats counts the queues. It reads every row of them.
func (c *Collector) Stats(ctx context.Context) (Stats, error) {
	var s Stats
	var err error
	if s.Repositories, err = c.removed.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if s.Manifests, err = c.manifests.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if s.Blobs, err = c.blobRows.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if s.Unlinks, err = c.unlinks.Stats(ctx); err != nil {
		return Stats{}, err
	}
	if _, err := c.db.Row(ctx, unlinkBytes, nil, &s.UnlinkBytes); err != nil {
		return Stats{}, wrap("count bytes to be removed", err)
	}
	now := c.options.Now()
	if _, err := c.db.Row(ctx, reclaimed, []any{day(now)}, &s.Reclaimed); err != nil {
		return Stats{}, wrap("count bytes given back", err)
	}
	_, err = c.db.Row(ctx, countUploads, []any{now.Add(-c.options.UploadExpiry).UnixMilli(), now.UnixMilli()}, &s.Uploads, &s.Abandoned)
	return s, wrap("count uploads", err)
}
