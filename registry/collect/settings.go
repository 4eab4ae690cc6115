package collect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exeunt/exeunt/sqldb"
)

// events lists the events that have a delay.
var events = []string{
	EventBlobUpload, EventManifestUpload, EventManifestDelete, EventLayerDelete, EventManifestListDelete, EventTagDelete,
	EventTagSwitch, EventSubjectDelete, EventBlobDelete, EventUploadDelete, EventExistenceCheck,
}

// maxReviewAfter prevents an overflow of times.
const maxReviewAfter = 100 * 365 * 24 * time.Hour

func validReviewAfter(event string, after time.Duration) error {
	if !slices.Contains(events, event) {
		return fmt.Errorf("unknown event %q: known are %s", event, strings.Join(events, ", "))
	}
	if after < 0 || after > maxReviewAfter {
		return fmt.Errorf("a review after %v: must be from 0 to 100 years", after)
	}
	return nil
}

// SetReviewAfter sets the delay between an event and the review, for all
// replicas, from now on. Queued reviews keep their time.
func (c *Collector) SetReviewAfter(ctx context.Context, event string, after time.Duration) error {
	if err := validReviewAfter(event, after); err != nil {
		return fmt.Errorf("set review delay: %w", err)
	}
	return c.write(ctx, "set review delay", setReviewAfter, event, after.Milliseconds())
}

// ReviewAfter reads the delays of all events.
func (c *Collector) ReviewAfter(ctx context.Context) (map[string]time.Duration, error) {
	delays := map[string]time.Duration{}
	var b sqldb.Batch
	b.Query(func(row sqldb.Row) error {
		var event string
		var value int64
		err := row.Scan(&event, &value)
		delays[event] = time.Duration(value) * time.Millisecond
		return err
	}, listReviewAfter)
	if err := c.db.Read(ctx, nil, &b); err != nil {
		return nil, fmt.Errorf("list review delays: %w", err)
	}
	return delays, nil
}
