package collect

import (
	"log/slog"
	"testing"
	"time"

	"github.com/exeunt/exeunt/registry/blobstore"
	"github.com/exeunt/exeunt/registry/internal/statement"
	"github.com/exeunt/exeunt/registry/registrytest"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestLookUps: the reviews of an image need as many look-ups in a small registry as in one that is
// six times larger: first that of its manifest, then those of its blobs, one of which others use.
func TestLookUps(t *testing.T) {
	const each = 4 // one claim takes all their blobs, so no later one passes over the entries of removed rows
	store, err := blobstore.OpenDir(registrytest.Dir(t))
	if err != nil {
		t.Fatal(err)
	}
	var filled registrytest.Filled
	untag := func(db *sqldb.DB) {
		dbtest.NewSQL(t, db).Transact(func(b *sqldb.Batch) {
			for i := range each {
				b.Exec(statement.DeleteTag, filled.Large(), filled.Tag(filled.Image(8*i+4))) // no list has it
			}
		})
	}
	dbtest.Growth{
		Few: 10_000, Many: 60_000, Each: each, Operations: []string{"review manifest", "review blobs"},
		Fill: func(db *sqldb.DB, n int) { filled = registrytest.Fill(t, db, n, n/5) },
		Prepare: func(db *sqldb.DB, name string) {
			if name == "review manifest" {
				untag(db)
			}
		},
		Run: func(db *sqldb.DB, name string) {
			c, err := New(db, store, Options{
				Now: func() time.Time { return time.Now().Add(25 * time.Hour) }, Logger: slog.New(slog.DiscardHandler),
			})
			if err != nil {
				t.Fatal(err)
			}
			switch name {
			case "review manifest":
				reviewAll(t, c.manifests, each)
			case "review blobs":
				reviewAll(t, c.blobRows, 9*each) // the review of one comes later
			}
		},
	}.Check(t)
}

// reviewAll runs an engine until it is idle. It must delete a number of subjects.
func reviewAll(t *testing.T, e *review.Engine, want int) {
	t.Helper()
	for deleted := 0; ; {
		r, err := e.RunOne(t.Context())
		if err != nil || r.Failed > 0 {
			t.Fatal(r, err)
		}
		if deleted += r.Acted; r.Claimed == 0 {
			if deleted != want {
				t.Errorf("%d were deleted, not %d", deleted, want)
			}
			return
		}
	}
}
