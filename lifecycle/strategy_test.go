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

func (s strategy) PrepareForCreate(_ context.Context, obj runtime.Object) {
	obj.(*corev1.ConfigMap).Generation = 1
}

func (s strategy) Validate(_ context.Context, obj runtime.Object) field.ErrorList {
	if _, bad := obj.(*corev1.ConfigMap).Data["bad"]; bad {
		return field.ErrorList{field.Forbidden(field.NewPath("data").Key("bad"), "is bad")}
	}
	return nil
}

func (s strategy) WarningsOnCreate(_ context.Context, obj runtime.Object) []string {
	if _, old := obj.(*corev1.ConfigMap).Data["old"]; old {
		return []string{"data[old] is old"}
	}
	return nil
}

func (s strategy) PrepareForUpdate(_ context.Context, obj, old runtime.Object) {
	m, was := obj.(*corev1.ConfigMap), old.(*corev1.ConfigMap)
	if !maps.Equal(m.Data, was.Data) {
		m.Generation++
	}
}

func (s strategy) ValidateUpdate(ctx context.Context, obj, _ runtime.Object) field.ErrorList {
	return s.Validate(ctx, obj)
}

func (s strategy) WarningsOnUpdate(ctx context.Context, obj, _ runtime.Object) []string {
	return s.WarningsOnCreate(ctx, obj)
}

func (s strategy) Canonicalize(obj runtime.Object) { delete(obj.(*corev1.ConfigMap).Data, "drop") }

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

func (plainStrategy) PrepareForCreate(context.Context, runtime.Object)                 {}
func (plainStrategy) Validate(context.Context, runtime.Object) field.ErrorList         { return nil }
func (plainStrategy) WarningsOnCreate(context.Context, runtime.Object) []string        { return nil }
func (plainStrategy) PrepareForUpdate(context.Context, runtime.Object, runtime.Object) {}
func (plainStrategy) ValidateUpdate(context.Context, runtime.Object, runtime.Object) field.ErrorList {
	return nil
}
func (plainStrategy) WarningsOnUpdate(context.Context, runtime.Object, runtime.Object) []string {
	return nil
}
func (plainStrategy) Canonicalize(runtime.Object) {}
