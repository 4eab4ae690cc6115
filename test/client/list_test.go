package client_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"
	"slices"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"

	"github.com/exeunt/exeunt/test/harness"
)

// TestPagingWhileWritesGoOn: all pages of a list show the state at the revision of the
// first page, although clients write meanwhile.
func TestPagingWhileWritesGoOn(t *testing.T) {
	const objects = 200
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		client := typed(t, s.Config())
		maps := client.CoreV1().ConfigMaps("default")
		for i := range objects {
			_, err := maps.Create(t.Context(), configMap(fmt.Sprintf("page-%03d", i), map[string]string{"state": "first"}), metav1.CreateOptions{})
			check(t, err)
		}
		round := disturb(t, client, objects)
		var seen []string
		pages, token, version := 0, "", ""
		for more := true; more; more = token != "" {
			page, err := maps.List(t.Context(), metav1.ListOptions{Limit: 15, Continue: token})
			check(t, err)
			if pages == 0 {
				version = page.ResourceVersion
				round() // everything has changed before the second page
			}
			if page.ResourceVersion != version {
				t.Fatalf("page %d is at version %s, the first at %s", pages, page.ResourceVersion, version)
			}
			seen = append(seen, describe(page.Items)...)
			pages++
			token = page.Continue
		}
		whole, err := maps.List(t.Context(), metav1.ListOptions{ResourceVersion: version, ResourceVersionMatch: metav1.ResourceVersionMatchExact})
		check(t, err)
		if diff := cmp.Diff(describe(whole.Items), seen); diff != "" || pages < objects/15 {
			t.Fatalf("%d pages and the list at version %s differ:\n%s", pages, version, diff)
		}
		if !slices.IsSorted(seen) {
			t.Fatalf("out of order: %v", seen)
		}
	})
}

// describe names each object with its resourceVersion, which identifies its content.
func describe(items []corev1.ConfigMap) []string {
	all := make([]string, len(items))
	for i := range items {
		all[i] = items[i].Name + " at " + items[i].ResourceVersion
	}
	return all
}

// disturb creates, changes and deletes objects until the test ends. The returned function
// waits for one whole round of those writes.
func disturb(t *testing.T, client kubernetes.Interface, objects int) (round func()) {
	t.Helper()
	maps := client.CoreV1().ConfigMaps("default")
	ctx, cancel := context.WithCancel(t.Context())
	rounds := make(chan struct{}) // one send per round, if a receiver waits
	var group sync.WaitGroup
	group.Go(func() {
		for n := 0; ctx.Err() == nil; n++ {
			for i := 0; i < objects && ctx.Err() == nil; i += 7 {
				name := fmt.Sprintf("page-%03d", i)
				if n%2 == 0 {
					maps.Delete(ctx, name, metav1.DeleteOptions{})
				} else {
					maps.Create(ctx, configMap(name, map[string]string{"state": "again"}), metav1.CreateOptions{})
				}
				maps.Update(ctx, configMap(fmt.Sprintf("page-%03d", i+1), map[string]string{"n": fmt.Sprint(n)}), metav1.UpdateOptions{})
				maps.Create(ctx, configMap(fmt.Sprintf("page-%03d-%d", i, n), nil), metav1.CreateOptions{})
			}
			select {
			case rounds <- struct{}{}:
			default:
			}
		}
	})
	t.Cleanup(func() {
		cancel()
		group.Wait()
	})
	return func() {
		<-rounds // may be the end of a round that began before
		<-rounds
	}
}

// TestInitialEvents: a watch with sendInitialEvents receives the state, then the bookmark
// that ends it, then the changes.
func TestInitialEvents(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		maps := typed(t, s.Config()).CoreV1().ConfigMaps("default")
		for _, name := range []string{"a", "b"} {
			_, err := maps.Create(t.Context(), configMap(name, nil), metav1.CreateOptions{})
			check(t, err)
		}
		yes := true
		w, err := maps.Watch(t.Context(), metav1.ListOptions{
			SendInitialEvents: &yes, AllowWatchBookmarks: true, ResourceVersionMatch: metav1.ResourceVersionMatchNotOlderThan,
		})
		check(t, err)
		defer w.Stop()
		_, err = maps.Create(t.Context(), configMap("c", nil), metav1.CreateOptions{})
		check(t, err)
		last := ""
		bookmarked := false
		for _, name := range []string{"a", "b", "kube-root-ca.crt", "", "c"} {
			e := event(t, w)
			cm, ok := e.Object.(*corev1.ConfigMap)
			if !ok {
				t.Fatalf("event %s %+v", e.Type, e.Object)
			}
			if e.Type == watch.Bookmark {
				if cm.Annotations[metav1.InitialEventsAnnotationKey] != "true" || name != "" {
					t.Fatalf("bookmark %+v where %q was due", cm.ObjectMeta, name)
				}
				bookmarked = true
			} else if cm.Name != name || e.Type != watch.Added {
				t.Fatalf("event %s of %s, want ADDED of %q", e.Type, cm.Name, name)
			}
			if bookmarked && len(cm.ResourceVersion) < len(last) {
				t.Fatalf("version %s after %s", cm.ResourceVersion, last)
			}
			last = cm.ResourceVersion
		}
	})
}

// TestGone: the server answers a compacted resourceVersion with 410, as an event of the
// watch and as the answer to a list.
func TestGone(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		client := typed(t, s.Config())
		maps := client.CoreV1().ConfigMaps("default")
		for _, name := range []string{"a", "b"} {
			_, err := maps.Create(t.Context(), configMap(name, nil), metav1.CreateOptions{})
			check(t, err)
		}
		page, err := maps.List(t.Context(), metav1.ListOptions{Limit: 1})
		check(t, err)
		_, err = maps.Create(t.Context(), configMap("c", nil), metav1.CreateOptions{})
		check(t, err)
		s.Stop()
		s.Forget()
		s.Start()
		for what, options := range map[string]metav1.ListOptions{
			"an old version":    {ResourceVersion: "1", ResourceVersionMatch: metav1.ResourceVersionMatchExact},
			"the next old page": {Limit: 1, Continue: page.Continue},
		} {
			if _, err := maps.List(t.Context(), options); !apierrors.IsResourceExpired(err) {
				t.Errorf("list of %s: %v, want it expired", what, err)
			}
		}
		w, err := maps.Watch(t.Context(), metav1.ListOptions{ResourceVersion: "1"})
		check(t, err)
		defer w.Stop()
		e := event(t, w)
		status, ok := e.Object.(*metav1.Status)
		if !ok || e.Type != watch.Error || status.Code != http.StatusGone || status.Reason != metav1.StatusReasonExpired {
			text, _ := json.Marshal(e.Object)
			t.Fatalf("watch from version 1: %s %s, want an ERROR of code 410", e.Type, text)
		}
	})
}
