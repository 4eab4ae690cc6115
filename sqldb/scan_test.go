package sqldb_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

type (
	namedInt    int
	namedUint8  uint8
	namedString string
	namedBool   bool
	namedBytes  []byte
)

// readWays are all ways to read a row.
func readWays(db *sqldb.DB) map[string]func(ctx context.Context, statement string, dest ...any) error {
	batch := func(statement string, dest []any) *sqldb.Batch {
		var b sqldb.Batch
		b.Query(func(row sqldb.Row) error { return row.Scan(dest...) }, statement)
		return &b
	}
	return map[string]func(ctx context.Context, statement string, dest ...any) error{
		"Tx": func(ctx context.Context, statement string, dest ...any) error {
			return db.Transact(ctx, func(tx *sqldb.Tx) error { return tx.Send(ctx, batch(statement, dest)) })
		},
		"Row": func(ctx context.Context, statement string, dest ...any) error {
			found, err := db.Row(ctx, statement, nil, dest...)
			if err == nil && !found {
				err = errors.New("no row")
			}
			return err
		},
		"Send": func(ctx context.Context, statement string, dest ...any) error {
			return db.Send(ctx, batch(statement, dest))
		},
		"Snapshot": func(ctx context.Context, statement string, dest ...any) error {
			tx, err := db.Snapshot(ctx)
			if err != nil {
				return err
			}
			defer tx.Close()
			return tx.Send(ctx, batch(statement, dest))
		},
	}
}

