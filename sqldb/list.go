package sqldb

import (
	"encoding/json"
	"reflect"
	"regexp"
)

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

// WithLists makes a statement for each engine from one with conditions like "id IN LIST($1, bigint)":
// the argument is a List, of text or bigint.
func WithLists(statement string) map[Engine]string {
	return map[Engine]string{
		SQLite:   inList.ReplaceAllString(statement, "IN (SELECT value FROM json_each($1))"),
		Postgres: inList.ReplaceAllString(statement, "= ANY ($1::$2[])"),
	}
}

var inList = regexp.MustCompile(`IN LIST\((\$\d+), (\w+)\)`)
