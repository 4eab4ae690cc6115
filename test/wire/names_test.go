package wire_test

import (
	"encoding/json"
	"fmt"
	"net/url"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// TestNames: over a real connection, each name that a create accepts can be read and deleted by
// its path. TestNamesCanBeDeleted in api/ has random names and more kinds.
func TestNames(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		h := s.HTTP()
		accepted := 0
		for _, row := range []struct{ collection, fields string }{
			{"/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings", `,"roleRef":{"apiGroup":"rbac.authorization.k8s.io","kind":"Role","name":"r"}`},
			{"/apis/rbac.authorization.k8s.io/v1/clusterroles", ``},
			{"/apis/access.exeunt.dev/v1/users", `,"apiVersion":"access.exeunt.dev/v1","kind":"User","spec":{}`},
			{"/apis/registry.exeunt.dev/v1/namespaces/default/repositories", `,"apiVersion":"registry.exeunt.dev/v1","kind":"Repository"`},
			{"/api/v1/namespaces/default/events", `,"involvedObject":{"namespace":"default"}`},
			{configMaps, ``},
		} {
			for _, name := range []string{
				"plain", "user@example.com", "backdoor\a", "a\r\nb", "\x1b]0;x\a", "a\u0085", " a ", "a?b#c;d", "a+b", "%41", "\\", "日本", "\ufffd", "*", "...",
				strings.Repeat("a", 253), strings.Repeat("\x02", 1024), strings.Repeat("b", 1025), strings.Repeat("c", 2<<20),
			} {
				text, err := json.Marshal(name)
				if err != nil {
					t.Fatal(err)
				}
				created := h.Do(t, harness.Request{Method: "POST", Path: row.collection, Body: fmt.Sprintf(`{"metadata":{"name":%s}%s}`, text, row.fields)})
				if created.Code != 201 {
					if created.Code >= 500 {
						t.Errorf("POST %s %.99q: %d %.500s", row.collection, name, created.Code, created.Body)
					}
					continue
				}
				accepted++
				path := row.collection + "/" + url.PathEscape(name)
				for _, step := range []struct {
					method, accept string
					code           int
				}{{"GET", "", 200}, {"GET", "application/yaml", 200}, {"DELETE", "", 200}, {"GET", "", 404}} {
					if a := h.Do(t, harness.Request{Method: step.method, Path: path, Accept: step.accept}); a.Code != step.code {
						t.Errorf("%s %.200s: %d %.500s", step.method, path, a.Code, a.Body)
					}
				}
			}
		}
		if accepted < 45 {
			t.Errorf("creates accepted %d names: this test has changed", accepted)
		}
	})
}
