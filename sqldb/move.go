package sqldb

import (
	"bytes"
	"cmp"
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/stdlib"

	"github.com/exeunt/exeunt/sqldb/schema"
)

// A move copies a database of one engine into an empty one of the other: every row of every table, and
// the counters. Rows keep their ids, revisions and uids, and triggers do not run for them, because what they
// did is copied too. So clients continue a watch with the resource version that they have.
//
// Rows are copied in the order of their primary key, in transactions of some megabytes. So at any moment a
// table of the target has the first rows of the source, and a copy that was interrupted continues after the last
// key that the target has: nothing else needs to be remembered. Until the end a row of migrations marks the
// target as unfinished, which keeps every server away. At the end both sides are read in the same order and
// compared value by value.

// MoveProgress is how far Move is.
type MoveProgress struct {
	Step        string // copy, verify
	Table       string
	Done, Total int64 // rows
}

// Moved is what Move has done.
type Moved struct {
	Tables int   `json:"tables"`
	Rows   int64 `json:"rows"`
}

// ErrUnfinished: the database is the target of a move that has not ended.
var ErrUnfinished = errors.New("the database is an unfinished copy of another one: run exeunt migrate database again with the same arguments, or start with an empty database")

const (
	// unfinished is the number of the row in migrations that marks the target of a move.
	unfinished     = 1_000_000
	unfinishedName = "unfinished copy"

	// A transaction has at most this many rows, and begins with less than this many bytes.
	moveRows, moveBytes = 1000, 4 << 20
)

// Move copies a database into an empty one of the other engine. No server may use either of them: of SQLite's file
// the caller holds the lock. The source is only read. After an interruption a second call continues.
func Move(ctx context.Context, from, to string, show func(MoveProgress)) (moved Moved, err error) {
	if isPostgres(from) == isPostgres(to) {
		return moved, errors.New("both databases are of the same engine: use exeunt backup create and restore")
	}
	m := move{show: show}
	if m.from, err = OpenAsIs(ctx, from); err != nil {
		return moved, err
	}
	defer func() { err = errors.Join(err, m.from.Close()) }()
	if m.to, err = OpenAsIs(ctx, to); err != nil {
		return moved, err
	}
	defer func() { err = errors.Join(err, m.to.Close()) }()
	unlock, err := m.lock(ctx)
	if err != nil {
		return moved, err
	}
	defer unlock()
	if err := m.run(ctx); err != nil {
		return moved, err
	}
	return Moved{len(m.tables), m.total}, nil
}

// move is a copy that is being made.
type move struct {
	from, to *DB
	show     func(MoveProgress)
	source   *sql.Tx // one state of the source
	tables   []movedTable
	total    int64 // rows of the source
	done     int64
	complete bool // the target has no mark: it is a whole copy, or something else
}

// movedTable is a table of both engines. The columns are in the order of PostgreSQL.
type movedTable struct {
	name    string
	names   []string // of the columns
	columns []movedColumn
	key     []int // columns of the primary key
}

type movedColumn struct {
	name    string
	text    bool
	boolean bool // on PostgreSQL; SQLite has 0 and 1
}

// postgres is the side that has the lock, and the catalog that says what tables there are.
func (m *move) postgres() *DB {
	if m.to.engine == Postgres {
		return m.to
	}
	return m.from
}

// lock keeps servers away from PostgreSQL: a start waits for the lock of the migrations.
func (m *move) lock(ctx context.Context) (unlock func(), err error) {
	conn, err := m.postgres().writePool.Acquire(ctx)
	if err != nil {
		return nil, Advised(err)
	}
	unlock = func() { // PostgreSQL would release the lock some time after the connection is closed
		limited, cancel := context.WithTimeout(context.WithoutCancel(ctx), 10*time.Second)
		defer cancel()
		_, _ = conn.Exec(limited, "SELECT pg_advisory_unlock($1)", int64(migrationLock))
		_ = conn.Conn().Close(limited)
		conn.Release()
	}
	var free bool
	var running int
	err = conn.QueryRow(ctx, "SELECT pg_try_advisory_lock($1)", int64(migrationLock)).Scan(&free)
	if err == nil {
		err = conn.QueryRow(ctx, countPresent, int64(presence)).Scan(&running)
	}
	if err == nil && (!free || running > 0) {
		err = ErrRunning
	}
	if err != nil {
		unlock()
		return nil, err
	}
	return unlock, nil
}

