package collect

import (
	"context"
	"fmt"
)

// ForgetDeleted deletes the records of deletions whose review is past, and
// returns how many rows those were. Reviews do not do it: a review that finds
// its manifest in use writes nothing.
func (c *Collector) ForgetDeleted(ctx context.Context) (forgotten int, err error) {
	var window int64
	if _, err := c.db.Row(ctx, undeleteWindow, nil, &window); err != nil {
		return 0, fmt.Errorf("forget what was deleted: %w", err)
	}
	before := c.options.Now().UnixMilli() - window
	for _, statement := range []string{forgetTags, forgetManifests} {
		for {
			n, err := c.removeSome(ctx, statement, before, stepRows)
			forgotten += n
			if err != nil {
				return forgotten, fmt.Errorf("forget what was deleted: %w", err)
			}
			if n < stepRows {
				break
			}
		}
	}
	return forgotten, nil
}
