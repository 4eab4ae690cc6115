package sqldb

import (
	"encoding/json"
	"reflect"
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
