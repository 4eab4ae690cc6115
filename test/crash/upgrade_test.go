package crash_test

import (
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// TestRollingUpgrade: a replica of the next version starts, and migrates, beside a replica of
// this version that clients write to. Both serve: each sees the other's writes, and cascades go
// on. This version does not start again on the newer schema; the way back is refused while a server
// runs, and afterwards this version has everything that was written on either.
func TestRollingUpgrade(t *testing.T) {
	harness.BuildNext(t)
	old := harness.Start(t, harness.Postgres)
	first := newest(t, old.HTTP())
	stream := old.HTTP().Watch(t, "/api/v1/namespaces/default/configmaps?watch=1&resourceVersion="+first)
	before := owner(t, old, "before")

	stop := writeOn(t, old)
	next := old.NextReplica(t)
	written := stop()
	if written == 0 || t.Failed() {
		t.Fatalf("%d writes during the migration", written)
	}
	if r := next.Exeunt(t, "migrate", "status", "--database", next.Database); strings.Contains(r.Stdout, "pending") || !strings.Contains(r.Stdout, "next_changes") {
		t.Fatalf("the schema after the start of the next version:\n%s%s", r.Stdout, r.Stderr)
	}

	// Each deletes what the other one made, and each sees what the other one wrote.
	during := owner(t, next, "during")
	remove(t, next, before)
	remove(t, old, during)
	for _, s := range []*harness.Server{old, next} {
		gone(t, s, before+"-owned")
		gone(t, s, during+"-owned")
	}
	for seen := false; !seen; {
		e := stream.Next(t)
		seen = e.Type == "DELETED" && e.Field("metadata.name") == `"`+during+`-owned"`
	}
	kept := owner(t, next, "kept")

	down := []string{"migrate", "down", "--to", thisStep(t, old), "--database", next.Database}
	if r := next.Exeunt(t, down...); r.Code == 0 || !strings.Contains(r.Stderr, "stop all replicas") {
		t.Errorf("the way back beside servers: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	old.Stop()
	if said := harness.RefusedOn(t, old.Database); !strings.Contains(said, "a newer version has used it") {
		t.Errorf("this version starts on the next version's schema:\n%s", said)
	}
	next.Stop()
	if r := next.Exeunt(t, down...); r.Code != 0 {
		t.Fatalf("the way back: exit code %d\n%s%s", r.Code, r.Stdout, r.Stderr)
	}
	old.Start()
	maps := client(t, old).CoreV1().ConfigMaps("default")
	for _, name := range []string{kept, kept + "-owned", "write-0", fmt.Sprintf("write-%d", written-1)} {
		if _, err := maps.Get(t.Context(), name, metav1.GetOptions{}); err != nil {
			t.Error(err)
		}
	}
}

// writeOn creates objects until stop is called, which returns how many there are. Every
// create must succeed.
func writeOn(t *testing.T, s *harness.Server) (stop func() int) {
	maps := client(t, s).CoreV1().ConfigMaps("default")
	var n int
	var over atomic.Bool
	var group sync.WaitGroup
	group.Go(func() {
		for ; !over.Load(); n++ {
			cm := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("write-%d", n)}}
			if _, err := maps.Create(t.Context(), cm, metav1.CreateOptions{}); err != nil {
				t.Errorf("write %d during the migration: %v", n, err)
				return
			}
		}
	})
	return func() int {
		over.Store(true)
		group.Wait()
		return n
	}
}

// owner creates NAME and NAME-owned, which it owns.
func owner(t *testing.T, s *harness.Server, name string) string {
	t.Helper()
	maps := client(t, s).CoreV1().ConfigMaps("default")
	made, err := maps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	owned := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{
		Name:            name + "-owned",
		OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "ConfigMap", Name: name, UID: made.UID}},
	}}
	if _, err := maps.Create(t.Context(), owned, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	return name
}

func remove(t *testing.T, s *harness.Server, name string) {
	t.Helper()
	if err := client(t, s).CoreV1().ConfigMaps("default").Delete(t.Context(), name, metav1.DeleteOptions{}); err != nil {
		t.Fatal(err)
	}
}

func gone(t *testing.T, s *harness.Server, name string) {
	t.Helper()
	harness.Until(t, name+" to go", func() error {
		_, err := client(t, s).CoreV1().ConfigMaps("default").Get(t.Context(), name, metav1.GetOptions{})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return fmt.Errorf("it is there: %v", err)
	})
}

// thisStep returns the last step that this version knows.
func thisStep(t *testing.T, s *harness.Server) string {
	t.Helper()
	r := s.Exeunt(t, "version")
	_, rest, found := strings.Cut(r.Stdout, "schema:  step ")
	step, _, _ := strings.Cut(rest, "\n")
	if !found {
		t.Fatalf("exeunt version: %s%s", r.Stdout, r.Stderr)
	}
	return step
}
