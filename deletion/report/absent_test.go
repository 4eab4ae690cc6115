package report

import (
	"testing"

	"github.com/exeunt/exeunt/store"
)

func TestRemovedBy(t *testing.T) {
	for want, a := range map[string]store.Archived{
		"":                     {},
		" by jo":               {Actor: "jo", Requester: "jo"},
		" by jo (request r-1)": {Actor: "jo", Requester: "jo", RequestID: "r-1"},
		" by gc, at the request of jo (request r-1)": {Actor: "gc", Requester: "jo", RequestID: "r-1"},
	} {
		if got := removedBy(&a); got != want {
			t.Errorf("%+v: %q, want %q", a, got, want)
		}
	}
}