func (m *move) run(ctx context.Context) (err error) {
	steps, err := m.from.Steps(ctx)
	if err != nil {
		return fmt.Errorf("source: %w", err)
	}
	if i := slices.IndexFunc(steps, func(s Step) bool { return !s.Done }); i >= 0 {
		return fmt.Errorf("the source does not have step %d (%s) of this program: run exeunt migrate up first", steps[i].Number, steps[i].Name)
	}
	if err := m.prepare(ctx); err != nil {
		return fmt.Errorf("target: %w", err)
	}
	if m.source, err = m.from.beginRead(ctx); err != nil {
		return err
	}
	defer func() { _ = m.source.Rollback() }() // it only reads
	if err := m.list(ctx); err != nil {
		return err
	}
	if m.complete {
		err := m.each(ctx, "verify", m.compareTable)
		if errors.Is(err, errDiffers) {
			err = fmt.Errorf("target: %w: a copy needs a new one", ErrNotEmpty)
		}
		return err
	}
	if err := m.each(ctx, "copy", m.copyTable); err != nil {
		return err
	}
	if err := m.each(ctx, "verify", m.compareTable); err != nil {
		return err
	}
	return m.finish(ctx)
}

// each does a step for all tables.
func (m *move) each(ctx context.Context, step string, do func(context.Context, *movedTable) error) error {
	m.done = 0
	for i := range m.tables {
		m.show(MoveProgress{step, m.tables[i].name, m.done, m.total})
		if err := do(ctx, &m.tables[i]); err != nil {
			return fmt.Errorf("%s table %s: %w", step, m.tables[i].name, err)
		}
	}
	return nil
}

// prepare makes the schema in an empty target, without triggers and rows, and marks it: all in one
// transaction. A target that is marked stays as it is.
func (m *move) prepare(ctx context.Context) error {
	steps, err := schema.Migrations(string(m.to.engine))
	if err != nil {
		return err
	}
	return m.to.Write(ctx, func(tx *sql.Tx) error {
		run := func(statement string, args ...any) error {
			_, err := tx.ExecContext(ctx, statement, args...)
			return err
		}
		used, create := anyRelation, createMigrationsPostgres
		if m.to.engine == SQLite {
			used, create = `SELECT EXISTS (SELECT 1 FROM sqlite_schema)`, createMigrationsSQLite
		}
		var found bool
		if err := tx.QueryRowContext(ctx, used).Scan(&found); err != nil {
			return err
		}
		if found {
			return m.resume(ctx, tx, len(steps))
		}
		if err := run(create); err != nil {
			return err
		}
		for _, step := range steps {
			if err := apply(ctx, tx, step); err != nil {
				return err
			}
		}
		if err := m.empty(ctx, tx); err != nil {
			return err
		}
		return run(insertMigration, unfinished, unfinishedName)
	})
}

// resume refuses a target that this program has not begun. Without a mark it may be a copy that an earlier call completed.
func (m *move) resume(ctx context.Context, tx *sql.Tx, steps int) error {
	var tables, marks, done int
	if err := tx.QueryRowContext(ctx, hasMigrations[m.to.engine]).Scan(&tables); err != nil {
		return err
	}
	if tables > 0 {
		const count = `SELECT count(CASE WHEN number = $1 THEN 1 END), count(CASE WHEN number <> $1 THEN 1 END) FROM migrations`
		if err := tx.QueryRowContext(ctx, count, unfinished).Scan(&marks, &done); err != nil {
			return err
		}
	}
	m.complete = marks == 0
	switch {
	case m.complete && done != steps:
		return fmt.Errorf("%w: a copy needs a new one", ErrNotEmpty)
	case done != steps:
		return fmt.Errorf("another version of this program has begun the copy (%d steps of the schema, not %d): continue with that version, or start with an empty database", done, steps)
	}
	return nil
}

