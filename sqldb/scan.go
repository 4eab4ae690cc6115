package sqldb

import (
	"database/sql"
	"database/sql/driver"
	"encoding/json"
	"fmt"
	"reflect"
	"regexp"
	"strconv"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgtype"
)

// Row is the current row of a query. Both engines convert its columns by the rules of assign.
type Row interface {
	Scan(dest ...any) error
}

// pgRow is the current row of pgx. It implements Row: it takes the values that pgx made, and
// converts them by assign.
type pgRow struct {
	rows  pgx.Rows
	cells []cell
	dest  []any // what the row is scanned into
}

// cell is the destination of one column. It implements sql.Scanner.
type cell struct {
	dest any
	err  error
}

func (c *cell) Scan(value any) error {
	c.err = assign(c.dest, value)
	return c.err
}

func (r *pgRow) Scan(dest ...any) error {
	if len(r.cells) != len(dest) {
		r.cells, r.dest = make([]cell, len(dest)), make([]any, len(dest))
	}
	for i := range dest {
		r.cells[i].dest, r.dest[i] = dest[i], &r.cells[i]
		if pgxAgrees(r.rows, i, dest[i]) {
			r.dest[i] = dest[i]
		}
	}
	err := r.rows.Scan(r.dest...)
	if err == nil {
		return nil
	}
	for i := range r.cells {
		if cause := r.cells[i].err; cause != nil {
			return columnError(i, cause)
		}
	}
	return err // the error of the connection, or of another number of columns
}

// pgxAgrees reports whether pgx converts a column as assign does. It does so faster, without a
// value in between.
func pgxAgrees(rows pgx.Rows, column int, dest any) bool {
	if fields := rows.FieldDescriptions(); column < len(fields) && rows.RawValues()[column] != nil {
		switch dest.(type) {
		case *int64:
			return fields[column].DataTypeOID == pgtype.Int8OID
		case *string:
			return fields[column].DataTypeOID == pgtype.TextOID
		case *[]byte:
			return fields[column].DataTypeOID == pgtype.ByteaOID
		}
	}
	return false
}

func columnError(i int, err error) error { return fmt.Errorf("scan: column %d: %w", i+1, err) }

// assign stores a value that a driver made in what dest points to.
//
// A destination is an integer, a string, a bool, bytes, a named type of one of these, or a
// sql.Scanner. NULL is for bytes and a sql.Scanner. An integer must be in the range of its
// destination. SQLite has no booleans, so on both engines they are the integers 0 and 1. Text
// and bytes can take each other's place, and text can be an integer: PostgreSQL's driver gives
// the sum of bigints as text. The driver made the bytes for this row: they are not copied.
func assign(dest any, value driver.Value) error {
	switch v := value.(type) {
	case int64:
		switch d := dest.(type) {
		case *int64:
			*d = v
			return nil
		case *bool:
			if *d = v == 1; *d || v == 0 {
				return nil
			}
		}
	case string:
		if d, ok := dest.(*string); ok {
			*d = v
			return nil
		}
	case []byte:
		if v == nil {
			value = []byte{} // SQLite's driver makes nil of bytes of length 0
		} else if d, ok := dest.(*[]byte); ok {
			*d = v
			return nil
		}
	case bool:
		value = int64(0)
		if v {
			value = int64(1)
		}
	}
	if d, ok := dest.(sql.Scanner); ok {
		return d.Scan(value)
	}
	if d := reflect.ValueOf(dest); d.Kind() == reflect.Pointer && assignKind(d.Elem(), value) {
		return nil
	}
	if value == nil {
		return fmt.Errorf("NULL is not for a %T", dest)
	}
	return fmt.Errorf("a value of type %T is not for a %T", value, dest)
}

// assignKind is assign for what is not in its list of types.
func assignKind(dest reflect.Value, value driver.Value) bool {
	isBytes := dest.Kind() == reflect.Slice && dest.Type().Elem().Kind() == reflect.Uint8
	switch v := value.(type) {
	case nil:
		if isBytes {
			dest.SetBytes(nil)
			return true
		}
	case int64:
		switch {
		case dest.CanInt() && !dest.OverflowInt(v):
			dest.SetInt(v)
			return true
		case dest.CanUint() && v >= 0 && !dest.OverflowUint(uint64(v)):
			dest.SetUint(uint64(v))
			return true
		case dest.Kind() == reflect.Bool && (v == 0 || v == 1):
			dest.SetBool(v == 1)
			return true
		}
	case string:
		if dest.CanInt() || dest.CanUint() {
			n, err := strconv.ParseInt(v, 10, 64)
			return err == nil && assignKind(dest, n)
		}
		return assignKind(dest, []byte(v))
	case []byte:
		switch {
		case isBytes:
			dest.SetBytes(v)
			return true
		case dest.Kind() == reflect.String:
			dest.SetString(string(v))
			return true
		}
	}
	return false
}

// List is a list as one argument of a statement: an array on PostgreSQL, for
// ANY ($1::text[]) or unnest; a JSON array on SQLite, for json_each.
func List[T ~string | ~int64](e Engine, values []T) any {
	if e == SQLite {
		return JSON(values)
	}
	switch plain := any(values).(type) {
	case []string, []int64:
		return plain
	}
	texts := make([]string, len(values)) // pgx does not know types such as types.UID
	for i, v := range values {
		texts[i] = reflect.ValueOf(v).String()
	}
	return texts
}

// JSON is a list as a JSON array, for statements that read JSON on both engines.
func JSON[T any](values []T) string {
	if len(values) == 0 {
		return "[]"
	}
	text, err := json.Marshal(values)
	if err != nil {
		panic(err) // the values are strings and numbers, which can always be marshalled
	}
	return string(text)
}

// WithLists makes a statement for each engine from one with conditions like "id IN LIST($1, bigint)",
// and tables like "FROM LIST($1, text) AS list", whose column is list.value: the argument is a List,
// of text or bigint.
func WithLists(statement string) map[Engine]string {
	return map[Engine]string{
		SQLite:   fromList.ReplaceAllString(inList.ReplaceAllString(statement, "IN (SELECT value FROM json_each($1))"), "json_each($1) AS $3"),
		Postgres: fromList.ReplaceAllString(inList.ReplaceAllString(statement, "= ANY ($1::$2[])"), "unnest($1::$2[]) AS $3 (value)"),
	}
}

var (
	inList   = regexp.MustCompile(`IN LIST\((\$\d+), (\w+)\)`)
	fromList = regexp.MustCompile(`LIST\((\$\d+), (\w+)\) AS (\w+)`)
)
