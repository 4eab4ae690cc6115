package sqldb

import (
	"context"
	"errors"
	"fmt"
	"net/url"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"
	"github.com/jackc/pgx/v5/stdlib"
)

// Readers and writers have separate pools, so that a writer never waits for a
// connection that slow readers hold. pool_max_conns in the URL is for readers.
const (
	postgresReaders = 16
	postgresWriters = 8
)

func openPostgres(ctx context.Context, database string, limits Limits) (*DB, error) {
	db := &DB{engine: Postgres}
	if err := db.connectPostgres(ctx, database, limits); err != nil {
		return nil, errors.Join(fmt.Errorf("open database: %w", err), db.Close())
	}
	return db, nil
}

func (db *DB) connectPostgres(ctx context.Context, database string, limits Limits) error {
	config, err := pgxpool.ParseConfig(database)
	if err != nil {
		return err // pgx leaves the password out
	}
	if !hasParameter(database, "pool_max_conns") {
		config.MaxConns = postgresReaders
	}
	if config.ConnConfig.RuntimeParams["application_name"] == "" {
		config.ConnConfig.RuntimeParams["application_name"] = "exeunt"
	}
	config.ConnConfig.OnPgError = db.timeouts.counting(config.ConnConfig.OnPgError)
	config.ConnConfig.OnNotice = noticeUnconfirmed
	settings := noJIT + limits.settings(database)
	writers := config.Copy()
	writers.MaxConns = postgresWriters
	writers.AfterConnect = afterConnect(settings + noScan)
	if db.writePool, err = pgxpool.NewWithConfig(ctx, writers); err != nil {
		return err
	}
	config.AfterConnect = afterConnect(settings + "; SET default_transaction_read_only = on")
	if db.readPool, err = pgxpool.NewWithConfig(ctx, config); err != nil {
		return err
	}
	db.writer = stdlib.OpenDBFromPool(db.writePool)
	db.reader = stdlib.OpenDBFromPool(db.readPool)
	return checkSessions(ctx, db.writePool, db.readPool)
}

// noJIT: our statements take well under a millisecond, and compiling one takes
// tens. The planner compiles statements that it estimates as expensive, and with
// old statistics its estimates are wrong.
const noJIT = "SET jit = off"

// noScan: a write finds its rows by indexes. The plans of its statements and triggers are
// made once, perhaps while a table is nearly empty, and a scan is then the cheapest plan. A
// restore fills the table again before the next ANALYZE, and would scan it for each row.
const noScan = "; SET enable_seqscan = off"

func afterConnect(settings string) func(context.Context, *pgx.Conn) error {
	return func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, settings)
		return err
	}
}

func hasParameter(database, name string) bool {
	u, err := url.Parse(database)
	return err == nil && u.Query().Has(name)
}

// Listen calls fn with the payload of each notification on a channel, and once
// with an empty payload when it has begun to listen. It returns when ctx ends
// or the connection breaks: then call it again, and assume that notifications were
// missed. On SQLite it only waits for ctx to end. While it listens, this process
// counts as alive: see presence.go.
func (db *DB) Listen(ctx context.Context, channel string, fn func(payload string)) error {
	if db.engine != Postgres {
		<-ctx.Done()
		return ctx.Err()
	}
	// Not a connection of the pool: it is held until ctx ends.
	conn, err := pgx.ConnectConfig(ctx, db.writePool.Config().ConnConfig)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer func() { _ = conn.Close(context.WithoutCancel(ctx)) }()
	leave, err := db.holder.appear(ctx, conn)
	if err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	defer leave()
	if _, err := conn.Exec(ctx, "LISTEN "+pgx.Identifier{channel}.Sanitize()); err != nil {
		return fmt.Errorf("listen: %w", err)
	}
	fn("")
	for {
		notification, err := conn.WaitForNotification(ctx)
		if err != nil {
			return fmt.Errorf("listen: %w", err)
		}
		fn(notification.Payload)
	}
}