// empty removes what the migrations have written, and switches the triggers off until finish.
func (m *move) empty(ctx context.Context, tx *sql.Tx) error {
	if m.to.engine == SQLite {
		// SQLite cannot switch triggers off, so they are dropped, and kept as text.
		if _, err := tx.ExecContext(ctx, `CREATE TABLE moved_triggers AS SELECT name, sql FROM sqlite_schema WHERE type = 'trigger' ORDER BY rowid`); err != nil {
			return err
		}
		if err := execEach(ctx, tx, `SELECT 'DROP TRIGGER ' || name FROM moved_triggers`); err != nil {
			return err
		}
		return execEach(ctx, tx, `SELECT 'DELETE FROM ' || name FROM sqlite_schema WHERE type = 'table' AND name NOT IN ('migrations', 'moved_triggers')`)
	}
	return execEach(ctx, tx, `SELECT format('TRUNCATE %1$I CASCADE; ALTER TABLE %1$I DISABLE TRIGGER USER', c.relname) FROM pg_class c
		WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> 'migrations'`)
}

// execEach runs the statements that a query returns.
func execEach(ctx context.Context, tx *sql.Tx, query string) error {
	var statements []string
	err := eachRow(ctx, tx, func(rows *sql.Rows) error {
		var s string
		err := rows.Scan(&s)
		statements = append(statements, s)
		return err
	}, query)
	if err != nil {
		return err
	}
	for _, s := range statements {
		if _, err := tx.ExecContext(ctx, s); err != nil {
			return err
		}
	}
	return nil
}

// finish switches the triggers on, sets the counters and removes the mark, in one transaction.
func (m *move) finish(ctx context.Context) error {
	if m.to.engine == Postgres {
		if _, err := m.to.writer.ExecContext(ctx, "ANALYZE"); err != nil {
			return err
		}
	}
	err := m.to.Write(ctx, func(tx *sql.Tx) (err error) {
		if m.to.engine == SQLite {
			err = errors.Join(execEach(ctx, tx, `SELECT sql FROM moved_triggers ORDER BY rowid`), execEach(ctx, tx, `SELECT 'DROP TABLE moved_triggers'`))
		} else {
			err = execEach(ctx, tx, `SELECT format('ALTER TABLE %I ENABLE TRIGGER USER', c.relname) FROM pg_class c
				WHERE c.relnamespace = current_schema()::regnamespace AND c.relkind = 'r' AND c.relname <> 'migrations'`)
		}
		if err == nil {
			err = m.count(ctx, tx)
		}
		if err == nil {
			_, err = tx.ExecContext(ctx, deleteMigration, unfinished)
		}
		return err
	})
	if err != nil {
		return fmt.Errorf("finish the copy: %w", err)
	}
	return m.to.Checkpoint(ctx)
}

// count sets the counters of the target. SQLite's are its AUTOINCREMENT columns; its other ids continue after
// the highest one.
func (m *move) count(ctx context.Context, tx *sql.Tx) error {
	if m.to.engine == SQLite {
		counters, err := listCounters(ctx, m.source)
		for _, c := range counters {
			if err == nil && c.Used {
				_, err = tx.ExecContext(ctx, `DELETE FROM sqlite_sequence WHERE name = $1`, c.Table)
			}
			if err == nil && c.Used {
				_, err = tx.ExecContext(ctx, `INSERT INTO sqlite_sequence (name, seq) SELECT name, $2 FROM sqlite_schema WHERE name = $1 AND sql LIKE '%AUTOINCREMENT%'`, c.Table, c.Last)
			}
		}
		return err
	}
	counters, err := listCounters(ctx, tx)
	if err != nil {
		return err
	}
	for _, c := range counters {
		last := int64(0)
		statement := fmt.Sprintf(`SELECT coalesce(max(n), 0) FROM (SELECT max(%s) AS n FROM %s UNION ALL SELECT seq FROM sqlite_sequence WHERE name = $1) AS ids`, c.Column, c.Table)
		if err := m.source.QueryRowContext(ctx, statement, c.Table).Scan(&last); err != nil {
			return err
		}
		if last == 0 {
			continue
		}
		if _, err := tx.ExecContext(ctx, "SELECT setval(pg_get_serial_sequence(quote_ident($1), $2), $3)", c.Table, c.Column, last); err != nil {
			return err
		}
	}
	return nil
}

const tableColumns = `
SELECT a.attname, a.atttypid::regtype = 'text'::regtype, a.atttypid::regtype = 'boolean'::regtype, coalesce(array_position(i.indkey::int2[], a.attnum), -1)
FROM pg_attribute a JOIN pg_index i ON i.indrelid = a.attrelid AND i.indisprimary
WHERE a.attrelid = quote_ident($1)::regclass AND a.attnum > 0 AND NOT a.attisdropped AND a.attgenerated = ''
ORDER BY a.attnum`

