package collect

import (
	"context"

	"github.com/exeunt/exeunt/review"
)

// Stats is the state of the collection, for operators, and its settings.
type Stats struct {
	Paused            bool              `json:"paused"`
	Off               bool              `json:"off"` // this process does not collect
	CollectManifests  bool              `json:"collectManifests"`
	CollectBlobs      bool              `json:"collectBlobs"`
	CollectSignatures bool              `json:"collectSignatures"` // delete them with their image
	Repositories      review.Stats      `json:"repositories"`      // removed ones, which can be restored or wait for removal
	Manifests         review.Stats      `json:"manifests"`
	Blobs             review.Stats      `json:"blobs"`
	Unlinks           review.Stats      `json:"unlinks"`
	UnlinkBytes       int64             `json:"unlinkBytes"`      // in the unlink queue
	Reclaimed         int64             `json:"givenBackBytes"`   // removed today, UTC
	Uploads           int               `json:"uploads"`          // open ones
	Abandoned         int               `json:"abandonedUploads"` // of them, those that will be removed
	ReviewAfter       map[string]string `json:"reviewAfter"`      // the delays of all events
}

// Stats counts the queues. It reads every row of them.
func (c *Collector) Stats(ctx context.Context) (Stats, error) {
	o := c.options
	s := Stats{Off: o.Off, CollectManifests: !o.KeepManifests, CollectBlobs: !o.KeepBlobs, CollectSignatures: !o.KeepSignatures}
	var err error
	if s.Paused, err = c.paused(ctx); err != nil {
		return Stats{}, err
	}
	if s.ReviewAfter, err = c.delays(ctx); err != nil {
		return Stats{}, err
	}
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
		return Stats{}, wrap("count reclaimed bytes", err)
	}
	_, err = c.db.Row(ctx, countUploads, []any{now.Add(-c.options.UploadExpiry).UnixMilli(), now.UnixMilli()}, &s.Uploads, &s.Abandoned)
	return s, wrap("count uploads", err)
}
