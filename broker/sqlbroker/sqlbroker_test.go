package sqlbroker_test

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/brokertest"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func TestMain(m *testing.M) { dbtest.MainBoth(m) }

func TestSuite(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			brokertest.Run(t, func(t *testing.T) brokertest.Ports {
				r := sqlbroker.New(dbtest.OpenDB(t, engine), nil)
				return brokertest.Ports{Repository: r, Emitter: r, Outbox: func(t *testing.T, id broker.ProvisionedResourceID) []broker.EventType {
					return types(unpublished(t, r, id, "no-sink"))
				}}
			})
		})
	}
}

func unpublished(t *testing.T, r *sqlbroker.Repository, id broker.ProvisionedResourceID, sink string) []sqlbroker.Envelope {
	t.Helper()
	events, err := r.Unpublished(t.Context(), id, sink)
	if err != nil {
		t.Fatal(err)
	}
	return events
}

func types(events []sqlbroker.Envelope) (all []broker.EventType) {
	for _, e := range events {
		all = append(all, e.Type)
	}
	return all
}

var start = time.UnixMilli(1_800_000_000_000).UTC()

func newResource(t *testing.T, id string) broker.ProvisionedResource {
	t.Helper()
	r, err := broker.Restore(broker.State{
		ID: broker.ProvisionedResourceID(id), Project: "shop", Name: id, Deadline: time.Hour,
		Phase: broker.PhasePending, CreatedAt: start, ConvergeStartedAt: start,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestChecks: the database refuses an unknown phase, an unknown event, and a phase that
// contradicts deletion_requested_at.
func TestChecks(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r, sql := sqlbroker.New(db, nil), dbtest.NewSQL(t, db)
		if err := r.Create(t.Context(), newResource(t, "id-1")); err != nil {
			t.Fatal(err)
		}
		const event = `INSERT INTO provisioned_resource_outbox (token, resource_id, event_type, payload, occurred_at) VALUES ('%s', 'id-1', '%s', '{}', 0)`
		for _, kind := range brokertest.EventTypes[1:] {
			if err := sql.Try(func(b *sqldb.Batch) { b.Exec(fmt.Sprintf(event, kind, kind)) }); err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
		for name, statement := range map[string]string{
			"a phase that is none":                  `UPDATE provisioned_resources SET phase = 'Sleeping'`,
			"a phase in lower case":                 `UPDATE provisioned_resources SET phase = 'pending'`,
			"teardown without a request":            `UPDATE provisioned_resources SET phase = 'Deleted'`,
			"a request without teardown":            `UPDATE provisioned_resources SET deletion_requested_at = 1`,
			"an event that is none":                 fmt.Sprintf(event, "t", "broker.ProvisionedResourceRenamed"),
			"an event's token twice":                fmt.Sprintf(event, broker.NewOutboxToken("id-1", broker.EventRequested), broker.EventRequested),
			"published without an event to publish": `INSERT INTO provisioned_resource_published (token, sink) VALUES ('nothing', 'log')`,
		} {
			if err := sql.Try(func(b *sqldb.Batch) { b.Exec(statement) }); err == nil {
				t.Errorf("%s was written", name)
			}
		}
	})
}

// TestOneWriterOfDeletionRequestedAt: exactly one statement in the code writes the column,
// so it changes once, at the transition that owns it.
func TestOneWriterOfDeletionRequestedAt(t *testing.T) {
	writes := regexp.MustCompile(`(?is)\bset\b[^;]*?\bdeletion_requested_at\s*=|insert\s+into\s+provisioned_resources\s*\([^)]*\bdeletion_requested_at\b`)
	var found []string
	err := filepath.WalkDir("../..", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && strings.HasPrefix(entry.Name(), ".") && entry.Name() != ".." && entry.Name() != "." {
			return filepath.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		ast.Inspect(file, func(n ast.Node) bool {
			if lit, ok := n.(*ast.BasicLit); ok && lit.Kind == token.STRING && writes.MatchString(lit.Value) {
				found = append(found, path)
			}
			return true
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(found) != 1 || filepath.Base(filepath.Dir(found[0])) != "sqlbroker" {
		t.Errorf("statements that write deletion_requested_at: %v; want exactly one, here", found)
	}
}

// TestRound: one round at a time, until it ends or its lease expires.
func TestRound(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := sqlbroker.New(db, func() time.Time { return start })
		if _, err := r.BeginRound(t.Context(), "id-1", start, start.Add(time.Minute)); !errors.Is(err, broker.ErrProvisionedResourceNotFound) {
			t.Errorf("a round of a missing resource: %v", err)
		}
		if err := r.Create(t.Context(), newResource(t, "id-1")); err != nil {
			t.Fatal(err)
		}
		begin := func(now time.Time) (sqlbroker.Round, error) {
			return r.BeginRound(t.Context(), "id-1", now, now.Add(time.Minute))
		}
		first, err := begin(start)
		if err != nil || !first.Since.Equal(start) || first.Resource.ID() != "id-1" {
			t.Fatalf("first round: %+v, %v", first, err)
		}
		if _, err := begin(start.Add(59 * time.Second)); !errors.Is(err, sqlbroker.ErrRoundTaken) {
			t.Errorf("a second round beside the first: %v", err)
		}
		second, err := begin(start.Add(time.Minute))
		if err != nil {
			t.Fatalf("after the first round's lease: %v", err)
		}
		// The first round ends late: the second keeps its lease.
		if err := r.EndRound(t.Context(), first); err != nil {
			t.Fatal(err)
		}
		if _, err := begin(start.Add(time.Minute)); !errors.Is(err, sqlbroker.ErrRoundTaken) {
			t.Errorf("a third round beside the second: %v", err)
		}
		if err := r.EndRound(t.Context(), second); err != nil {
			t.Fatal(err)
		}
		if _, err := begin(start.Add(time.Minute)); err != nil {
			t.Errorf("after the second's end: %v", err)
		}
	})
}

// TestTakeOver: the round of a dead process can be taken over at once, that of a live
// process when its lease expires.
func TestTakeOver(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			database := dbtest.Open(t, engine)
			killed, next := dbtest.Connect(t, database), dbtest.Connect(t, database)
			leave := dbtest.Appear(t, killed)
			dbtest.Appear(t, next)
			if err := sqlbroker.New(killed, nil).Create(t.Context(), newResource(t, "id-1")); err != nil {
				t.Fatal(err)
			}
			begin := func(db *sqldb.DB) error {
				_, err := sqlbroker.New(db, nil).BeginRound(t.Context(), "id-1", start, start.Add(time.Minute))
				return err
			}
			if err := begin(killed); err != nil {
				t.Fatal(err)
			}
			if engine == sqldb.Postgres { // SQLite has one process at a time
				if err := begin(next); !errors.Is(err, sqlbroker.ErrRoundTaken) {
					t.Errorf("beside the round of a live process: %v", err)
				}
			}
			leave()
			if err := begin(next); err != nil {
				t.Errorf("after the round of a dead process: %v", err)
			}
			if err := begin(next); !errors.Is(err, sqlbroker.ErrRoundTaken) {
				t.Errorf("beside a round of its own: %v", err)
			}
		})
	}
}

// TestMakeDue: a row in the queue becomes due and loses its claim, so the reviewer
// must look again; a resource without a row gets none.
func TestMakeDue(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := sqlbroker.New(db, nil)
		if err := r.Create(t.Context(), newResource(t, "id-1")); err != nil {
			t.Fatal(err)
		}
		dbtest.NewSQL(t, db).Exec("UPDATE provisioned_resources SET xr_kind = 'XNode', provider_config_kind = 'ProviderConfig'")
		kinds, err := r.KindsInUse(t.Context())
		if err != nil || len(kinds) != 2 {
			t.Errorf("kinds in use: %v, %v", kinds, err)
		}
		for _, c := range []struct {
			name, set, want string
			due             int64
		}{
			{"due later", "review_after = 9000, claim_token = NULL", "5000 substrate_changed -", 5000},
			{"due before", "review_after = 1000, claim_token = NULL", "1000 was -", 5000},
			{"under review", "review_after = 1000, claim_token = 'x'", "1000 substrate_changed -", 5000},
		} {
			dbtest.NewSQL(t, db).Exec("UPDATE provisioned_resource_reviews SET event = 'was', " + c.set)
			for _, id := range []broker.ProvisionedResourceID{"id-1", "id-2"} {
				if err := r.MakeDue(t.Context(), id, time.UnixMilli(c.due)); err != nil {
					t.Fatal(err)
				}
			}
			var got string
			if _, err := db.Row(t.Context(), `SELECT CAST(min(review_after) AS text) || ' ' || min(event) || ' ' || coalesce(min(claim_token), '-')
				FROM provisioned_resource_reviews`, nil, &got); err != nil || got != c.want {
				t.Errorf("%s: %s, %v; want %s", c.name, got, err, c.want)
			}
		}
	})
}

