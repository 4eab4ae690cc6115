package gc

import (
	"context"
	"fmt"
	"slices"

	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store/graph"
)

// scanPage is how many references one statement reads, and how many reviews one
// transaction adds.
const scanPage = 500

// Scan enqueues what the triggers enqueue: owners that are referred to and do not
// exist, dependents whose reference does not match the object with that uid
// (another kind, name or namespace), and DELETING objects that wait for the
// collector. It is the safety net, at start and on demand, and it enqueues
// dependents whose owner's kind was not served until now. It returns how many
// reviews it added.
//
// It reads page by page, each page a statement of some milliseconds: no lock, no
// long snapshot that stops the database's vacuum, and no statement that outlives
// a killed process. A trigger enqueues what becomes reviewable behind the page,
// and uids are never reused.
func (c *Collector) Scan(ctx context.Context) (added int, err error) {
	for _, scan := range []func(context.Context, *cursor) ([]string, error){c.scanOwners, c.scanDeleting} {
		for at := (&cursor{}); !at.end; {
			found, err := scan(ctx, at)
			if err != nil {
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

// cursor is where the next page of a scan begins.
type cursor struct {
	dependent int64
	uid       string
	end       bool
}

// scanOwners reads a page of references and returns the uids to review.
func (c *Collector) scanOwners(ctx context.Context, at *cursor) ([]string, error) {
	kinds := c.kinds.Snapshot()
	page, err := graph.References(ctx, c.store.Reader(), at.dependent, types.UID(at.uid), scanPage)
	if err != nil {
		return nil, err
	}
	var found []string
	for i := range page {
		f := &page[i]
		at.dependent, at.uid = f.ID, string(f.UID)
		var o Owner
		if f.Found {
			o = OwnerOf(f.Owner)
		}
		named := Identify(kinds, Reference{f.As.Group, f.As.Kind, f.Name}, o)
		switch standing := Classify(f.Dependent.Namespace, named, o); {
		case f.Dependent.Deletion != 0, standing == Solid, standing == Waiting: // DELETING already, kept, or scanDeleting finds its owner
		case o.Exists && !o.Leaving:
			found = append(found, string(f.Dependent.UID))
		case !o.Exists:
			found = append(found, at.uid)
		}
	}
	at.end = len(page) < scanPage
	slices.Sort(found)
	return slices.Compact(found), nil
}

// scanDeleting reads a page of objects that wait for the collector.
func (c *Collector) scanDeleting(ctx context.Context, at *cursor) (found []string, err error) {
	page, err := graph.Finalizing(ctx, c.store.Reader(), types.UID(at.uid), scanPage)
	for _, uid := range page {
		at.uid = string(uid)
		found = append(found, at.uid)
	}
	at.end = len(page) < scanPage
	return found, err
}

// enqueueFound adds the missing reviews in its own transaction and returns how
// many it added. The uids are sorted, so concurrent scans lock in the same order.
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
