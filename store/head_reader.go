package store

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

const (
	// headQueries is how many queries of a headReader run at once. One more would be smaller, and
	// cost PostgreSQL as much.
	headQueries = 2
	// headsAtOnce bounds the heads of one query.
	headsAtOnce = 128
	// headPatience is how long a request waits for a shared query. Both may hang, on connections
	// that are cut off, while others work.
	headPatience = time.Second
)

// headReader reads the heads of objects on PostgreSQL for concurrent requests: those that
// arrive while queries run share the next one. A query begins after its requests, so each
// sees every write that was answered before. A request that comes alone does not wait.
type headReader struct {
	db *sqldb.DB

	mu      sync.Mutex
	waiting []*headRead // guarded by mu
	running int         // queries; guarded by mu
}

// headRead is one request. The fields below done belong to the reader until done is closed.
type headRead struct {
	key  object.Key
	done chan struct{}

	head  head
	found bool
	err   error
}

// get reads the head of an object, if it exists.
func (r *headReader) get(ctx context.Context, key object.Key) (h head, found bool, err error) {
	op := &headRead{key: key, done: make(chan struct{})}
	r.mu.Lock()
	r.waiting = append(r.waiting, op)
	if r.running < headQueries {
		r.running++
		go r.run()
	}
	r.mu.Unlock()
	patience := time.NewTimer(headPatience)
	defer patience.Stop()
	select {
	case <-op.done:
		return op.head, op.found, op.err
	case <-ctx.Done():
		return head{}, false, ctx.Err()
	case <-patience.C:
		return readHead(ctx, r.db, key)
	}
}

// readHead reads one head by a query of its own.
func readHead(ctx context.Context, db *sqldb.DB, key object.Key) (h head, found bool, err error) {
	found, err = db.Row(ctx, getHead, []any{key.Kind, key.Namespace, key.Name}, &h.uid, &h.revision)
	return h, found, err
}

// run reads until no request waits.
func (r *headReader) run() {
	for {
		r.mu.Lock()
		n := min(len(r.waiting), headsAtOnce)
		if n == 0 {
			r.running--
			r.mu.Unlock()
			return
		}
		batch := r.waiting[:n:n]
		r.waiting = r.waiting[n:]
		r.mu.Unlock()
		err := r.read(batch)
		for _, op := range batch {
			op.err = err
			close(op.done)
		}
	}
}

// read fills in the heads. The requests may have ended meanwhile, so it has a time limit of its own.
func (r *headReader) read(batch []*headRead) error {
	ctx, cancel := context.WithTimeout(context.Background(), readTimeout)
	defer cancel()
	if len(batch) == 1 {
		op := batch[0]
		var err error
		op.head, op.found, err = readHead(ctx, r.db, op.key)
		return err
	}
	kinds, namespaces, names := make([]string, len(batch)), make([]string, len(batch)), make([]string, len(batch))
	for i, op := range batch {
		kinds[i], namespaces[i], names[i] = op.key.Kind, op.key.Namespace, op.key.Name
	}
	return sqldb.Each(ctx, r.db, func(row sqldb.Row) error {
		var at int64
		var h head
		if err := row.Scan(&at, &h.uid, &h.revision); err != nil {
			return err
		}
		if at < 1 || at > int64(len(batch)) {
			return fmt.Errorf("the answer has the request %d of %d", at, len(batch))
		}
		op := batch[at-1]
		op.head, op.found = h, true
		return nil
	}, getHeads, kinds, namespaces, names)
}

// getHeads is getHead for several objects. The lateral join leaves PostgreSQL no other plan than
// the index.
const getHeads = `
SELECT q.n, o.uid, o.revision FROM unnest($1::text[], $2::text[], $3::text[]) WITH ORDINALITY AS q (kind, namespace, name, n)
CROSS JOIN LATERAL (
    SELECT uid, revision FROM objects WHERE kind = q.kind AND namespace = q.namespace AND name = q.name OFFSET 0
) AS o`