// TestScan: every way to read has the same value or the same error, on both engines, for
// destinations of every kind, named types among them.
func TestScan(t *testing.T) {
	columns := []struct{ name, sqlite, postgres string }{
		{"1", "1", "CAST(1 AS bigint)"},
		{"300", "300", "CAST(300 AS bigint)"},
		{"-7", "-7", "CAST(-7 AS integer)"},
		{"true", "TRUE", "TRUE"},
		{"text", "'7'", "CAST('7' AS text)"},
		{"no text", "''", "CAST('' AS text)"},
		{"bytes", "x'01ff'", `CAST('\x01ff' AS bytea)`},
		{"no bytes", "x''", `CAST('' AS bytea)`},
		{"NULL", "NULL", "CAST(NULL AS bigint)"},
		{"NULL text", "NULL", "CAST(NULL AS text)"},
		{"NULL bytes", "NULL", "CAST(NULL AS bytea)"},
	}
	tests := []struct {
		dest func() any
		want map[string]any // by column; an error for the others
	}{
		{func() any { return new(int64) }, map[string]any{"1": int64(1), "300": int64(300), "-7": int64(-7), "true": int64(1), "text": int64(7)}},
		{func() any { return new(int) }, map[string]any{"1": 1, "300": 300, "-7": -7, "true": 1, "text": 7}},
		{func() any { return new(namedInt) }, map[string]any{"1": namedInt(1), "300": namedInt(300), "-7": namedInt(-7), "true": namedInt(1), "text": namedInt(7)}},
		{func() any { return new(uint64) }, map[string]any{"1": uint64(1), "300": uint64(300), "true": uint64(1), "text": uint64(7)}},
		{func() any { return new(int8) }, map[string]any{"1": int8(1), "-7": int8(-7), "true": int8(1), "text": int8(7)}},
		{func() any { return new(namedUint8) }, map[string]any{"1": namedUint8(1), "true": namedUint8(1), "text": namedUint8(7)}},
		{func() any { return new(bool) }, map[string]any{"1": true, "true": true}},
		{func() any { return new(namedBool) }, map[string]any{"1": namedBool(true), "true": namedBool(true)}},
		{func() any { return new(string) }, map[string]any{"text": "7", "no text": "", "bytes": "\x01\xff", "no bytes": ""}},
		{func() any { return new(namedString) }, map[string]any{"text": namedString("7"), "no text": namedString(""), "bytes": namedString("\x01\xff"), "no bytes": namedString("")}},
		{func() any { return new([]byte) }, map[string]any{"text": []byte("7"), "no text": []byte{}, "bytes": []byte{1, 255}, "no bytes": []byte{},
			"NULL": []byte(nil), "NULL text": []byte(nil), "NULL bytes": []byte(nil)}},
		{func() any { return new(namedBytes) }, map[string]any{"text": namedBytes("7"), "no text": namedBytes{}, "bytes": namedBytes{1, 255}, "no bytes": namedBytes{},
			"NULL": namedBytes(nil), "NULL text": namedBytes(nil), "NULL bytes": namedBytes(nil)}},
		{func() any { return new(sql.NullInt64) }, map[string]any{"1": sql.NullInt64{Int64: 1, Valid: true}, "300": sql.NullInt64{Int64: 300, Valid: true},
			"-7": sql.NullInt64{Int64: -7, Valid: true}, "true": sql.NullInt64{Int64: 1, Valid: true}, "text": sql.NullInt64{Int64: 7, Valid: true},
			"NULL": sql.NullInt64{}, "NULL text": sql.NullInt64{}, "NULL bytes": sql.NullInt64{}}},
		{func() any { return new(*string) }, nil},
		{func() any { return new(struct{}) }, nil},
		{func() any { return "not a pointer" }, nil},
		{func() any { return nil }, nil},
	}
	said := map[string]string{} // the error of the first way, by case
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		for way, read := range readWays(db) {
			for _, column := range columns {
				value := column.sqlite
				if db.Engine() == sqldb.Postgres {
					value = column.postgres
				}
				for _, test := range tests {
					dest := test.dest()
					name := fmt.Sprintf("%s into a %T", column.name, dest)
					err := read(t.Context(), "SELECT 'first', "+value, new(string), dest)
					want, fits := test.want[column.name]
					switch {
					case fits && err != nil:
						t.Errorf("%s: %s: %v", way, name, err)
					case fits && !reflect.DeepEqual(reflect.ValueOf(dest).Elem().Interface(), want):
						t.Errorf("%s: %s: got %#v, want %#v", way, name, reflect.ValueOf(dest).Elem(), want)
					case !fits && err == nil:
						t.Errorf("%s: %s: got %#v, want an error", way, name, reflect.ValueOf(dest).Elem())
					case !fits && !strings.HasPrefix(err.Error(), "scan: column 2: "):
						t.Errorf("%s: %s: %v", way, name, err)
					case !fits && said[name] == "":
						said[name] = err.Error()
					case !fits && said[name] != err.Error():
						t.Errorf("%s: %s: %v, elsewhere %s", way, name, err, said[name])
					}
				}
			}
			var sum namedInt
			if err := read(t.Context(), "SELECT sum(n) FROM (SELECT CAST(7 AS bigint) AS n) AS one", &sum); err != nil || sum != 7 {
				t.Errorf("%s: a sum: %d, %v", way, sum, err)
			}
			if err := read(t.Context(), "SELECT 1, 2", new(int)); err == nil {
				t.Errorf("%s: two columns fit into one destination", way)
			}
		}
	})
}

// TestScanKeepsBytes: bytes and text of a row stay as they are when the next row is read.
func TestScanKeepsBytes(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		statement := "SELECT x'0102', 'ab' UNION ALL SELECT x'0304', 'cd' ORDER BY 1"
		if db.Engine() == sqldb.Postgres {
			statement = `SELECT '\x0102'::bytea, 'ab' UNION ALL SELECT '\x0304'::bytea, 'cd' ORDER BY 1`
		}
		var got []string
		var b sqldb.Batch
		var found [][]byte
		b.Query(func(row sqldb.Row) error {
			var data, text []byte
			err := row.Scan(&data, &text)
			found = append(found, data, text)
			return err
		}, statement)
		if err := errors.Join(db.Transact(t.Context(), func(tx *sqldb.Tx) error { return tx.Send(t.Context(), &b) }), db.Send(t.Context(), &b)); err != nil {
			t.Fatal(err)
		}
		for _, data := range found {
			got = append(got, fmt.Sprintf("%x", data))
		}
		if want := "0102 6162 0304 6364 0102 6162 0304 6364"; strings.Join(got, " ") != want {
			t.Errorf("got %s, want %s", got, want)
		}
	})
}
