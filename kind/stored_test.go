package kind

import (
	"testing"

	"k8s.io/apimachinery/pkg/runtime/schema"
)

// TestStored: objects are stored in the version that the kind names, and in the preferred one if that one is not served.
func TestStored(t *testing.T) {
	var versions []*Version
	for _, name := range []string{"v2", "v1", "v1beta1"} {
		versions = append(versions, &Version{GVK: schema.GroupVersionKind{Group: "example.com", Version: name, Kind: "Thing"}})
	}
	for storedAs, want := range map[string]*Version{"v2": versions[0], "v1": versions[1], "v1beta1": versions[2], "v3": versions[0], "": versions[0]} {
		if got := (&Kind{Versions: versions, StoredAs: storedAs}).Stored(); got != want {
			t.Errorf("%q: %v", storedAs, got)
		}
	}
	if got := (&Kind{StoredAs: "v1"}).Stored(); got != nil {
		t.Errorf("of a kind without versions: %v", got)
	}
}
