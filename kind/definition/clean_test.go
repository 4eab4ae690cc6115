package definition

import (
	"fmt"
	"net/http"
	"strings"
	"sync"
	"testing"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

func widgetNamed(name, more string) string {
	return fmt.Sprintf(`{"apiVersion":"test.dev/v1","kind":"Widget","metadata":{"name":%q%s}}`, name, more)
}

const held = `,"finalizers":["test.dev/hold"]`

// release removes an object's finalizer.
func (r *replica) release(path string) {
	r.t.Helper()
	r.do(http.StatusOK, "PATCH", path, `{"metadata":{"finalizers":null}}`)
}

// TestDeletion: all objects of the kind are deleted, the definition waits for those with
// finalizers, and is removed last.
func TestDeletion(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
		r.answers(http.StatusOK, widgets)
		r.do(http.StatusCreated, "POST", widgets, widgetNamed("free", ""))
		r.do(http.StatusCreated, "POST", widgets, widgetNamed("held", held))

		r.do(http.StatusOK, "DELETE", crds+"/widgets.test.dev", "")
		r.answers(http.StatusNotFound, widgets+"/free")
		r.has("widgets.test.dev", "Terminating", "True")
		// The object with a finalizer still exists, is served, and is being deleted.
		dbtest.Until(r.t, "the held object is being deleted", func() error {
			if code, body := r.call("GET", widgets+"/held", ""); code != http.StatusOK || !strings.Contains(body, "deletionTimestamp") {
				return fmt.Errorf("%d %s", code, body)
			}
			return nil
		})
		r.do(http.StatusForbidden, "POST", widgets, widgetNamed("late", ""))

		r.release(widgets + "/held")
		r.answers(http.StatusNotFound, crds+"/widgets.test.dev")
		r.answers(http.StatusNotFound, widgets)
		if left := stored(t, r.store, "widgets.test.dev"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// TestDeletionWaitsForOtherFinalizers: the definition has another finalizer besides ours.
func TestDeletionWaitsForOtherFinalizers(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		body := strings.Replace(widget("widgets", "Widget", ""), `"metadata":{`, `"metadata":{"finalizers":["test.dev/hold"],`, 1)
		r.do(http.StatusCreated, "POST", crds, body)
		r.answers(http.StatusOK, widgets)
		r.do(http.StatusOK, "DELETE", crds+"/widgets.test.dev", "")
		dbtest.Until(r.t, "our finalizer is gone", func() error {
			if _, body := r.call("GET", crds+"/widgets.test.dev", ""); strings.Contains(body, cleanupFinalizer) {
				return fmt.Errorf("%s", body)
			}
			return nil
		})
		r.do(http.StatusOK, "GET", crds+"/widgets.test.dev", "")
		r.release(crds + "/widgets.test.dev")
		r.answers(http.StatusNotFound, widgets)
	})
}

// TestDeletionGoesOnAfterRestart stops the controller while an object's finalizer delays the
// definition.
func TestDeletionGoesOnAfterRestart(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
		r.answers(http.StatusOK, widgets)
		r.do(http.StatusCreated, "POST", widgets, widgetNamed("held", held))
		r.do(http.StatusOK, "DELETE", crds+"/widgets.test.dev", "")
		r.has("widgets.test.dev", "Terminating", "True")
		r.stop()

		next := newReplica(t, r.store)
		next.do(http.StatusForbidden, "POST", widgets, widgetNamed("late", ""))
		next.run()
		next.release(widgets + "/held")
		next.answers(http.StatusNotFound, crds+"/widgets.test.dev")
		next.answers(http.StatusNotFound, widgets)
	})
}

// TestRestartBeforeAnythingWasDone: the definition was deleted while no controller ran.
func TestRestartBeforeAnythingWasDone(t *testing.T) {
	dbtest.Each(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
		r.answers(http.StatusOK, widgets)
		r.do(http.StatusCreated, "POST", widgets, widgetNamed("a", ""))
		r.stop()
		r.do(http.StatusOK, "DELETE", crds+"/widgets.test.dev", "")
		newReplica(t, r.store).run().answers(http.StatusNotFound, crds+"/widgets.test.dev")
		if left := stored(t, r.store, "widgets.test.dev"); len(left) > 0 {
			t.Errorf("left behind: %v", left)
		}
	})
}

// TestCreateRacesWithDeletion: a create during the deletion of the definition is refused, or
// its object is deleted; no object outlives the definition.
func TestCreateRacesWithDeletion(t *testing.T) {
	dbtest.Both(t, func(t *testing.T, db *sqldb.DB) {
		r := newWorld(t, db)
		for round := range 5 {
			r.do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
			r.answers(http.StatusOK, widgets)
			var creators sync.WaitGroup
			begun := make(chan struct{}, 4)
			for c := range 4 {
				creators.Go(func() {
					for i := 0; ; i++ {
						code, body := r.call("POST", widgets, widgetNamed(fmt.Sprintf("w-%d-%d", c, i), ""))
						if code != http.StatusCreated {
							if code != http.StatusForbidden && code != http.StatusNotFound {
								t.Errorf("create answered %d %s", code, body)
							}
							return
						}
						if i == 0 {
							begun <- struct{}{}
						}
					}
				})
			}
			for range 4 {
				<-begun
			}
			r.do(http.StatusOK, "DELETE", crds+"/widgets.test.dev", "")
			creators.Wait()
			r.answers(http.StatusNotFound, crds+"/widgets.test.dev")
			r.answers(http.StatusNotFound, widgets)
			if left := stored(t, r.store, "widgets.test.dev"); len(left) > 0 {
				t.Fatalf("round %d: %d objects outlived their definition", round, len(left))
			}
		}
	})
}
