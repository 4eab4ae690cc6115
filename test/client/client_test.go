// Package client_test drives the server with the libraries that controllers
// are made of: client-go's typed, dynamic and metadata clients, informers,
// leader election, and controller-runtime.
package client_test

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes"
	corev1client "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/metadata"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/retry"

	"github.com/exeunt/exeunt/test/harness"
)

var configMaps = corev1.SchemeGroupVersion.WithResource("configmaps")

func typed(t *testing.T, config *rest.Config) kubernetes.Interface {
	t.Helper()
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		t.Fatal(err)
	}
	return client
}

func configMap(name string, data map[string]string) *corev1.ConfigMap {
	return &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: data}
}

// check ends the test on an error.
func check(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// event returns the next event of the watch; the test fails if none comes.
func event(t *testing.T, w watch.Interface) watch.Event {
	t.Helper()
	select {
	case e, ok := <-w.ResultChan():
		if !ok {
			t.Fatal("the watch ended")
		}
		return e
	case <-time.After(harness.Patience):
		t.Fatalf("no event for %v", harness.Patience)
	}
	return watch.Event{}
}

// TestTyped takes one object through the typed client, in JSON and in protobuf, which
// controllers use.
func TestTyped(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		for name, contentType := range map[string]string{"json": runtime.ContentTypeJSON, "protobuf": runtime.ContentTypeProtobuf} {
			t.Run(name, func(t *testing.T) {
				config := s.Config()
				config.ContentType, config.AcceptContentTypes = contentType, contentType
				exerciseTyped(t, typed(t, config), name)
			})
		}
	})
}

func exerciseTyped(t *testing.T, client kubernetes.Interface, name string) {
	ctx := t.Context()
	maps := client.CoreV1().ConfigMaps("default")
	w, err := maps.Watch(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	check(t, err)
	defer w.Stop()
	made, err := maps.Create(ctx, configMap(name, map[string]string{"k": "v"}), metav1.CreateOptions{})
	check(t, err)
	if made.UID == "" || made.ResourceVersion == "" || made.CreationTimestamp.IsZero() || made.Data["k"] != "v" {
		t.Fatalf("created %+v", made)
	}
	got, err := maps.Get(ctx, name, metav1.GetOptions{})
	check(t, err)
	if got.UID != made.UID {
		t.Fatalf("got uid %s, want %s", got.UID, made.UID)
	}
	got.Data["k"] = "w"
	_, err = maps.Update(ctx, got, metav1.UpdateOptions{})
	check(t, err)
	if _, err := maps.Update(ctx, got, metav1.UpdateOptions{}); !apierrors.IsConflict(err) {
		t.Fatalf("update of a stale object: %v, want a conflict", err)
	}
	_, err = maps.Patch(ctx, name, types.StrategicMergePatchType, []byte(`{"data":{"l":"x"}}`), metav1.PatchOptions{})
	check(t, err)
	list, err := maps.List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + name})
	check(t, err)
	if len(list.Items) != 1 || list.Items[0].Data["k"] != "w" || list.Items[0].Data["l"] != "x" {
		t.Fatalf("list: %+v", list.Items)
	}
	uid := made.UID
	check(t, maps.Delete(ctx, name, metav1.DeleteOptions{Preconditions: &metav1.Preconditions{UID: &uid}}))
	if _, err := maps.Get(ctx, name, metav1.GetOptions{}); !apierrors.IsNotFound(err) {
		t.Fatalf("get after delete: %v, want not found", err)
	}
	for _, want := range []string{"ADDED", "MODIFIED", "MODIFIED", "DELETED"} {
		e := event(t, w)
		cm, ok := e.Object.(*corev1.ConfigMap)
		if !ok || string(e.Type) != want || cm.Name != name {
			t.Fatalf("event %s %+v, want %s", e.Type, e.Object, want)
		}
	}
}

