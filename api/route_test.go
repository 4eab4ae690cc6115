package api

import (
	"net/http/httptest"
	"testing"
)

// TestPathProblem: a path whose names are empty or have a slash is refused. The
// library would read such a DELETE as a deletion of the whole collection.
func TestPathProblem(t *testing.T) {
	for _, test := range []struct {
		method, path string
		ok           bool
	}{
		{"DELETE", configMaps + "/a", true},
		{"DELETE", configMaps, true},
		{"GET", configMaps + "/", true},
		{"DELETE", configMaps + "/", false},
		{"DELETE", configMaps + "/%2F", false},
		{"DELETE", configMaps + "/%2f", false},
		{"DELETE", configMaps + "/a%2Fb", false},
		{"GET", configMaps + "//a", false},
		{"DELETE", configMaps + "/.", false},
		{"DELETE", configMaps + "/%2e%2e", false},
		{"GET", "//", false},
		{"GET", "/", true},
		{"GET", configMaps + "/a%00", false},
		{"DELETE", configMaps + "/a%07", true},
		{"GET", configMaps + "/%ff", false},
	} {
		if problem := pathProblem(httptest.NewRequest(test.method, test.path, nil)); (problem == "") != test.ok {
			t.Errorf("%s %s: problem %q; want it accepted: %v", test.method, test.path, problem, test.ok)
		}
	}
}
