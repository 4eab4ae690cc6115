package sqldb_test

import (
	"reflect"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
)

func TestList(t *testing.T) {
	type uid string
	for _, c := range []struct{ got, want any }{
		{sqldb.List(sqldb.SQLite, []string{"a", `"<`}), `["a","\"\u003c"]`},
		{sqldb.List(sqldb.SQLite, []int64{1, -2}), `[1,-2]`},
		{sqldb.List(sqldb.SQLite, []uid(nil)), `[]`},
		{sqldb.List(sqldb.Postgres, []string{"a"}), []string{"a"}},
		{sqldb.List(sqldb.Postgres, []int64{1}), []int64{1}},
		{sqldb.List(sqldb.Postgres, []uid{"a"}), []string{"a"}},
		{sqldb.JSON([][2]int64{{1, 2}}), `[[1,2]]`},
	} {
		if !reflect.DeepEqual(c.got, c.want) {
			t.Errorf("got %#v, want %#v", c.got, c.want)
		}
	}
}
