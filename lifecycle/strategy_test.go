package lifecycle_test

import (
	"context"
	"maps"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/object"
)

// start is the time at which every test begins. Its fraction of a second must never appear
// in metadata.
var start = time.Date(2024, 5, 6, 7, 8, 9, 987654321, time.UTC)

// strategy is the strategy of a small kind that has everything: ConfigMaps with a
// generation that refuse the key "bad", warn about the key "old" and are stored without
// the key "drop".
type strategy struct {
	clusterScoped, conditional bool
}

func (s strategy) NamespaceScoped() bool { return !s.clusterScoped }

func (s strategy) Create(_ context.Context, obj runtime.Object) ([]string, field.ErrorList) {
	obj.(*corev1.ConfigMap).Generation = 1
	return s.decide(obj)
}

func (s strategy) Update(_ context.Context, obj, old runtime.Object) ([]string, field.ErrorList) {
	m, was := obj.(*corev1.ConfigMap), old.(*corev1.ConfigMap)
	if !maps.Equal(m.Data, was.Data) {
		m.Generation++
	}
	return s.decide(obj)
}

func (s strategy) decide(obj runtime.Object) (warnings []string, errs field.ErrorList) {
	data := obj.(*corev1.ConfigMap).Data
	if _, bad := data["bad"]; bad {
		return nil, field.ErrorList{field.Forbidden(field.NewPath("data").Key("bad"), "is bad")}
	}
	if _, old := data["old"]; old {
		warnings = []string{"data[old] is old"}
	}
	delete(data, "drop")
	return warnings, nil
}

func (s strategy) AllowCreateOnUpdate(context.Context) bool { return false }

func (s strategy) AllowUnconditionalUpdate(context.Context) bool { return !s.conditional }

func ptr[T any](v T) *T { return &v }

// after is a whole second some seconds after the start.
func after(seconds int) *metav1.Time {
	return ptr(metav1.NewTime(start.Truncate(time.Second).Add(time.Duration(seconds) * time.Second)))
}

// wantError compares the code and text of an error.
func wantError(t *testing.T, err error, code object.Code, text string) {
	t.Helper()
	if !object.Is(err, code) || err.Error() != text {
		t.Errorf("got error %v, want one of code %d: %s", err, code, text)
	}
}

// plainStrategy is the strategy of a kind without its own rules, for any object.
type plainStrategy struct{ strategy }

func (plainStrategy) Create(context.Context, runtime.Object) ([]string, field.ErrorList) {
	return nil, nil
}

func (plainStrategy) Update(context.Context, runtime.Object, runtime.Object) ([]string, field.ErrorList) {
	return nil, nil
}
