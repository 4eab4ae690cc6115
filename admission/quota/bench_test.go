package quota_test

import (
	"log/slog"
	"testing"

	"github.com/exeunt/exeunt/admission/quota"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
	"github.com/exeunt/exeunt/store"
)

// BenchmarkUnlimited is what a write to a namespace without a quota pays, a transaction of
// its own included.
func BenchmarkUnlimited(b *testing.B) {
	db := dbtest.OpenDB(b, sqldb.SQLite)
	st, err := store.Open(b.Context(), store.Options{DB: db, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		b.Fatal(err)
	}
	l, err := quota.New(db, st, kind.NewRegistry(nil), nil)
	if err != nil {
		b.Fatal(err)
	}
	at := store.Locked{Reader: st.Reader(), Revision: 1}
	c := store.Change{Type: store.Created, Key: object.Key{Kind: "pods", Namespace: "n", Name: "a"}, After: []byte(`{}`)}
	b.ReportAllocs()
	for b.Loop() {
		t, err := l.Begin(b.Context(), at)
		if err != nil {
			b.Fatal(err)
		}
		if err := t.Prepare(b.Context(), "n"); err != nil {
			b.Fatal(err)
		}
		if err := t.Check(c); err != nil {
			b.Fatal(err)
		}
		t.Accept(c)
	}
}
