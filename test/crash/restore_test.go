package crash_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
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
		h := s.HTTP()
		createBelow(t, h, root, n)
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
		list, err := maps.List(t.Context(), metav1.ListOptions{LabelSelector: "below=root"})
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

// createBelow creates dependents of an object.
func createBelow(t *testing.T, h *harness.HTTP, root *corev1.ConfigMap, n int) {
	t.Helper()
	labels := map[string]string{"below": root.Name}
	owners := []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: root.Name, UID: root.UID}}
	var creating sync.WaitGroup
	for w := range workers {
		creating.Go(func() {
			for i := w; i < n; i += workers {
				body, err := json.Marshal(&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprint("child-", i), Labels: labels, OwnerReferences: owners}})
				if err != nil {
					t.Error(err)
				}
				if a, err := h.Try(harness.Request{Method: "POST", Path: "/api/v1/namespaces/" + root.Namespace + "/configmaps", Body: string(body)}); err != nil || a.Code != 201 {
					t.Errorf("create: %d %v", a.Code, err)
				}
			}
		})
	}
	creating.Wait()
}

// restoreSteps are the writes of a Restore, in their order.
var restoreSteps = []struct {
	name  string
	fault harness.Fault
}{
	{"store it", harness.Fault{Table: "restores", Event: "INSERT", When: "NEW.name = 'back'"}},
	{"create the owner", harness.Fault{Table: "objects", Event: "INSERT", When: "NEW.name = 'root'"}},
	{"tie what stayed", harness.Fault{Table: "objects", Event: "UPDATE", When: "OLD.name = 'shared'"}},
	{"create a dependent", harness.Fault{Table: "objects", Event: "INSERT", When: "NEW.name = 'child-7'"}},
	{"create the last", harness.Fault{Table: "objects", Event: "INSERT", When: "NEW.name = 'grandchild'"}},
	{"save the results", harness.Fault{Table: "restores", Event: "UPDATE", When: "NEW.name = 'back'"}},
	{"settle its task", harness.Fault{Table: "restore_reviews", Event: "DELETE", When: "OLD.name = 'back'"}},
}

// TestKillRestoreAtEachStep kills the server in each transaction of a Restore. The objects are as they were when the next
// server has ended it, and a Restore that was not stored has done nothing.
func TestKillRestoreAtEachStep(t *testing.T) {
	t.Parallel() // it waits more than it works
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		configs := client(t, s).CoreV1().ConfigMaps("default")
		add := func(name string, owners ...*corev1.ConfigMap) *corev1.ConfigMap {
			o := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}
			for _, owner := range owners {
				o.OwnerReferences = append(o.OwnerReferences, metav1.OwnerReference{APIVersion: "v1", Kind: "ConfigMap", Name: owner.Name, UID: owner.UID})
			}
			made, err := configs.Create(t.Context(), o, metav1.CreateOptions{})
			if err != nil {
				t.Fatal(err)
			}
			return made
		}
		root, other := add("root"), add("other")
		add("shared", root, other)
		var child *corev1.ConfigMap
		for i := range 20 {
			child = add(fmt.Sprint("child-", i), root)
		}
		add("grandchild", child)
		want := bodies(t, s)
		for _, step := range restoreSteps {
			killRestoreAt(t, s, string(root.UID), step.name, step.fault)
			if got := bodies(t, s); !maps.Equal(got, want) {
				t.Errorf("%s: got %v\nwant %v", step.name, got, want)
			}
		}
	})
}

