package api

import (
	"testing"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
)

// TestCollectionReadPanics: a panic while a page is read reaches the request, which answers it.
// In the goroutine of the read it would end the server.
func TestCollectionReadPanics(t *testing.T) {
	broken := &collectionDelete{} // has no resource to list
	if p := <-broken.read(t.Context(), metainternal.ListOptions{}); p.panicked == nil {
		t.Errorf("a read without a resource did not panic: %v", p.err)
	}
}
