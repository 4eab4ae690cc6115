package sqldb

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// liteTx is a write transaction on SQLite that calls the driver directly. Package
// database/sql would cost as much per statement as SQLite itself: locks,
// conversions and a dozen allocations.
type liteTx struct {
	db    *DB
	conn  *sql.Conn // the only writing connection; nil after the end of the transaction
	ahead bool      // its commit does not wait for the disk
}

// liteConn is a connection of the driver with its prepared statements. The holder
// of the connection owns it.
type liteConn struct {
	conn  driver.Conn
	stmts map[string]liteStmt
	args  []driver.NamedValue // reused
	row   liteRow             // reused
}

type liteStmt interface {
	driver.Stmt
	driver.StmtExecContext
	driver.StmtQueryContext
}

func (db *DB) beginLite(ctx context.Context, ahead bool) (*liteTx, error) {
	if err := db.flush.usable(); err != nil {
		return nil, err
	}
	conn, err := db.writer.Conn(ctx)
	if err != nil {
		return nil, err
	}
	t := &liteTx{db: db, conn: conn, ahead: ahead && !db.noSync}
	if ahead {
		err = t.setSynchronous("NORMAL")
	}
	if err == nil {
		err = t.exec("BEGIN IMMEDIATE")
	}
	if err != nil {
		return nil, errors.Join(err, t.release())
	}
	return t, nil
}

func (t *liteTx) commit() error {
	if t.ahead {
		t.db.flush.inFlight.Add(1)
		defer t.db.flush.inFlight.Add(-1)
	}
	err := t.exec("COMMIT")
	if err != nil {
		t.rollback() // SQLite may still be in the transaction
		return err
	}
	if t.ahead {
		t.db.flush.committed.Add(1)
	}
	return t.release()
}

func (t *liteTx) rollback() {
	if t.conn == nil {
		return
	}
	// An error means that SQLite has rolled back by itself.
	_ = t.exec("ROLLBACK")
	_ = t.release()
}

// release resets synchronous to FULL, which all other transactions need, and
// returns the connection. If the reset fails, it closes the connection, and the
// pool opens a new one with the right setting.
func (t *liteTx) release() error {
	conn := t.conn
	defer func() { t.conn = nil }()
	if t.ahead {
		if err := t.setSynchronous("FULL"); err != nil {
			bad := conn.Raw(func(any) error { return driver.ErrBadConn })
			return errors.Join(err, bad, conn.Close())
		}
	}
	return conn.Close()
}

// setSynchronous must run between transactions. The pragma takes effect when
// SQLite prepares it, so it must not be a kept prepared statement.
func (t *liteTx) setSynchronous(level string) error {
	return t.conn.Raw(func(driverConn any) error {
		execer, ok := driverConn.(driver.ExecerContext)
		if !ok {
			return fmt.Errorf("the SQLite driver gave a %T", driverConn)
		}
		_, err := execer.ExecContext(context.Background(), "PRAGMA synchronous = "+level, nil)
		return err
	})
}

func (t *liteTx) exec(statement string) error {
	b := Batch{items: []item{{statement: statement}}}
	return t.send(&b)
}

func (t *liteTx) send(b *Batch) error {
	if t.conn == nil {
		return sql.ErrTxDone
	}
	return t.conn.Raw(func(driverConn any) error {
		c, err := t.db.liteConn(driverConn)
		if err != nil {
			return err
		}
		return c.send(context.Background(), b)
	})
}

// liteConn returns the liteConn of the writer's connection. If the pool has
// replaced the connection, the statements of the old one are closed already.
func (db *DB) liteConn(driverConn any) (*liteConn, error) {
	conn, ok := driverConn.(driver.Conn)
	if !ok {
		return nil, fmt.Errorf("the SQLite driver gave a %T", driverConn)
	}
	if db.lite == nil || db.lite.conn != conn {
		db.lite = &liteConn{conn: conn, stmts: map[string]liteStmt{}}
	}
	return db.lite, nil
}

// closeLite closes the prepared statements of the writer's connection, if the pool
// still has it. The pool closes a connection whose last statement was interrupted
// (a vacuum while the server stops), and closing a statement of a closed
// connection would make SQLite read freed memory.
func (db *DB) closeLite() error {
	if db.lite == nil {
		return nil
	}
	conn, err := db.writer.Conn(context.Background())
	if err != nil {
		return fmt.Errorf("close statements: %w", err)
	}
	err = conn.Raw(func(driverConn any) error {
		c, err := db.liteConn(driverConn) // without statements if the connection is a new one
		if err != nil {
			return err
		}
		return c.close()
	})
	db.lite = nil
	return errors.Join(err, conn.Close())
}

// close closes the statements; the pool closes the connection.
func (c *liteConn) close() error {
	var errs []error
	for _, stmt := range c.stmts {
		errs = append(errs, stmt.Close())
	}
	clear(c.stmts)
	return errors.Join(errs...)
}

// send runs the statements of a batch. ctx interrupts them.
func (c *liteConn) send(ctx context.Context, b *Batch) error {
	for i := range b.items {
		if err := c.run(ctx, &b.items[i]); err != nil {
			return err
		}
	}
	return nil
}

