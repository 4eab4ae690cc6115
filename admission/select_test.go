package admission

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apiserver/pkg/admission"
	"k8s.io/client-go/tools/cache"
)

func TestSelects(t *testing.T) {
	t.Parallel()
	rule := func(group, resource string, operations ...admissionv1.OperationType) admissionv1.RuleWithOperations {
		return admissionv1.RuleWithOperations{
			Operations: operations,
			Rule:       admissionv1.Rule{APIGroups: []string{group}, APIVersions: []string{"v1"}, Resources: []string{resource}},
		}
	}
	for _, tt := range []struct {
		name        string
		rule        admissionv1.RuleWithOperations
		group       string
		resource    string
		subresource string
		operation   admission.Operation
		want        bool
	}{
		{"the same", rule("apps", "deployments", admissionv1.Create), "apps", "deployments", "", admission.Create, true},
		{"another group", rule("apps", "deployments", admissionv1.Create), "", "deployments", "", admission.Create, false},
		{"another operation", rule("apps", "deployments", admissionv1.Create), "apps", "deployments", "", admission.Delete, false},
		{"every operation", rule("apps", "deployments", admissionv1.OperationAll), "apps", "deployments", "", admission.Delete, true},
		{"every group", rule("*", "pods", admissionv1.Update), "", "pods", "", admission.Update, true},
		{"no subresource", rule("", "pods", admissionv1.Update), "", "pods", "status", admission.Update, false},
		{"a subresource", rule("", "pods/status", admissionv1.Update), "", "pods", "status", admission.Update, true},
		{"only a subresource", rule("", "pods/status", admissionv1.Update), "", "pods", "", admission.Update, false},
		{"every resource", rule("", "*", admissionv1.Update), "", "pods", "", admission.Update, true},
		{"every resource, no subresource", rule("", "*", admissionv1.Update), "", "pods", "status", admission.Update, false},
		{"every subresource", rule("", "pods/*", admissionv1.Update), "", "pods", "status", admission.Update, true},
		{"every subresource, and the resource", rule("", "pods/*", admissionv1.Update), "", "pods", "", admission.Update, true},
		{"one subresource of all", rule("", "*/scale", admissionv1.Update), "", "pods", "scale", admission.Update, true},
		{"everything", rule("*", "*/*", admissionv1.OperationAll), "x", "y", "z", admission.Create, true},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			if got := selects(&tt.rule, schema.GroupResource{Group: tt.group, Resource: tt.resource}, tt.subresource, tt.operation); got != tt.want {
				t.Errorf("got %v", got)
			}
		})
	}
}

// TestSelectsBeforeAllIsRead: until every kind of configuration is read, each request may be
// selected by one that is not; then the rules decide.
func TestSelectsBeforeAllIsRead(t *testing.T) {
	var first, second bool
	c := &Chain{}
	c.selected.synced = []cache.InformerSynced{func() bool { return first }, func() bool { return second }}
	pods, secrets := schema.GroupResource{Resource: "pods"}, schema.GroupResource{Resource: "secrets"}
	is := func(when string, wantPods, wantSecrets bool) {
		t.Helper()
		for resource, want := range map[schema.GroupResource]bool{pods: wantPods, secrets: wantSecrets} {
			if got := c.Selects(resource, "", admission.Create); got != want {
				t.Errorf("%s: %s selected: %v, want %v", when, resource, got, want)
			}
		}
	}
	is("nothing is read", true, true)
	first = true
	c.selected.rules.Store(&[]rule{{RuleWithOperations: admissionv1.RuleWithOperations{
		Operations: []admissionv1.OperationType{admissionv1.Create}, Rule: admissionv1.Rule{APIGroups: []string{""}, Resources: []string{"pods"}},
	}}})
	is("one kind is read, and has a rule", true, true)
	second = true
	is("all are read", true, false)
	c.selected.rules.Store(nil)
	is("all are read, and there is none", false, false)
}
