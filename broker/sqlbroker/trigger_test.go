package sqlbroker_test

import (
	"fmt"
	"testing"

	"github.com/exeunt/exeunt/broker"
	"github.com/exeunt/exeunt/broker/sqlbroker"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

const declaredKind = "provisionedresources.provisioning.exeunt.dev"

// triggers is a database whose queues a test reads after each write.
type triggers struct {
	*testing.T
	dbtest.SQL
}

// queued expects one unclaimed row in a queue, with its event, and empties the queue; want
// "" expects no row.
func (w triggers) queued(table, key, id, want string) {
	w.Helper()
	var got string
	found, err := w.DB.Row(w.Context(), fmt.Sprintf(`SELECT event FROM %s WHERE %s = $1 AND claim_token IS NULL`, table, key), []any{id}, &got)
	if err != nil {
		w.Fatal(err)
	}
	if found != (want != "") || got != want {
		w.Errorf("%s has %q for %s, want %q", table, got, id, want)
	}
	w.Exec("DELETE FROM " + table)
}

func (w triggers) loop(id, want string) {
	w.Helper()
	w.queued("provisioned_resource_reviews", "id", id, want)
}

func (w triggers) publisher(id, want string) {
	w.Helper()
	w.queued("provisioned_resource_outbox_reviews", "resource_id", id, want)
}

func eachTrigger(t *testing.T, test func(w triggers)) {
	t.Helper()
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) { test(triggers{t, dbtest.NewSQL(t, db)}) })
}

func (w triggers) object(kind, uid string) {
	w.Helper()
	w.Exec(`INSERT INTO objects (id, uid, kind, namespace, name, revision) VALUES (7, $1, $2, 'shop', 'web', 7)`, uid, kind)
}

func TestObjectsDeclaredTrack(t *testing.T) {
	eachTrigger(t, func(w triggers) {
		w.object(declaredKind, "u1")
		w.loop("u1", "declared")
	})
}

func TestObjectsUndeclaredTrack(t *testing.T) {
	eachTrigger(t, func(w triggers) {
		w.object(declaredKind, "u1")
		w.loop("u1", "declared")
		w.Exec(`UPDATE objects SET revision = 8`) // a status
		w.loop("u1", "")
		w.Exec(`UPDATE objects SET deletion_time = 1, revision = 9`)
		w.loop("u1", "deletion_requested")
		w.Exec(`UPDATE objects SET deletion_time = 1, revision = 10`) // a status again
		w.loop("u1", "")
	})
}

func TestObjectsDeclarationRemovedTrack(t *testing.T) {
	eachTrigger(t, func(w triggers) {
		w.object(declaredKind, "u1")
		w.loop("u1", "declared")
		w.Exec(`DELETE FROM objects`)
		w.loop("u1", "declaration_removed")
	})
}

func TestOtherObjectsAreNotTracked(t *testing.T) {
	eachTrigger(t, func(w triggers) {
		w.object("configmaps", "u1")
		w.Exec(`UPDATE objects SET deletion_time = 1`)
		w.Exec(`DELETE FROM objects`)
		w.loop("u1", "")
	})
}

func TestProvisionedResourcesTrack(t *testing.T) {
	eachTrigger(t, func(w triggers) {
		r := sqlbroker.New(w.DB, nil)
		resource := newResource(w.T, "id-1")
		if err := r.Create(w.Context(), resource); err != nil {
			w.Fatal(err)
		}
		w.loop("id-1", "created")
		w.publisher("id-1", "emitted")
		if err := r.BindToken(w.Context(), "id-1", "", "t1"); err != nil {
			w.Fatal(err)
		}
		w.loop("id-1", "") // a round is running
		state := resource.State()
		state.Phase = broker.PhaseProvisioning
		next, err := broker.Restore(state)
		if err != nil {
			w.Fatal(err)
		}
		if err := r.UpdatePhase(w.Context(), broker.PhasePending, next); err != nil {
			w.Fatal(err)
		}
		w.loop("id-1", "phase_changed")
		w.publisher("id-1", "")
		next, _ = next.RequestDeletion(start)
		if err := r.RecordDeletionIntent(w.Context(), next); err != nil {
			w.Fatal(err)
		}
		w.loop("id-1", "phase_changed")
		w.publisher("id-1", "emitted")
		if err := r.RecordDeletionIntent(w.Context(), next); err != nil {
			w.Fatal(err)
		}
		w.loop("id-1", "")
		w.publisher("id-1", "")
	})
}

// TestTrackTakesTheClaim: a task that is enqueued while it is under review is reviewed
// again.
func TestTrackTakesTheClaim(t *testing.T) {
	eachTrigger(t, func(w triggers) {
		w.object(declaredKind, "u1")
		w.Exec(`UPDATE provisioned_resource_reviews SET claim_token = 'x', claim_until = 9, review_after = 5, review_count = 3`)
		w.Exec(`DELETE FROM objects`)
		var count, after int64
		if _, err := w.DB.Row(w.Context(), `SELECT review_count, review_after FROM provisioned_resource_reviews`, nil, &count, &after); err != nil || count != 3 || after != 0 {
			w.Errorf("failures %d, due %d, %v; want 3, 0", count, after, err)
		}
		w.loop("u1", "declaration_removed")
	})
}
