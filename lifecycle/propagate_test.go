package lifecycle

import (
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

func TestPropagateGrace(t *testing.T) {
	policy := func(p metav1.DeletionPropagation) metav1.DeleteOptions {
		return metav1.DeleteOptions{PropagationPolicy: &p}
	}
	withGrace := func(seconds int64) metav1.DeleteOptions { return metav1.DeleteOptions{GracePeriodSeconds: &seconds} }
	for _, tt := range []struct {
		name, value string
		options     metav1.DeleteOptions
		finalizers  []string // before
		outcome     Outcome
		want        []string // finalizers after
		annotation  string   // after
	}{
		{"none", "", withGrace(5), nil, Remove, nil, ""},
		{"seconds", "9", metav1.DeleteOptions{}, nil, Mark, []string{PropagateGrace}, "9"},
		{"seconds win over the request", "9", withGrace(5), nil, Mark, []string{PropagateGrace}, "9"},
		{"true", "true", withGrace(5), nil, Mark, []string{PropagateGrace}, "5"},
		{"true without a request", "true", metav1.DeleteOptions{}, nil, Remove, nil, "true"},
		{"negative request", "true", withGrace(-5), nil, Mark, []string{PropagateGrace}, "1"},
		{"nonsense", "a while", withGrace(5), nil, Remove, nil, "a while"},
		{"foreground", "9", policy(metav1.DeletePropagationForeground), nil, Mark, []string{metav1.FinalizerDeleteDependents}, "9"},
		{"orphan", "9", policy(metav1.DeletePropagationOrphan), []string{PropagateGrace}, Mark, []string{metav1.FinalizerOrphanDependents}, "9"},
		{"someone else's stays", "9", metav1.DeleteOptions{}, []string{"x/y"}, Mark, []string{"x/y", PropagateGrace}, "9"},
	} {
		m := metav1.ObjectMeta{Name: "a", Finalizers: tt.finalizers}
		if tt.value != "" {
			m.Annotations = map[string]string{PropagateGrace: tt.value}
		}
		body, err := object.WithMeta([]byte(`{"metadata":{"name":"a"}}`), m)
		if err != nil {
			t.Fatal(err)
		}
		d, err := BeforeDelete(Deletion{Body: body, Meta: m, Options: tt.options, Now: time.Unix(1000, 0)})
		if err != nil || d.Outcome != tt.outcome {
			t.Errorf("%s: %v, %v; want %v", tt.name, d.Outcome, err, tt.outcome)
			continue
		}
		if d.Outcome == Mark && !slices.Equal(d.Meta.Finalizers, tt.want) || d.Meta.Annotations[PropagateGrace] != tt.annotation {
			t.Errorf("%s: finalizers %v, annotation %q; want %v, %q", tt.name, d.Meta.Finalizers, d.Meta.Annotations[PropagateGrace], tt.want, tt.annotation)
		}
		if m.Annotations[PropagateGrace] != tt.value {
			t.Errorf("%s: the input was changed", tt.name)
		}
	}
}