// list reads the tables, and counts the rows of the source.
func (m *move) list(ctx context.Context) error {
	var catalog querier = m.to.reader
	if m.from.engine == Postgres {
		catalog = m.source
	}
	names, err := listTables(ctx, catalog)
	if err != nil {
		return err
	}
	for _, n := range names {
		t := movedTable{name: n.Name}
		if err := t.readColumns(ctx, catalog); err != nil {
			return fmt.Errorf("read the columns of %s: %w", t.name, err)
		}
		var rows int64
		if err := m.source.QueryRowContext(ctx, "SELECT count(*) FROM "+t.name).Scan(&rows); err != nil {
			return err
		}
		m.total += rows
		m.tables = append(m.tables, t)
	}
	return nil
}

func (t *movedTable) readColumns(ctx context.Context, catalog querier) (err error) {
	place := map[int]int{} // of each column of the key
	err = eachRow(ctx, catalog, func(rows *sql.Rows) error {
		var c movedColumn
		var at int
		if err := rows.Scan(&c.name, &c.text, &c.boolean, &at); err != nil {
			return err
		}
		if at >= 0 {
			place[len(t.columns)] = at
			t.key = append(t.key, len(t.columns))
		}
		t.columns, t.names = append(t.columns, c), append(t.names, c.name)
		return nil
	}, tableColumns, t.name)
	slices.SortFunc(t.key, func(a, b int) int { return cmp.Compare(place[a], place[b]) })
	if err == nil && len(t.key) == 0 {
		err = errors.New("the table has no primary key")
	}
	return err
}

// rows is a query of all columns. Behind the table come conditions, and the order is that of the key.
func (t *movedTable) rows(engine Engine, where, direction string) string {
	return "SELECT " + strings.Join(t.names, ", ") + " FROM " + t.name + where + " ORDER BY " + t.keys(engine, direction)
}

// parameters are n places for arguments: "($1, $2)".
func parameters(n int) string {
	list := make([]string, n)
	for i := range list {
		list[i] = fmt.Sprintf("$%d", i+1)
	}
	return "(" + strings.Join(list, ", ") + ")"
}

// keys are the columns of the key as an engine orders them: text byte by byte.
func (t *movedTable) keys(engine Engine, suffix string) string {
	var keys []string
	for _, k := range t.key {
		c := t.columns[k].name
		if t.columns[k].text && engine == Postgres {
			c += ` COLLATE "C"`
		}
		keys = append(keys, c+suffix)
	}
	return strings.Join(keys, ", ")
}

// read reads the rows after a key, in order. A key of nil reads all rows.
func (t *movedTable) read(ctx context.Context, engine Engine, q querier, after []any, row func(values []any) error) error {
	where := ""
	if after != nil {
		where = " WHERE (" + t.keys(engine, "") + ") > " + parameters(len(after))
	}
	return eachRow(ctx, q, func(rows *sql.Rows) error {
		values, err := t.scan(rows)
		if err != nil {
			return err
		}
		return row(values)
	}, t.rows(engine, where, ""), after...)
}

// scan reads a row in a form that both engines share: int64, string, []byte or nil.
func (t *movedTable) scan(rows *sql.Rows) ([]any, error) {
	values, to := make([]any, len(t.columns)), make([]any, len(t.columns))
	for i := range values {
		to[i] = &values[i]
	}
	if err := rows.Scan(to...); err != nil {
		return nil, err
	}
	for i, v := range values {
		switch v := v.(type) {
		case bool:
			values[i] = int64(0)
			if v {
				values[i] = int64(1)
			}
		case []byte:
			if v == nil { // empty, as a driver returns it
				values[i] = []byte{}
			}
		case nil, int64, string:
		default:
			return nil, fmt.Errorf("column %s has a value of type %T", t.columns[i].name, v)
		}
	}
	return values, nil
}

