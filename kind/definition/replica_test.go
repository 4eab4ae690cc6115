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

// replicas are two controllers on one database: with two stores on PostgreSQL, with one store
// on SQLite.
func replicas(t *testing.T, engine sqldb.Engine) [2]*replica {
	t.Helper()
	database := dbtest.Open(t, engine)
	one := newWorld(t, dbtest.Connect(t, database))
	if engine == sqldb.SQLite {
		return [2]*replica{one, newReplica(t, one.store).run()}
	}
	return [2]*replica{one, newReplica(t, openStore(t, dbtest.Connect(t, database))).run()}
}

// TestReplicasAgree creates two definitions of the same kind concurrently, one through each
// replica. Exactly one is established, and both replicas serve it.
func TestReplicasAgree(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			both := replicas(t, engine)
			for round := range 10 {
				group := fmt.Sprintf("round%d.dev", round)
				plurals := [2]string{"widgets", "gadgets"}
				var creators sync.WaitGroup
				for i, r := range both {
					creators.Go(func() {
						if code, body := r.call("POST", crds, definitionOf(group, plurals[i], "Thing", "")); code != http.StatusCreated {
							t.Errorf("create answered %d %s", code, body)
						}
					})
				}
				creators.Wait()
				r := both[0]
				var established []string
				dbtest.Until(r.t, "both have a verdict", func() error {
					established = nil
					for _, plural := range plurals {
						all := r.conditions(plural + "." + group)
						if all["Established"] == "" {
							return fmt.Errorf("%s has conditions %v", plural, all)
						}
						if all["Established"] == "True" {
							established = append(established, plural)
						}
					}
					if len(established) == 0 {
						return fmt.Errorf("neither is established")
					}
					return nil
				})
				if len(established) != 1 {
					t.Fatalf("round %d: both rivals are established", round)
				}
				for _, r := range both {
					for _, plural := range plurals {
						want := http.StatusNotFound
						if plural == established[0] {
							want = http.StatusOK
						}
						r.answers(want, fmt.Sprintf("/apis/%s/v1/%s", group, plural))
					}
				}
			}
		})
	}
}

// TestReplicasClean: both replicas delete the objects, without errors from each other.
func TestReplicasClean(t *testing.T) {
	for _, engine := range dbtest.EnginesOf(t) {
		t.Run(string(engine), func(t *testing.T) {
			both := replicas(t, engine)
			both[0].do(http.StatusCreated, "POST", crds, widget("widgets", "Widget", ""))
			both[0].answers(http.StatusOK, widgets)
			both[1].answers(http.StatusOK, widgets)
			for i := range 20 {
				both[i%2].do(http.StatusCreated, "POST", widgets, widgetNamed(fmt.Sprintf("w-%d", i), strings.Repeat(held, i%2)))
			}
			both[1].do(http.StatusOK, "DELETE", crds+"/widgets.test.dev", "")
			for i := 1; i < 20; i += 2 {
				both[i/2%2].release(fmt.Sprintf("%s/w-%d", widgets, i))
			}
			for _, r := range both {
				r.answers(http.StatusNotFound, crds+"/widgets.test.dev")
				r.answers(http.StatusNotFound, widgets)
			}
			if left := stored(t, both[0].store, "widgets.test.dev"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestOrderDecides: the definition that was written first has the name, in whatever order
// a replica reads them.
func TestOrderDecides(t *testing.T) {
	r := newWorld(t, dbtest.OpenDB(t, sqldb.SQLite))
	r.stop()
	// The order of a map is random: without the rule, half of the runs would fail.
	const groups = 20
	for i := range groups {
		group := fmt.Sprintf("group%d.dev", i)
		r.do(http.StatusCreated, "POST", crds, definitionOf(group, "zebras", "Thing", ""))
		r.do(http.StatusCreated, "POST", crds, definitionOf(group, "apes", "Thing", ""))
	}
	c := newReplica(t, r.store).controller
	if !c.settle(t.Context()) {
		t.Fatal("not settled")
	}
	for i := range groups {
		first, second := c.known[fmt.Sprintf("zebras.group%d.dev", i)], c.known[fmt.Sprintf("apes.group%d.dev", i)]
		if first.crd.Status.AcceptedNames.Kind != "Thing" || second.crd.Status.AcceptedNames.Kind != "" {
			t.Errorf("group %d: the second one got the name", i)
		}
	}
}