// killRestoreAt deletes the owner, restores it with all that the cascade took, and kills the server at one step of that.
func killRestoreAt(t *testing.T, s *harness.Server, root, step string, fault harness.Fault) {
	t.Helper()
	const restores = "/apis/lifecycle.exeunt.dev/v1/restores"
	h := s.HTTP()
	if a := h.Do(t, harness.Request{Method: "DELETE", Path: "/api/v1/namespaces/default/configmaps/root"}); a.Code != 200 {
		t.Fatalf("%s: delete: %d %s", step, a.Code, a.Body)
	}
	harness.Until(t, "the cascade to end", func() error {
		if left := s.Query(`SELECT name FROM objects WHERE name IN ('root', 'grandchild') OR name LIKE 'child-%'`); len(left) > 0 {
			return fmt.Errorf("%v are left", left)
		}
		return nil
	})
	ask := func() (harness.Answer, error) {
		return h.Try(harness.Request{Method: "POST", Path: restores,
			Body: fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","metadata":{"name":"back"},"spec":{"uid":%q,"withCascade":true}}`, root)})
	}
	fault.Hang = true
	mend := s.Break(fault)
	asked := make(chan struct{})
	go func() { // the kill takes its answer
		defer close(asked)
		_, _ = ask()
	}()
	s.AwaitHang()
	s.Kill()
	<-asked
	s.Unhang()
	mend()
	s.Start()
	h = s.HTTP()
	if fault.Event == "INSERT" && fault.Table == "restores" {
		if back := s.Query(`SELECT name FROM objects WHERE name = 'root'`); len(back) > 0 {
			t.Errorf("%s: objects are back without a Restore", step)
		}
		if a, err := ask(); err != nil || a.Code != 201 {
			t.Fatalf("%s: %d %s, %v", step, a.Code, a.Body, err)
		}
	}
	harness.Until(t, step+": the restore to end", func() error {
		if phase := h.Do(t, harness.Request{Method: "GET", Path: restores + "/back"}).Field("status.phase"); phase != `"Complete"` {
			return fmt.Errorf("it is %s", phase)
		}
		return nil
	})
	harness.Until(t, step+": its task to be settled", func() error {
		if tasks := s.Query(`SELECT name FROM restore_reviews`); len(tasks) > 0 {
			return errors.New("there is a task")
		}
		return nil
	})
	if a := h.Do(t, harness.Request{Method: "DELETE", Path: restores + "/back"}); a.Code != 200 {
		t.Fatalf("%s: delete the Restore: %d %s", step, a.Code, a.Body)
	}
}

// bodies are the ConfigMaps as they are stored, without what every write changes.
func bodies(t *testing.T, s *harness.Server) map[string]string {
	t.Helper()
	list, err := client(t, s).CoreV1().ConfigMaps("default").List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]string{}
	for _, o := range list.Items {
		o.ResourceVersion, o.ManagedFields = "", nil
		body, err := json.Marshal(&o)
		if err != nil {
			t.Fatal(err)
		}
		out[o.Name] = string(body)
	}
	return out
}

// TestKillLeaving kills the server while a cascade leaves the archive, in the transaction that deletes the last of its rows: nothing of
// the cascade can be restored, and the next server deletes the rest.
func TestKillLeaving(t *testing.T) {
	t.Parallel() // it waits more than it works
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		const n = 1200 // in steps of 500
		h := s.HTTP()
		if a := h.Do(t, harness.Request{Method: "POST", Path: "/api/v1/namespaces",
			Body: `{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"brief"}}`}); a.Code != 201 {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		maps := client(t, s).CoreV1().ConfigMaps("brief")
		root, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "root"}}, metav1.CreateOptions{})
		if err != nil {
			t.Fatal(err)
		}
		createBelow(t, h, root, n)
		mend := s.Break(harness.Fault{Table: "archive", When: "OLD.name = 'root'", Event: "DELETE", Hang: true}) // its row is the last
		if err := maps.Delete(t.Context(), "root", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		const rows = `SELECT name FROM archive WHERE namespace = 'brief'`
		harness.Until(t, "all are archived", func() error {
			if got := len(s.Query(rows)); got <= n {
				return fmt.Errorf("%d rows", got)
			}
			return nil
		})
		if a := h.Do(t, harness.Request{Method: "PATCH", Path: "/api/v1/namespaces/brief", ContentType: "application/merge-patch+json",
			Body: `{"metadata":{"annotations":{"lifecycle.exeunt.dev/archive-for":"1s"}}}`}); a.Code != 200 {
			t.Fatalf("%d %s", a.Code, a.Body)
		}
		s.AwaitHang() // expiry runs every 30 seconds
		if left := len(s.Query(rows)); left == 0 || left > n/2 {
			t.Errorf("%d rows are left when the server is killed", left)
		}
		s.Kill()
		s.Unhang()
		mend()
		s.Start()
		h = s.HTTP()
		if a := h.Get(t, "/apis/lifecycle.exeunt.dev/v1/namespaces/brief/archivedobjects"); a.Field("items.0") != "" {
			t.Errorf("a part of the cascade is listed: %.300s", a.Body)
		}
		a := h.Do(t, harness.Request{Method: "POST", Path: "/apis/lifecycle.exeunt.dev/v1/restores",
			Body: fmt.Sprintf(`{"apiVersion":"lifecycle.exeunt.dev/v1","kind":"Restore","spec":{"cascade":%q}}`, root.UID)})
		if a.Code != 400 {
			t.Errorf("a restore of a part: %d %.300s", a.Code, a.Body)
		}
		harness.Within(t, 2*harness.Patience, "the rest to leave", func() error {
			if left := len(s.Query(rows)) + len(s.Query(`SELECT id FROM archive_cascades WHERE leaving IS NOT NULL`)); left > 0 {
				return fmt.Errorf("%d rows are left", left)
			}
			return nil
		})
	})
}
