package review_test

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

// The example: a thing without references is garbage. A trigger enqueues it when its
// references change, due in an hour.
const (
	schemaSQLite = `
CREATE TABLE things (id TEXT PRIMARY KEY, refs INTEGER NOT NULL) STRICT;
CREATE TABLE thing_reviews (
    thing        TEXT PRIMARY KEY,
    review_after INTEGER NOT NULL,
    review_count INTEGER NOT NULL,
    event        TEXT NOT NULL,
    created_at   INTEGER NOT NULL,
    last_error   TEXT,
    claim_token  TEXT,
    claim_until  INTEGER,
    traceparent  TEXT
) STRICT;
CREATE INDEX thing_reviews_review_after_idx ON thing_reviews (review_after);
CREATE TRIGGER things_update_track AFTER UPDATE OF refs ON things BEGIN
    INSERT INTO thing_reviews (thing, review_after, review_count, event, created_at)
    VALUES (NEW.id, unixepoch() * 1000 + 3600000, 0, 'refs', unixepoch() * 1000)
    ON CONFLICT (thing) DO UPDATE SET
        review_after = min(thing_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
END;`
	schemaPostgres = `
CREATE TABLE things (id text PRIMARY KEY, refs integer NOT NULL);
CREATE TABLE thing_reviews (
    thing        text COLLATE "C" PRIMARY KEY,
    review_after bigint NOT NULL,
    review_count integer NOT NULL,
    event        text NOT NULL,
    created_at   bigint NOT NULL,
    last_error   text,
    claim_token  text,
    claim_until  bigint,
    traceparent  text
);
CREATE INDEX thing_reviews_review_after_idx ON thing_reviews (review_after);
CREATE FUNCTION things_update_track() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    now_ms bigint := (extract(epoch FROM clock_timestamp()) * 1000)::bigint;
BEGIN
    INSERT INTO thing_reviews (thing, review_after, review_count, event, created_at)
    VALUES (NEW.id, now_ms + 3600000, 0, 'refs', now_ms)
    ON CONFLICT (thing) DO UPDATE SET
        review_after = least(thing_reviews.review_after, excluded.review_after),
        event = excluded.event, claim_token = NULL, claim_until = NULL;
    RETURN NULL;
END $$;
CREATE TRIGGER things_update_track AFTER UPDATE OF refs ON things
    FOR EACH ROW EXECUTE FUNCTION things_update_track();`
)

var queue = review.Queue{Name: "things", Table: "thing_reviews", Key: "thing"}

// disk is outside the database: it holds the bytes of things.
type disk struct {
	mu     sync.Mutex
	things map[string]bool // guarded by mu
}

func (d *disk) set(key string, there bool) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.things[key] = there
}

func (d *disk) has(key string) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.things[key]
}

// collector removes things without references and, if it has a disk, their bytes after the
// commit.
type collector struct{ disk *disk }

func (c collector) Review(ctx context.Context, tx review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	var b sqldb.Batch
	refs := map[string]int64{}
	for _, task := range tasks {
		b.Query(func(row sqldb.Row) error {
			var n int64
			err := row.Scan(&n)
			refs[task.Key] = n
			return err
		}, `SELECT refs FROM things WHERE id = $1`, task.Key)
	}
	if err := tx.Send(ctx, &b); err != nil {
		return nil, err
	}
	b = sqldb.Batch{}
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		n, found := refs[task.Key]
		switch {
		case n > 0:
			verdicts[i] = review.Kept()
			continue
		case found:
			b.Exec(`DELETE FROM things WHERE id = $1 AND refs = 0`, task.Key)
			verdicts[i] = review.Acted()
		default:
			verdicts[i] = review.Kept()
		}
		if c.disk != nil { // also if the row is gone: the bytes may exist
			verdicts[i] = verdicts[i].Then(func(context.Context) error { c.disk.set(task.Key, false); return nil })
		}
	}
	return verdicts, tx.Send(ctx, &b)
}

// setUp creates the tables.
func setUp(t testing.TB, db *sqldb.DB) {
	t.Helper()
	schema := schemaSQLite
	if db.Engine() == sqldb.Postgres {
		schema = schemaPostgres
	}
	// One statement at a time: Send prepares them.
	var b sqldb.Batch
	for _, statement := range splitStatements(schema) {
		b.Exec(statement)
	}
	send(t, db, &b)
}

// splitStatements cuts at the semicolons that end a line outside a body.
func splitStatements(schema string) []string {
	var statements []string
	var body bool
	start := 0
	for at, line := 0, ""; at < len(schema); at += len(line) {
		line = schema[at:]
		if end := strings.IndexByte(line, '\n'); end >= 0 {
			line = line[:end+1]
		}
		text := strings.TrimSpace(line)
		if text == "END;" || text == "END $$;" {
			body = false
		} else if strings.HasSuffix(text, "BEGIN") || strings.HasSuffix(text, "$$") {
			body = true
		}
		if !body && strings.HasSuffix(text, ";") {
			statements = append(statements, schema[start:at+len(line)])
			start = at + len(line)
		}
	}
	return statements
}

