package mesh

import (
	"encoding/json"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/broker/mesh/v1alpha1"
)

// TestExplain: of a node that drains the reason says what it still does, by its condition Ready; before that, that it
// was not asked.
func TestExplain(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(1000, 0))
	conditions := []metav1.Condition{{Type: "Other", Message: "something else"}, {Type: "Ready", Message: "3 connections are open"}, {Type: "Last", Message: "the last"}}
	for name, test := range map[string]struct {
		phase      v1alpha1.Phase
		conditions []metav1.Condition
		want       string
		resolves   bool
	}{
		"ready":                {v1alpha1.PhaseReady, conditions, "the node has yet to be asked to leave", false},
		"draining":             {v1alpha1.PhaseDraining, conditions, "Draining: 3 connections are open", true},
		"draining, no details": {v1alpha1.PhaseDraining, nil, "the node has yet to be asked to leave", true},
	} {
		o := v1alpha1.MeshNode{ObjectMeta: metav1.ObjectMeta{Name: "n", DeletionTimestamp: &deleted}}
		o.Status.Phase, o.Status.Conditions = test.phase, test.conditions
		body, err := json.Marshal(o)
		if err != nil {
			t.Fatal(err)
		}
		reason, _ := Explain(body)
		if reason.Message != test.want || (reason.Resolve != "") != test.resolves || !reason.Since.Equal(&deleted) {
			t.Errorf("%s: %+v", name, reason)
		}
	}
	if reason, _ := Explain([]byte(`{"spec":1}`)); !strings.Contains(reason.Message, "it cannot be read: ") {
		t.Errorf("damaged: %+v", reason)
	}
}
