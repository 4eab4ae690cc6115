package gc

import (
	"context"
	"fmt"

	"github.com/exeunt/exeunt/sqldb"
)

// scanPage is how many owners are looked at in one statement, and how many
// reviews are added in one transaction.
const scanPage = 500

// Scan puts under review every owner that is referred to and does not exist,
// and every DELETING object that waits for the collector. The triggers have
// done so already; this is the safety net, at start and on demand. It returns
// how many reviews it added.
//
// It goes page by page in order of uid, each page a statement of some
// milliseconds: no lock, no snapshot that keeps the database from tidying up,
// and nothing that runs on in the database when this process is killed. What
// becomes reviewable behind the page has its trigger; and a uid that is not
// there never comes back.
func (c *Collector) Scan(ctx context.Context) (added int, err error) {
	for _, statement := range []string{scanOwners, scanDeleting} {
		for after, more := "", true; more; {
			var found []string
			if found, after, more, err = c.scanPage(ctx, statement, after); err != nil {
				return added, fmt.Errorf("scan objects: %w", err)
			}
			n, err := c.enqueueFound(ctx, found)
			if err != nil {
				return added, fmt.Errorf("scan objects: %w", err)
			}
			added += n
		}
	}
	return added, nil
}

// scanPage looks at the uids after one. It returns those to be reviewed, the
// last it looked at, and whether there may be more.
func (c *Collector) scanPage(ctx context.Context, statement, after string) (found []string, last string, more bool, err error) {
	rows, err := c.db.Query(ctx, statement, after, scanPage)
	if err != nil {
		return nil, "", false, err
	}
	defer func() { _ = rows.Close() }()
	looked := 0
	for rows.Next() {
		var wanted bool
		if err := rows.Scan(&last, &wanted); err != nil {
			return nil, "", false, err
		}
		if looked++; wanted {
			found = append(found, last)
		}
	}
	return found, last, looked == scanPage, rows.Err()
}

// enqueueFound adds reviews, where there are none, in a transaction of its own,
// and says how many. They are in order, so two scans at once lock in the same
// order.
func (c *Collector) enqueueFound(ctx context.Context, found []string) (added int, err error) {
	if len(found) == 0 {
		return 0, nil
	}
	var b sqldb.Batch
	for _, uid := range found {
		b.Query(func(row sqldb.Row) error {
			added++
			return row.Scan(new(string))
		}, scanEnqueue, uid, c.opts.Now().UnixMilli())
	}
	if err := c.db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Send(ctx, &b) }); err != nil {
		return 0, err
	}
	if added > 0 {
		c.engine.Wake()
	}
	return added, nil
}
