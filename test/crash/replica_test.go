package crash_test

import (
	"encoding/json"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// TestReplicas: two servers on one PostgreSQL database. Clients write to both and watch
// both; both deliver the same events in the same order. One is killed, and the other one
// continues.
func TestReplicas(t *testing.T) {
	const writers, each = 4, 25
	one := harness.Start(t, harness.Postgres)
	two := one.Replica(t)
	h1, h2 := one.HTTP(), two.HTTP()
	first := newest(t, h1)
	watch := "/api/v1/configmaps?watch=1&resourceVersion=" + first
	streams := []*harness.Stream{h1.Watch(t, watch), h2.Watch(t, watch)}

	var group sync.WaitGroup
	for i, s := range []*harness.Server{one, two} {
		maps := client(t, s).CoreV1().ConfigMaps("default")
		for w := range writers {
			group.Go(func() {
				for n := range each {
					cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("r%d-%d-%d", i, w, n)}}
					if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
						t.Error(err)
						return
					}
				}
			})
		}
	}
	group.Wait()
	if t.Failed() {
		return
	}
	due := number(t, first)
	for range 2 * writers * each {
		due++
		names := map[string]bool{}
		for i, stream := range streams {
			e := stream.Next(t)
			if version := unquote(e.Field("metadata.resourceVersion")); number(t, version) != due || e.Type != "ADDED" {
				t.Fatalf("replica %d sends %s at version %s, want ADDED at %d", i+1, e.Type, version, due)
			}
			names[e.Field("metadata.name")] = true
		}
		if len(names) != 1 {
			t.Fatalf("version %d is two objects: %v", due, names)
		}
	}
	// A write through one replica is visible through the other one at once.
	for n := range 20 {
		cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("now-%d", n)}}
		if _, err := client(t, one).CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		if _, err := client(t, two).CoreV1().ConfigMaps("default").Get(t.Context(), cm.Name, metav1.GetOptions{}); err != nil {
			t.Fatal(err)
		}
	}
	one.Kill()
	cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "survivor"}}
	if _, err := client(t, two).CoreV1().ConfigMaps("default").Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	one.Start()
	if a := one.HTTP().Get(t, "/api/v1/namespaces/default/configmaps/survivor"); a.Field("metadata.name") != `"survivor"` {
		t.Fatalf("the killed replica was started again and shows %s", a.Body)
	}
}

func decode(t *testing.T, data []byte, into any) {
	t.Helper()
	if err := json.Unmarshal(data, into); err != nil {
		t.Fatalf("%v: %.300s", err, data)
	}
}
