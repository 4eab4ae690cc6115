package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestTasksRun: a running server expires Events after their TTL and counts them in its
// metrics, and it checks its certificates: it issues one again that is missing.
func TestTasksRun(t *testing.T) {
	data := t.TempDir()
	s := start(t, Config{Data: data, EventTTL: time.Millisecond, compactEvery: 10 * time.Millisecond, renewEvery: 10 * time.Millisecond})
	events := s.client.CoreV1().Events("default")
	_, err := events.Create(t.Context(), &corev1.Event{
		ObjectMeta:     metav1.ObjectMeta{Name: "short", Namespace: "default"},
		InvolvedObject: corev1.ObjectReference{Kind: "Namespace", Name: "default", Namespace: "default"},
	}, metav1.CreateOptions{})
	if err != nil {
		t.Fatal(err)
	}
	dbtest.Await(t, "the Event has expired", func() bool {
		_, err := events.Get(t.Context(), "short", metav1.GetOptions{})
		return apierrors.IsNotFound(err)
	})
	dbtest.Await(t, "the metrics count it", func() bool {
		metrics, err := s.client.RESTClient().Get().AbsPath("/metrics").DoRaw(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return strings.Contains(string(metrics), "\nexeunt_store_expired_objects_total 1\n")
	})
	certificate := filepath.Join(data, "pki", "broker.crt")
	if err := os.Remove(certificate); err != nil {
		t.Fatal(err)
	}
	dbtest.Await(t, "a missing certificate is issued again", func() bool {
		_, err := os.Stat(certificate)
		return err == nil
	})
	s.stop()
}
