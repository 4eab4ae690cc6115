// Package wire_test sends raw HTTP to the server and compares the answers, to the byte
// where Kubernetes' clients depend on it. Sequences are tables of steps; bad input is a
// table of requests.
package wire_test

import (
	"strings"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// The paths that most tests use.
const (
	configMaps  = "/api/v1/namespaces/default/configmaps"
	pods        = "/api/v1/namespaces/default/pods"
	deployments = "/apis/apps/v1/namespaces/default/deployments"
	jobs        = "/apis/batch/v1/namespaces/default/jobs"
	leases      = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
	namespaces  = "/api/v1/namespaces"
)

// Patch types.
const (
	mergePatch     = "application/merge-patch+json"
	jsonPatch      = "application/json-patch+json"
	strategicPatch = "application/strategic-merge-patch+json"
	applyPatch     = "application/apply-patch+yaml"
)

// step is one request of a sequence and what it must answer.
type step struct {
	name         string
	method, path string
	body         string
	contentType  string
	code         int
	// want maps dotted paths of the answer to their compact JSON; "*" is any
	// value, "" is none. A name in braces, as in the request, stands for a
	// saved value.
	want map[string]string
	// warning must be part of the Warning header.
	warning string
	// save keeps values of the answer under names for later steps, without
	// their quotes.
	save map[string]string
}

// play runs the steps in order; the first that differs ends the test.
func play(t *testing.T, s *harness.Server, steps []step) {
	t.Helper()
	h := s.HTTP()
	saved := map[string]string{}
	fill := func(text string) string {
		for name, value := range saved {
			text = strings.ReplaceAll(text, "{"+name+"}", value)
		}
		return text
	}
	for _, step := range steps {
		request := harness.Request{Method: step.method, Path: fill(step.path), Body: fill(step.body), ContentType: step.contentType}
		answer := h.Do(t, request)
		if answer.Code != step.code {
			t.Fatalf("%s: %s %s answered %d, want %d\n%s", step.name, step.method, request.Path, answer.Code, step.code, answer.Body)
		}
		for path, want := range step.want {
			got := answer.Field(path)
			if want == "*" && got != "" {
				continue
			}
			if got != fill(want) {
				t.Fatalf("%s: %s %s: %s is %s, want %s\n%s", step.name, step.method, request.Path, path, got, fill(want), answer.Body)
			}
		}
		if step.warning != "" && !strings.Contains(strings.Join(answer.Header.Values("Warning"), "\n"), step.warning) {
			t.Fatalf("%s: Warning header is %q, want %q in it", step.name, answer.Header.Values("Warning"), step.warning)
		}
		for name, path := range step.save {
			saved[name] = strings.Trim(answer.Field(path), `"`)
		}
	}
}
