package custom

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

func TestValidate(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	const unchecked = "<nil>: Invalid value" // the rules are not run on a malformed object
	tests := []struct {
		name string
		text string
		want []string
	}{
		{"good", "spec: {size: 3}", nil},
		{"enum", "spec: {size: 3, color: blue}", []string{"spec.color: Unsupported value", unchecked}},
		{"type", "spec: {size: three}", []string{"spec.size: Invalid value", unchecked}},
		{"missing", "spec: {}", []string{"spec.size: Required value", unchecked}},
		{"minimum", "spec: {size: 0}", []string{"spec.size: Invalid value"}},
		{"rule", "spec: {size: 11}", []string{"spec.size: Invalid value"}},
		{"rule on defaults", "spec: {size: 3, limit: 2}", []string{"spec.size: Invalid value"}},
		{"duplicate key in a map list", "spec: {size: 3, ports: [{name: a}, {name: a}]}", []string{"spec.ports[1]: Duplicate value"}},
		{"embedded object without a kind", "spec: {size: 3, template: {apiVersion: v1}}", []string{"spec.template.kind: Required value", unchecked}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			u := request(t, v, widget("v1", tt.text))
			_, errs := v.Strategy.Create(t.Context(), u)
			if diff := cmp.Diff(tt.want, paths(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPrepareForCreate(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	u := request(t, v, widget("v1", "spec: {size: 3}\nstatus: {phase: Ready}"))
	v.Strategy.Create(t.Context(), u)
	if _, ok := u.Object["status"]; ok || u.GetGeneration() != 1 {
		t.Errorf("status kept: %v, generation %d", u.Object["status"], u.GetGeneration())
	}
}

func TestUpdate(t *testing.T) {
	t.Parallel()
	v := pick(t, serve(t, widgets), "v1")
	old := request(t, v, widget("v1", "spec: {size: 3}\nstatus: {phase: Ready}"))
	old.SetGeneration(4)
	old.SetResourceVersion("1")
	tests := []struct {
		name       string
		status     bool
		text       string
		generation int64
		phase      string
		size       int64
		want       []string
	}{
		{"spec moves the generation and not the status", false, "spec: {size: 5}\nstatus: {phase: Waiting}", 5, "Ready", 5, nil},
		{"no change", false, "spec: {size: 3}", 4, "Ready", 3, nil},
		{"invalid", false, "spec: {size: 12}", 5, "Ready", 12, []string{"spec.size: Invalid value"}},
		{"status changes only itself", true, "spec: {size: 5}\nstatus: {phase: Waiting}", 4, "Waiting", 3, nil},
		{"invalid status", true, "spec: {size: 3}\nstatus: {phase: Lost}", 4, "Lost", 3,
			[]string{"status.phase: Unsupported value", "<nil>: Invalid value"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			s := v.Strategy
			if tt.status {
				s = v.Status
			}
			u := request(t, v, widget("v1", tt.text))
			u.SetGeneration(4)
			u.SetResourceVersion("1")
			_, errs := s.Update(t.Context(), u, old.DeepCopy())
			if diff := cmp.Diff(tt.want, paths(errs)); diff != "" {
				t.Errorf("errors (-want +got):\n%s", diff)
			}
			phase, _, _ := unstructured.NestedString(u.Object, "status", "phase")
			size, _, _ := unstructured.NestedInt64(u.Object, "spec", "size")
			if u.GetGeneration() != tt.generation || phase != tt.phase || size != tt.size {
				t.Errorf("generation %d, phase %q, size %d; want %d, %q, %d",
					u.GetGeneration(), phase, size, tt.generation, tt.phase, tt.size)
			}
		})
	}
}
