package crash_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"sync"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// TestKillRestore calls back a cascade at once after the delete, and kills the server again and
// again meanwhile. Nobody sends the Restore again. In the end every object is there once, under its
// owner.
func TestKillRestore(t *testing.T) {
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		const n = 3000
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
		const restores = "/apis/lifecycle.exeunt.dev/v1/restores"
		if err := maps.Delete(t.Context(), "root", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		asked := make(chan struct{})
		go func() { // the kill may take its answer
			defer close(asked)
			_, _ = h.Try(harness.Request{Method: "POST", Path: restores,
				Body: fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","metadata":{"name":"back"},"spec":{"uid":%q,"withCascade":true}}`, root.UID)})
		}()
		kills := 0
		for range 4 {
			harness.Until(t, "the restore to be stored", func() error {
				if len(s.Query(`SELECT name FROM restores`)) == 0 {
					return errors.New("no row")
				}
				return nil
			})
			if len(s.Query(`SELECT name FROM restores WHERE ended_at IS NULL`)) > 0 {
				kills++
			}
			s.Kill()
			s.Start()
		}
		<-asked
		harness.Until(t, "the restore to end", func() error {
			if phase := s.HTTP().Do(t, harness.Request{Method: "GET", Path: restores + "/back"}).Field("status.phase"); phase != `"Complete"` {
				return fmt.Errorf("it is %s", phase)
			}
			return nil
		})
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
		t.Logf("%d kills before it ended", kills)
	})
}
