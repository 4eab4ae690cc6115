package registry

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
)

// ErrNoRepository says that there is no repository of that path.
var ErrNoRepository = errors.New("no such repository")

// events are those that have a delay.
var events = []string{
	EventBlobUpload, EventManifestUpload, EventManifestDelete, EventLayerDelete, EventManifestListDelete, EventTagDelete,
	EventTagSwitch, EventSubjectDelete, EventBlobDelete, EventUploadDelete, EventExistenceCheck,
}

// maxReviewAfter keeps times far from where they would overflow.
const maxReviewAfter = 100 * 365 * 24 * time.Hour

func validReviewAfter(event string, after time.Duration) error {
	if !slices.Contains(events, event) {
		return fmt.Errorf("unknown event %q: known are %s", event, strings.Join(events, ", "))
	}
	return validDelay(after)
}

func validDelay(after time.Duration) error {
	if after < 0 || after > maxReviewAfter {
		return fmt.Errorf("a review after %v: must be from 0 to 100 years", after)
	}
	return nil
}

// SetReviewAfter sets how long after an event its subject is reviewed, for all
// replicas, from now on. What is in the queues stays as it is.
func (c *Collector) SetReviewAfter(ctx context.Context, event string, after time.Duration) error {
	if err := validReviewAfter(event, after); err != nil {
		return fmt.Errorf("set review delay: %w", err)
	}
	return c.write(ctx, "set review delay", setReviewAfter, event, after.Milliseconds())
}

// ReviewAfter reads the delays of all events.
func (c *Collector) ReviewAfter(ctx context.Context) (map[string]time.Duration, error) {
	rows, err := c.db.Query(ctx, listReviewAfter)
	if err != nil {
		return nil, fmt.Errorf("list review delays: %w", err)
	}
	defer func() { _ = rows.Close() }()
	delays := map[string]time.Duration{}
	for rows.Next() {
		var event string
		var value int64
		if err := rows.Scan(&event, &value); err != nil {
			return nil, fmt.Errorf("list review delays: %w", err)
		}
		delays[event] = time.Duration(value) * time.Millisecond
	}
	return delays, wrap("list review delays", rows.Err())
}

// SetHold stops the collection of what is in a repository, or lets it go on.
// Its reviews are looked at again within an hour.
func (c *Collector) SetHold(ctx context.Context, repository string, hold bool) error {
	return c.setRepository(ctx, "hold "+repository, setHold, repository, hold)
}

// SetDelay sets how long after an event a manifest of a repository is reviewed,
// in place of the event's own delay; nil sets it back. What is in the queue
// stays as it is.
func (c *Collector) SetDelay(ctx context.Context, repository string, after *time.Duration) error {
	var value any
	if after != nil {
		if err := validDelay(*after); err != nil {
			return fmt.Errorf("delay %s: %w", repository, err)
		}
		value = after.Milliseconds()
	}
	return c.setRepository(ctx, "delay "+repository, setDelay, repository, value)
}

func (c *Collector) setRepository(ctx context.Context, what, statement, repository string, value any) error {
	found := false
	err := c.transact(ctx, func(tx review.Tx) error {
		var b sqldb.Batch
		b.Query(func(row sqldb.Row) error { found = true; return row.Scan(new(int64)) }, statement, repository, value)
		return tx.Send(ctx, &b)
	})
	if err == nil && !found {
		err = ErrNoRepository
	}
	return wrap(what, err)
}