// copyTable copies the rows that the target does not have.
func (m *move) copyTable(ctx context.Context, t *movedTable) error {
	after, err := m.last(ctx, t)
	if err != nil {
		return err
	}
	var chunk [][]any
	size := 0
	write := func() error {
		if len(chunk) == 0 {
			return nil
		}
		if err := m.write(ctx, t, chunk); err != nil {
			return fmt.Errorf("%d rows from %s on: %w", len(chunk), t.describe(chunk[0]), err)
		}
		m.done += int64(len(chunk))
		m.show(MoveProgress{"copy", t.name, m.done, m.total})
		chunk, size = nil, 0
		return nil
	}
	err = t.read(ctx, m.from.engine, m.source, after, func(values []any) error {
		chunk = append(chunk, values)
		for _, v := range values {
			switch v := v.(type) {
			case string:
				size += len(v)
			case []byte:
				size += len(v)
			}
		}
		if len(chunk) < moveRows && size < moveBytes {
			return nil
		}
		return write()
	})
	if err != nil {
		return err
	}
	return write()
}

// last returns the highest key that the target has, or nil, and counts its rows as done.
func (m *move) last(ctx context.Context, t *movedTable) (key []any, err error) {
	err = eachRow(ctx, m.to.reader, func(rows *sql.Rows) error {
		values, err := t.scan(rows)
		if err != nil {
			return err
		}
		for _, k := range t.key {
			key = append(key, values[k])
		}
		return nil
	}, t.rows(m.to.engine, "", " DESC")+" LIMIT 1")
	if err != nil || key == nil {
		return nil, err
	}
	var had int64
	err = m.to.reader.QueryRowContext(ctx, "SELECT count(*) FROM "+t.name).Scan(&had)
	m.done += had
	return key, err
}

// write adds rows to the target, in one transaction.
func (m *move) write(ctx context.Context, t *movedTable, chunk [][]any) error {
	if m.to.engine == SQLite {
		return m.to.Write(ctx, func(tx *sql.Tx) error {
			insert, err := tx.PrepareContext(ctx, "INSERT INTO "+t.name+" ("+strings.Join(t.names, ", ")+") VALUES "+parameters(len(t.names)))
			if err != nil {
				return err
			}
			defer func() { _ = insert.Close() }()
			for _, values := range chunk {
				if _, err := insert.ExecContext(ctx, values...); err != nil {
					return err
				}
			}
			return nil
		})
	}
	for _, values := range chunk {
		for i, c := range t.columns {
			if c.boolean {
				if n, ok := values[i].(int64); ok {
					values[i] = n != 0
				}
			}
		}
	}
	conn, err := m.to.writer.Conn(ctx)
	if err != nil {
		return err
	}
	err = conn.Raw(func(driver any) error {
		_, err := driver.(*stdlib.Conn).Conn().CopyFrom(ctx, pgx.Identifier{t.name}, t.names, pgx.CopyFromRows(chunk))
		return err
	})
	return errors.Join(err, conn.Close())
}

// errDiffers: the sides have other rows.
var errDiffers = errors.New("the copy differs from the source, which was used since the copy began: start again with an empty database")

// compareTable reads both sides in the same order.
func (m *move) compareTable(ctx context.Context, t *movedTable) (err error) {
	rows, err := m.to.reader.QueryContext(ctx, t.rows(m.to.engine, "", ""))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, rows.Close()) }()
	err = t.read(ctx, m.from.engine, m.source, nil, func(want []any) error {
		if !rows.Next() {
			return errors.Join(rows.Err(), fmt.Errorf("%s is missing: %w", t.describe(want), errDiffers))
		}
		got, err := t.scan(rows)
		if err != nil {
			return err
		}
		if !slices.EqualFunc(got, want, sameValue) {
			return fmt.Errorf("%s: %w", t.describe(want), errDiffers)
		}
		if m.done++; m.done%moveRows == 0 {
			m.show(MoveProgress{"verify", t.name, m.done, m.total})
		}
		return nil
	})
	if err == nil && rows.Next() {
		err = fmt.Errorf("there are more rows: %w", errDiffers)
	}
	return errors.Join(err, rows.Err())
}

func sameValue(a, b any) bool {
	x, isBytes := a.([]byte)
	y, areBytes := b.([]byte)
	if isBytes || areBytes {
		return isBytes && areBytes && bytes.Equal(x, y)
	}
	return a == b
}

// describe names a row by its key.
func (t *movedTable) describe(values []any) string {
	var parts []string
	for _, k := range t.key {
		parts = append(parts, fmt.Sprintf("%s %v", t.columns[k].name, values[k]))
	}
	return "row " + strings.Join(parts, ", ")
}
