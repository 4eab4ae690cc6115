package lifecycle_test

import (
	"fmt"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// A delete of an object with a finalizer marks it; without one it removes the
// object at once. Time is an argument, and nothing is written.
func ExampleBeforeDelete() {
	now := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, body := range []string{
		`{"metadata":{"name":"held","uid":"1","finalizers":["example.dev/tidy"]}}`,
		`{"metadata":{"name":"free","uid":"2"}}`,
	} {
		meta, err := object.ParseMeta([]byte(body))
		if err != nil {
			fmt.Println(err)
			return
		}
		decision, err := lifecycle.BeforeDelete(lifecycle.Deletion{
			Body: []byte(body), Meta: meta, Revision: 7, Options: metav1.DeleteOptions{}, Now: now,
		})
		fmt.Println(meta.Name, decision.Outcome, decision.Meta.DeletionTimestamp != nil, err)
	}
	// Output:
	// held mark true <nil>
	// free remove false <nil>
}