// TestForget: the row of a Deleted resource is removed after every sink has all its
// events.
func TestForget(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := sqlbroker.New(db, nil)
		forget := func(want bool, when string) {
			t.Helper()
			if gone, err := r.Forget(t.Context(), "id-1"); err != nil || gone != want {
				t.Errorf("%s: gone is %v, %v", when, gone, err)
			}
		}
		forget(true, "of nothing")
		resource := newResource(t, "id-1")
		if err := r.Create(t.Context(), resource); err != nil {
			t.Fatal(err)
		}
		forget(false, "alive")
		resource, _ = resource.RequestDeletion(start)
		if err := r.RecordDeletionIntent(t.Context(), resource); err != nil {
			t.Fatal(err)
		}
		state := resource.State()
		state.Phase = broker.PhaseDeleted
		deleted, err := broker.Restore(state)
		if err != nil {
			t.Fatal(err)
		}
		if err := r.UpdatePhase(t.Context(), broker.PhaseDeregistering, deleted); err != nil {
			t.Fatal(err)
		}
		forget(false, "with events to be published")
		for _, e := range unpublished(t, r, "id-1", "log") {
			if err := r.MarkPublished(t.Context(), e.Token, "log"); err != nil {
				t.Fatal(err)
			}
		}
		dbtest.NewSQL(t, db).Exec(`DELETE FROM provisioned_resource_outbox_reviews`)
		forget(true, "with nothing left to do")
		if _, err := r.Get(t.Context(), "id-1"); !errors.Is(err, broker.ErrProvisionedResourceNotFound) {
			t.Errorf("after its row was removed: %v", err)
		}
		if events := unpublished(t, r, "id-1", "no-sink"); len(events) != 0 {
			t.Errorf("events left: %v", events)
		}
	})
}

// TestPublished: each sink has its own position in the outbox.
func TestPublished(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := sqlbroker.New(db, nil)
		resource := newResource(t, "id-1")
		if err := r.Create(t.Context(), resource); err != nil {
			t.Fatal(err)
		}
		resource, _ = resource.RequestDeletion(start)
		if err := r.RecordDeletionIntent(t.Context(), resource); err != nil {
			t.Fatal(err)
		}
		first := unpublished(t, r, "id-1", "log")[0]
		for range 2 { // may be repeated
			if err := r.MarkPublished(t.Context(), first.Token, "log"); err != nil {
				t.Fatal(err)
			}
		}
		if got := types(unpublished(t, r, "id-1", "log")); len(got) != 1 || got[0] != broker.EventDeleting {
			t.Errorf("left for log: %v", got)
		}
		if got := types(unpublished(t, r, "id-1", "webhook")); len(got) != 2 {
			t.Errorf("left for webhook: %v", got)
		}
		if got := string(first.Payload); !strings.Contains(got, `"eventID":"broker.ProvisionedResourceRequested/id-1"`) {
			t.Errorf("payload %s", got)
		}
	})
}
