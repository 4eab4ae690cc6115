package sqldb

import (
	"context"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// rowReaders are the connections of Row on SQLite. Row has its own, for two
// reasons. Other reads may hold a connection for seconds, and a read by key must
// not wait for them. And these connections are never interrupted, so they keep
// their prepared statements: the pool replaces a connection that a context
// interrupts, and its statements would leak.
//
// A context bounds the wait for a connection. It does not interrupt the read:
// reading one row is faster than starting the goroutine that would watch the
// context.
type rowReaders struct {
	open func() (driver.Conn, error)
	// turns is a semaphore: one slot for each connection.
	turns chan struct{}

	mu     sync.Mutex
	idle   []*liteConn // a stack: the last used is used next; guarded by mu
	closed bool        // guarded by mu
}

func newRowReaders(most int, open func() (driver.Conn, error)) *rowReaders {
	return &rowReaders{open: open, turns: make(chan struct{}, most)}
}

var errRowsClosed = errors.New("the database is closed")

func (r *rowReaders) row(ctx context.Context, statement string, args, dest []any) (bool, error) {
	if err := r.wait(ctx); err != nil {
		return false, fmt.Errorf("wait for a connection: %w", err)
	}
	defer func() { <-r.turns }()
	c, err := r.take()
	if err != nil {
		return false, err
	}
	defer r.give(c)
	return c.first(statement, args, dest)
}

// mostWait bounds the wait for a connection if the context has no deadline.
const mostWait = 30 * time.Second

func (r *rowReaders) wait(ctx context.Context) error {
	select {
	case r.turns <- struct{}{}:
		return nil
	default:
	}
	ctx, cancel := context.WithTimeout(ctx, mostWait)
	defer cancel()
	select {
	case r.turns <- struct{}{}:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

func (r *rowReaders) take() (*liteConn, error) {
	if c, err := r.idleOne(); c != nil || err != nil {
		return c, err
	}
	conn, err := r.open()
	if err != nil {
		return nil, fmt.Errorf("connect: %w", err)
	}
	return &liteConn{conn: conn, stmts: map[string]liteStmt{}}, nil
}

func (r *rowReaders) idleOne() (*liteConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errRowsClosed
	}
	n := len(r.idle)
	if n == 0 {
		return nil, nil
	}
	c := r.idle[n-1]
	r.idle = r.idle[:n-1]
	return c, nil
}

func (r *rowReaders) give(c *liteConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, c)
}

// close waits for the running reads, which are short.
func (r *rowReaders) close() error {
	if r == nil {
		return nil
	}
	for range cap(r.turns) {
		r.turns <- struct{}{}
	}
	defer func() {
		for range cap(r.turns) {
			<-r.turns
		}
	}()
	r.mu.Lock()
	defer r.mu.Unlock()
	r.closed = true
	var errs []error
	for _, c := range r.idle {
		errs = append(errs, c.close(), c.conn.Close())
	}
	r.idle = nil
	return errors.Join(errs...)
}

// first reads the first row of a statement, and reports whether there is one.
func (c *liteConn) first(statement string, args, dest []any) (found bool, err error) {
	stmt, err := c.stmt(statement)
	if err != nil {
		return false, err
	}
	if err := c.setArgs(args); err != nil {
		return false, err
	}
	rows, err := stmt.QueryContext(context.Background(), c.args)
	if err != nil {
		return false, err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	c.fit(rows)
	switch err := rows.Next(c.row.values); {
	case errors.Is(err, io.EOF):
		return false, nil
	case err != nil:
		return false, err
	}
	return true, c.row.Scan(dest...)
}