// TestDynamicAndMetadata reads and writes the same objects with the dynamic client and
// with the metadata client.
func TestDynamicAndMetadata(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		ctx := t.Context()
		client, err := dynamic.NewForConfig(s.Config())
		check(t, err)
		made, err := client.Resource(configMaps).Namespace("default").Create(ctx, &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap",
			"metadata": map[string]any{"name": "a", "labels": map[string]any{"x": "y"}},
			"data":     map[string]any{"k": "v"},
		}}, metav1.CreateOptions{})
		check(t, err)
		partial, err := metadata.NewForConfig(s.Config())
		check(t, err)
		list, err := partial.Resource(configMaps).List(ctx, metav1.ListOptions{LabelSelector: "x=y"})
		check(t, err)
		if len(list.Items) != 1 || list.Items[0].UID != made.GetUID() {
			t.Fatalf("metadata list: %+v", list)
		}
		w, err := partial.Resource(configMaps).Watch(ctx, metav1.ListOptions{ResourceVersion: list.ResourceVersion})
		check(t, err)
		defer w.Stop()
		check(t, partial.Resource(configMaps).Namespace("default").Delete(ctx, "a", metav1.DeleteOptions{}))
		e := event(t, w)
		if gone, ok := e.Object.(*metav1.PartialObjectMetadata); !ok || e.Type != "DELETED" || gone.UID != made.GetUID() {
			t.Fatalf("metadata watch: %s %+v", e.Type, e.Object)
		}
		applied, err := client.Resource(configMaps).Namespace("default").Apply(ctx, "b", &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": "b"}, "data": map[string]any{"k": "v"},
		}}, metav1.ApplyOptions{FieldManager: "test"})
		check(t, err)
		if fields := applied.GetManagedFields(); len(fields) != 1 || fields[0].Manager != "test" || fields[0].Operation != metav1.ManagedFieldsOperationApply {
			t.Fatalf("managed fields: %+v", fields)
		}
	})
}

// TestNoLostUpdates: many clients increment the same number. The server reports every
// conflict, so every increment counts.
func TestNoLostUpdates(t *testing.T) {
	const writers, each = 6, 15
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		ctx := t.Context()
		maps := typed(t, s.Config()).CoreV1().ConfigMaps("default")
		_, err := maps.Create(ctx, configMap("counter", map[string]string{"n": "0"}), metav1.CreateOptions{})
		check(t, err)
		// Retries without limit and without a pause: the more conflicts, the better.
		backoff := wait.Backoff{Steps: 10000, Duration: time.Millisecond, Jitter: 1}
		var group sync.WaitGroup
		for range writers {
			group.Go(func() {
				for range each {
					err := retry.RetryOnConflict(backoff, func() error { return increment(ctx, maps) })
					if err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
		group.Wait()
		got, err := maps.Get(ctx, "counter", metav1.GetOptions{})
		check(t, err)
		if want := fmt.Sprint(writers * each); got.Data["n"] != want {
			t.Fatalf("counted %s, want %s", got.Data["n"], want)
		}
	})
}

func increment(ctx context.Context, maps corev1client.ConfigMapInterface) error {
	current, err := maps.Get(ctx, "counter", metav1.GetOptions{})
	if err != nil {
		return err
	}
	var n int
	if _, err := fmt.Sscan(current.Data["n"], &n); err != nil {
		return err
	}
	current.Data["n"] = fmt.Sprint(n + 1)
	_, err = maps.Update(ctx, current, metav1.UpdateOptions{})
	return err
}

// TestOneNameOneObject: of many clients that create the same name, one succeeds.
func TestOneNameOneObject(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		maps := typed(t, s.Config()).CoreV1().ConfigMaps("default")
		for i := range 10 {
			var won, lost atomic.Int32
			var group sync.WaitGroup
			for range 8 {
				group.Go(func() {
					_, err := maps.Create(t.Context(), configMap(fmt.Sprint("name-", i), nil), metav1.CreateOptions{})
					switch {
					case err == nil:
						won.Add(1)
					case apierrors.IsAlreadyExists(err):
						lost.Add(1)
					default:
						t.Error(err)
					}
				})
			}
			group.Wait()
			if won.Load() != 1 || lost.Load() != 7 {
				t.Fatalf("%d succeeded and %d failed, want 1 and 7", won.Load(), lost.Load())
			}
		}
	})
}
