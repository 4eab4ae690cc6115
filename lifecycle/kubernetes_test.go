package lifecycle_test

import (
	"context"
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apiserver/pkg/registry/rest"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// gracefulStrategy is podRules for the library.
type gracefulStrategy struct{ runtime.ObjectTyper }

func (gracefulStrategy) CheckGracefulDelete(_ context.Context, _ runtime.Object, options *metav1.DeleteOptions) bool {
	if options.GracePeriodSeconds == nil {
		options.GracePeriodSeconds = ptr(int64(30))
	}
	return true
}

// TestGraceAsInKubernetes compares random graceful deletions with the library's
// BeforeDelete. One difference is intended: the library moves a deletion time that has
// passed to now, ours stays. The library reads the clock, which stands still here.
func TestGraceAsInKubernetes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		scheme := runtime.NewScheme()
		if err := corev1.AddToScheme(scheme); err != nil {
			t.Fatal(err)
		}
		r := rand.New(rand.NewPCG(1, 2))
		for range 2000 {
			now := time.Now()
			obj, options := randomDeletion(r, now)
			body, err := object.Encode(obj)
			if err != nil {
				t.Fatal(err)
			}
			m, err := object.ParseMeta(body)
			if err != nil {
				t.Fatal(err)
			}
			got, err := lifecycle.BeforeDelete(lifecycle.Deletion{Body: body, Meta: m, Options: options, Rules: podRules, Now: now})
			if err != nil {
				t.Fatal(err)
			}
			want, theirs := obj.DeepCopy(), options.DeepCopy()
			graceful, pending, err := rest.BeforeDelete(gracefulStrategy{scheme}, context.Background(), want, theirs)
			if err != nil {
				t.Fatal(err)
			}
			compareGrace(t, obj, options, got, want, graceful, pending)
		}
	})
}

// randomDeletion returns an object with a finalizer, so that it is not removed at once,
// and a request to delete it.
func randomDeletion(r *rand.Rand, now time.Time) (*corev1.ConfigMap, metav1.DeleteOptions) {
	obj := stored(finalizers("a/b"))
	obj.Generation = r.Int64N(3)
	if r.IntN(4) > 0 {
		seconds := r.Int64N(8) * 10
		at := metav1.NewTime(now.Truncate(time.Second).Add(time.Duration(r.IntN(16)-8)*10*time.Second + 5*time.Second))
		obj.DeletionTimestamp, obj.DeletionGracePeriodSeconds = &at, &seconds
	}
	var options metav1.DeleteOptions
	if r.IntN(4) > 0 {
		options.GracePeriodSeconds = ptr(r.Int64N(10)*10 - 10)
	}
	return obj, options
}

func compareGrace(t *testing.T, old *corev1.ConfigMap, options metav1.DeleteOptions, got lifecycle.Decision, want *corev1.ConfigMap, graceful, pending bool) {
	t.Helper()
	wantOutcome := lifecycle.Mark
	if pending || !graceful && old.DeletionTimestamp != nil && !old.DeletionTimestamp.After(time.Now()) {
		wantOutcome = lifecycle.Unchanged
	}
	if got.Outcome != wantOutcome {
		t.Fatalf("%+v, %+v: got %v, want %v", old.ObjectMeta, options, got.Outcome, wantOutcome)
	}
	if !graceful {
		return
	}
	if *got.Meta.DeletionGracePeriodSeconds != *want.DeletionGracePeriodSeconds || got.Meta.Generation != want.Generation {
		t.Fatalf("%+v, %+v: got grace %d, generation %d; want %d, %d", old.ObjectMeta, options,
			*got.Meta.DeletionGracePeriodSeconds, got.Meta.Generation, *want.DeletionGracePeriodSeconds, want.Generation)
	}
	at := want.DeletionTimestamp
	if old.DeletionTimestamp != nil && at.After(old.DeletionTimestamp.Time) {
		at = old.DeletionTimestamp
	}
	if d := got.Meta.DeletionTimestamp.Sub(at.Time); d.Abs() >= time.Second {
		t.Fatalf("%+v, %+v: deletion time is off by %v", old.ObjectMeta, options, d)
	}
}