func (c *liteConn) run(ctx context.Context, it *item) (err error) {
	stmt, err := c.stmt(it.statement)
	if err != nil {
		return err
	}
	if err := c.setArgs(it.args); err != nil {
		return err
	}
	row := it.row
	switch {
	case it.found != nil:
		row = func(Row) error { *it.found = true; return nil }
	case row == nil:
		_, err := stmt.ExecContext(ctx, c.args)
		return err
	}
	rows, err := stmt.QueryContext(ctx, c.args)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	return c.each(ctx, rows, row)
}

func (c *liteConn) stmt(statement string) (liteStmt, error) {
	if stmt := c.stmts[statement]; stmt != nil {
		return stmt, nil
	}
	prepared, err := c.conn.Prepare(statement)
	if err != nil {
		return nil, fmt.Errorf("prepare: %w", err)
	}
	stmt, ok := prepared.(liteStmt)
	if !ok {
		return nil, errors.Join(fmt.Errorf("the SQLite driver prepared a %T", prepared), prepared.Close())
	}
	c.stmts[statement] = stmt
	return stmt, nil
}

func (c *liteConn) setArgs(args []any) error {
	c.args = c.args[:0]
	for i, arg := range args {
		value, err := driver.DefaultParameterConverter.ConvertValue(arg)
		if err != nil {
			return fmt.Errorf("argument %d: %w", i+1, err)
		}
		c.args = append(c.args, driver.NamedValue{Ordinal: i + 1, Value: value})
	}
	return nil
}

func (c *liteConn) each(ctx context.Context, rows driver.Rows, row func(Row) error) error {
	if n := len(rows.Columns()); cap(c.row.values) < n {
		c.row.values = make([]driver.Value, n)
	} else {
		c.row.values = c.row.values[:n]
	}
	for {
		if err := ctx.Err(); err != nil {
			return err
		}
		err := rows.Next(c.row.values)
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := row(&c.row); err != nil {
			return err
		}
	}
}

// liteRow is a row of the driver. It implements Row.
type liteRow struct{ values []driver.Value }

func (r *liteRow) Scan(dest ...any) error {
	if len(dest) != len(r.values) {
		return fmt.Errorf("scan: %d columns into %d destinations", len(r.values), len(dest))
	}
	for i, value := range r.values {
		if err := assign(dest[i], value); err != nil {
			return columnError(i, err)
		}
	}
	return nil
}

// liteReaders are connections that read, and keep their prepared statements. An interrupted
// statement leaves its connection as it was. There are two pools: a read by key must not wait for
// reads that hold a connection for seconds. Both take from the same idle connections, because
// each new one reads the whole schema, which takes milliseconds.
type liteReaders struct {
	// turns is a semaphore: one slot for each connection.
	turns chan struct{}
	*liteIdle
}

// liteIdle are the connections that no read uses.
type liteIdle struct {
	open   func() (driver.Conn, error)
	mu     sync.Mutex
	idle   []*liteConn // a stack: the last used is used next; guarded by mu
	closed bool        // guarded by mu
}

func (db *DB) newLiteReaders(path string, pragmas []string) *liteReaders {
	open := func() (driver.Conn, error) {
		return db.reader.Driver().Open(sqliteName(path, "ro", "deferred", pragmas))
	}
	return &liteReaders{turns: make(chan struct{}, sqliteReaders), liteIdle: &liteIdle{open: open}}
}

var errReadersClosed = errors.New("the database is closed")

// Send reads on one connection. It implements Sender.
func (r *liteReaders) Send(ctx context.Context, b *Batch) error { return r.send(ctx, ctx, b) }

// send is Send with two contexts: wait bounds the wait for it, and run interrupts the statements.
func (r *liteReaders) send(wait, run context.Context, b *Batch) error {
	c, err := r.take(wait)
	if err != nil {
		return err
	}
	defer r.give(c)
	return c.send(run, b)
}

// mostWait bounds the wait for a connection if the context has no deadline.
const mostWait = 30 * time.Second

// take returns a connection, for give.
func (r *liteReaders) take(ctx context.Context) (*liteConn, error) {
	select {
	case r.turns <- struct{}{}:
	default:
		ctx, cancel := boundWait(ctx)
		defer cancel()
		select {
		case r.turns <- struct{}{}:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for a connection: %w", ctx.Err())
		}
	}
	c, err := r.idleOne()
	if err == nil && c == nil {
		c = &liteConn{stmts: map[string]liteStmt{}}
		if c.conn, err = r.open(); err != nil {
			err = fmt.Errorf("connect: %w", err)
		}
	}
	if err != nil {
		<-r.turns
		return nil, err
	}
	return c, nil
}

func (r *liteIdle) idleOne() (*liteConn, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return nil, errReadersClosed
	}
	n := len(r.idle)
	if n == 0 {
		return nil, nil
	}
	c := r.idle[n-1]
	r.idle = r.idle[:n-1]
	return c, nil
}

func (r *liteReaders) give(c *liteConn) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.idle = append(r.idle, c)
	<-r.turns
}

// close waits for the reads that run.
func (r *liteReaders) close() error {
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
