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

// TestKillRestore kills a server in the middle of a restore of a cascade. The same restore,
// sent again, ends with every object once, under its restored owner.
func TestKillRestore(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		const n = 1500
		maps := client(t, s).CoreV1().ConfigMaps("default")
		root, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "root"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		labels := map[string]string{"restored": "yes"}
		owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: root.Name, UID: root.UID}}
		h := s.HTTP()
		var creating sync.WaitGroup
		for w := range workers {
			creating.Go(func() {
				for i := w; i < n; i += workers {
					body, err := json.Marshal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("child-", i), Labels: labels, OwnerReferences: owners}})
					if err != nil {
						t.Error(err)
					}
					if a, err := h.Try(harness.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", Body: string(body)}); err != nil || a.Code != 201 {
						t.Errorf("create: %d %v", a.Code, err)
					}
				}
			})
		}
		creating.Wait()
		children := func() int { return len(s.Query(`SELECT name FROM objects WHERE name LIKE 'child-%'`)) }
		if err := maps.Delete(t.Context(), "root", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		harness.Until(t, "the cascade to end", func() error {
			if left := children(); left > 0 {
				return fmt.Errorf("%d are left", left)
			}
			return nil
		})
		restore := harness.Request{Method: "POST", Path: "/apis/lifecycle.exeunt.dev/v1/restores",
			Body: fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"cascade":%q}}`, root.UID)}
		ended := make(chan error, 1)
		go func() {
			_, err := h.Try(restore)
			ended <- err
		}()
		for children() == 0 {
			select {
			case err := <-ended:
				t.Fatalf("the restore ended before the kill: %v", err)
			default:
			}
		}
		s.Kill()
		<-ended
		before := children()
		s.Start()
		if before == 0 || before == n {
			t.Fatalf("%d of %d were restored when the server was killed: the test is void", before, n)
		}
		answer := s.HTTP().Do(t, restore)
		if created, skipped := answer.Field("status.created"), answer.Field("status.skipped"); created != fmt.Sprint(n-before) || skipped != fmt.Sprint(before+1) {
			t.Errorf("after %d were restored: created %s, skipped %s, %.300s", before, created, skipped, answer.Body)
		}
		maps = client(t, s).CoreV1().ConfigMaps("default")
		now, err := maps.Get(t.Context(), "root", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "restored=yes"})
		if err != nil {
			t.Fatal(err)
		}
		if len(list.Items) != n {
			t.Errorf("%d of %d children", len(list.Items), n)
		}
		for _, o := range list.Items {
			if len(o.OwnerReferences) != 1 || o.OwnerReferences[0].UID != now.UID {
				t.Fatalf("%s refers to %v, the owner is %s", o.Name, o.OwnerReferences, now.UID)
			}
		}
		t.Logf("%d of %d before the kill", before, n)
	})
}
