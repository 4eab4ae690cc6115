package collect

import (
	"context"
	"database/sql"
	"errors"
	"fmt"

	"github.com/exeunt/exeunt/registry"
)

const planTag = `
SELECT r.id, t.manifest_id FROM repositories r JOIN tags t ON t.repository_id = r.id WHERE r.path = $1 AND t.name = $2`

// DryRunTag returns what would go because a tag is deleted: the difference between the
// plan without the tag and the plan with it. So content that the tag shares with garbage
// counts, and content that goes anyway does not.
func (c *Collector) DryRunTag(ctx context.Context, repository, tag string) (Plan, error) {
	tx, err := c.db.Snapshot(ctx)
	if err != nil {
		return Plan{}, fmt.Errorf("dry run of a tag: %w", err)
	}
	defer func() { _ = tx.Rollback() }() // nothing was written
	var id, manifest int64
	err = tx.QueryRowContext(ctx, planTag, repository, tag).Scan(&id, &manifest)
	if errors.Is(err, sql.ErrNoRows) {
		return Plan{}, &registry.Error{Code: registry.ManifestUnknown, Message: fmt.Sprintf("repository %s has no tag %s", repository, tag)}
	}
	if err != nil {
		return Plan{}, fmt.Errorf("dry run of a tag: %w", err)
	}
	before, err := newPlanner(ctx, c, tx).run()
	if err != nil {
		return Plan{}, fmt.Errorf("dry run of a tag: %w", err)
	}
	p := newPlanner(ctx, c, tx)
	p.goneTags[taggedName{id, tag}] = true
	after, err := p.run(manifest)
	if err != nil {
		return Plan{}, fmt.Errorf("dry run of a tag: %w", err)
	}
	return Plan{
		Manifests: without(after.Manifests, before.Manifests), Tags: without(after.Tags, before.Tags),
		Blobs: without(after.Blobs, before.Blobs), Bytes: after.Bytes - before.Bytes,
	}, nil
}

// without returns the items of a that b does not have.
func without[T comparable](a, b []T) []T {
	has := make(map[T]bool, len(b))
	for _, item := range b {
		has[item] = true
	}
	out := []T{}
	for _, item := range a {
		if !has[item] {
			out = append(out, item)
		}
	}
	return out
}
