package wire_test

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// own creates an owner and a dependent, and deletes the owner in the background.
func own(t *testing.T, s *harness.Server) {
	t.Helper()
	play(t, s, []step{
		{name: "owner", method: "POST", path: configMaps, body: configMap("owner", ""), code: 201, save: map[string]string{"uid": "metadata.uid"}},
		{name: "dependent", method: "POST", path: configMaps, code: 201,
			body: configMap("dependent", `"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap","name":"owner","uid":"{uid}"}]`)},
		{name: "delete", method: "DELETE", path: configMaps + "/owner", body: options(`"propagationPolicy":"Background"`), code: 200},
	})
}

// TestWithoutCollector: a server with --enable-garbage-collector=false keeps a dependent
// without owner, also after a restart and past the time at which a collector scans. A
// server with the collector removes it.
func TestWithoutCollector(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			s := harness.Start(t, engine, "--enable-garbage-collector=false")
			own(t, s)
			for round := range 2 {
				for end := time.Now().Add(3 * time.Second); time.Now().Before(end); time.Sleep(100 * time.Millisecond) {
					if a := s.HTTP().Do(t, harness.Request{Method: "GET", Path: configMaps + "/dependent"}); a.Code != 200 {
						t.Fatalf("round %d: the dependent answers %d: a collector runs", round, a.Code)
					}
				}
				s.Restart()
			}
		})
		t.Run(engine+" with it", func(t *testing.T) {
			s := harness.Start(t, engine)
			own(t, s)
			harness.Until(t, "the dependent to be collected", func() error {
				if a := s.HTTP().Do(t, harness.Request{Method: "GET", Path: configMaps + "/dependent"}); a.Code != 404 {
					return fmt.Errorf("it answers %d", a.Code)
				}
				return nil
			})
		})
	}
}

// TestOwnerOfUnknownKind: a dependent whose owner has an unknown kind stays, and an Event
// says why. When the definition exists, the collector reviews the dependent and removes
// it.
func TestOwnerOfUnknownKind(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		play(t, s, []step{{name: "dependent", method: "POST", path: configMaps, code: 201,
			body: configMap("dependent", `"ownerReferences":[{"apiVersion":"example.org/v1","kind":"Gadget","name":"g","uid":"7"}]`)}})
		harness.Until(t, "the Event", func() error {
			if a := h.Get(t, "/api/v1/namespaces/default/events"); !strings.Contains(string(a.Body), "OwnerRefUnknownKind") {
				return fmt.Errorf("events: %s", a.Body)
			}
			return nil
		})
		if a := h.Do(t, harness.Request{Method: "GET", Path: configMaps + "/dependent"}); a.Code != 200 {
			t.Fatalf("the dependent answers %d", a.Code)
		}
		play(t, s, []step{{name: "definition", method: "POST", path: "/apis/apiextensions.k8s.io/v1/customresourcedefinitions", code: 201,
			body: `{"apiVersion":"apiextensions.k8s.io/v1","kind":"CustomResourceDefinition","metadata":{"name":"gadgets.example.org"},"spec":{"group":"example.org","scope":"Namespaced","names":{"plural":"gadgets","kind":"Gadget"},"versions":[{"name":"v2","served":true,"storage":true,"schema":{"openAPIV3Schema":{"type":"object"}}}]}}`}})
		harness.Until(t, "the dependent to go", func() error {
			if a := h.Do(t, harness.Request{Method: "GET", Path: configMaps + "/dependent"}); a.Code != 404 {
				return fmt.Errorf("it answers %d", a.Code)
			}
			return nil
		})
	})
}