// send runs a batch in its own transaction. Goroutines beside the test may use it.
func send(t testing.TB, db *sqldb.DB, b *sqldb.Batch) {
	t.Helper()
	ctx := context.Background()
	if err := transact(ctx, db, func(tx review.Tx) error { return tx.Send(ctx, b) }); err != nil {
		t.Error(err)
	}
}

// transact runs fn in a transaction of the database.
func transact(ctx context.Context, db *sqldb.DB, fn func(review.Tx) error) error {
	tx, err := db.Begin(ctx)
	if err != nil {
		return err
	}
	defer tx.Rollback()
	if err := fn(tx); err != nil {
		return err
	}
	return tx.Commit(ctx)
}

// fixture is a queue on its own database, with a clock that the test moves.
type fixture struct {
	testing.TB
	db  *sqldb.DB
	now time.Time
}

// each runs a test on both engines.
func each(t *testing.T, test func(t *testing.T, f *fixture)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(t, newFixture(t, db)) })
}

func newFixture(t testing.TB, db *sqldb.DB) *fixture {
	t.Helper()
	setUp(t, db)
	return &fixture{TB: t, db: db, now: time.UnixMilli(1_700_000_000_000)}
}

// engine makes an engine without jitter, on plain transactions.
func (f *fixture) engine(q review.Queue, r review.Reviewer[review.Tx], o review.Options) *review.Engine {
	f.Helper()
	return f.engineIn(review.Transactions(f.db), q, r, o)
}

// engineIn is like engine, with another transactor.
func (f *fixture) engineIn(transact review.Transactor[review.Tx], q review.Queue, r review.Reviewer[review.Tx], o review.Options) *review.Engine {
	f.Helper()
	if o.Now == nil {
		o.Now = func() time.Time { return f.now }
	}
	o.Random = func() float64 { return 0 }
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	e, err := review.New(f.db, q, r, transact, o)
	if err != nil {
		f.Fatal(err)
	}
	return e
}

// enqueue puts tasks into the queue, due after a delay.
func (f *fixture) enqueue(after time.Duration, keys ...string) {
	f.Helper()
	e := f.engine(queue, collector{}, review.Options{})
	var b sqldb.Batch
	for _, key := range keys {
		e.Enqueue(&b, key, "test", f.now.Add(after))
	}
	send(f, f.db, &b)
}

func (f *fixture) turn(e *review.Engine) review.Result {
	f.Helper()
	r, err := e.RunOne(f.Context())
	if err != nil {
		f.Fatalf("turn: %v", err)
	}
	return r
}

// dump returns the queue as text; times are seconds from the beginning.
func (f *fixture) dump() string {
	f.Helper()
	rows, err := f.db.Reader().QueryContext(f.Context(), `
SELECT thing, review_after, review_count, event, created_at, coalesce(last_error, '-'), claim_token IS NOT NULL, coalesce(claim_until, 0)
FROM thing_reviews ORDER BY thing`)
	if err != nil {
		f.Fatal(err)
	}
	defer func() { _ = rows.Close() }()
	var out strings.Builder
	for rows.Next() {
		var key, event, lastError string
		var due, created, until int64
		var count int
		var claimed bool
		if err := rows.Scan(&key, &due, &count, &event, &created, &lastError, &claimed, &until); err != nil {
			f.Fatal(err)
		}
		fmt.Fprintf(&out, "%s due %s count %d %s created %s error %s", key, seconds(due), count, event, seconds(created), lastError)
		if claimed {
			fmt.Fprintf(&out, " claimed until %s", seconds(until))
		}
		out.WriteString("\n")
	}
	if err := rows.Err(); err != nil {
		f.Fatal(err)
	}
	return out.String()
}

func seconds(ms int64) string { return fmt.Sprintf("%g", float64(ms-1_700_000_000_000)/1000) }

// want compares the queue with a dump.
func (f *fixture) want(lines ...string) {
	f.Helper()
	want := ""
	for _, line := range lines {
		want += line + "\n"
	}
	if got := f.dump(); got != want {
		f.Errorf("the queue is\n%swant\n%s", got, want)
	}
}

// reviewFunc makes a Reviewer of a function.
type reviewFunc func(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error)

func (f reviewFunc) Review(ctx context.Context, tx review.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	return f(ctx, tx, now, tasks)
}

// by returns a reviewer that has a verdict for each key.
func by(verdict func(task review.Task) review.Verdict) review.Reviewer[review.Tx] {
	return reviewFunc(func(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
		var verdicts []review.Verdict
		for _, task := range tasks {
			verdicts = append(verdicts, verdict(task))
		}
		return verdicts, nil
	})
}
