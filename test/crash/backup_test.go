package crash_test

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/test/harness"
)

// TestKillBackup: clients write objects and push images while backups are killed at random
// moments, and while the server is killed during the last backup. All listed backups are
// whole. The restored server has every write that was acknowledged before the last backup
// began, and every image byte for byte.
func TestKillBackup(t *testing.T) {
	harness.Both(t, func(t *testing.T, s *harness.Server) {
		target := filepath.Join(t.TempDir(), "backups")
		w := newBackupWriters(t, s)
		w.await(t, 20)
		length := timeBackup(t, s, target)
		for range 3 {
			killBackup(t, s, target, length)
		}
		version := newest(t, s.HTTP())
		w.more(t)
		objects, tags := w.acknowledged()
		backup := s.BackupCommand(t, target)
		if err := backup.Start(); err != nil {
			t.Fatal(err)
		}
		randomMoment(length)
		s.Kill()
		w.stop()
		if err := backup.Wait(); err != nil {
			t.Fatalf("exeunt backup create, while the server is killed: %v", err)
		}
		s.VerifyBackups(t, target)

		restored := s.Restored(t, target)
		found := list(t, restored.HTTP())
		for name := range objects {
			if found[name].Data["value"] != name {
				t.Errorf("%s was acknowledged before the backup, and is %q", name, found[name].Data["value"])
			}
		}
		w.pusher.url = fmt.Sprintf("http://%s/v2/kept/app", restored.Registry())
		w.pusher.http, w.pusher.api, w.pusher.tags = restored.RegistryHTTP(), restored.HTTP(), tags
		if whole := w.pusher.compare(); whole != len(tags) || whole == 0 {
			t.Errorf("%d of %d images are whole", whole, len(tags))
		}
		restored.VerifyRegistry(t)
		wantRestored(t, restored, version)
		t.Logf("%d objects and %d images were acknowledged before the backup", len(objects), len(tags))
	})
}

// wantRestored checks what clients and operators see of a restore: version is a resource
// version of before.
func wantRestored(t *testing.T, s *harness.Server, version string) {
	t.Helper()
	for _, path := range []string{"?watch=true&timeoutSeconds=1&resourceVersion=", "?resourceVersionMatch=Exact&resourceVersion="} {
		answer := s.HTTP().Do(t, harness.Request{Path: "/api/v1/configmaps" + path + version})
		if !strings.Contains(string(answer.Body), `"code":410`) {
			t.Errorf("%s%s after the restore: %d %s", path, version, answer.Code, answer.Body)
		}
	}
	if !strings.Contains(s.Said(), "the database was restored from a backup") {
		t.Error("the server does not say that it was restored")
	}
}

// timeBackup makes a whole backup and returns how long it took.
func timeBackup(t *testing.T, s *harness.Server, target string) time.Duration {
	t.Helper()
	began := time.Now()
	if out, err := s.BackupCommand(t, target).CombinedOutput(); err != nil {
		t.Fatalf("exeunt backup create: %v\n%s", err, out)
	}
	return time.Since(began)
}

// randomMoment returns at a random moment of a backup of this length.
func randomMoment(length time.Duration) { time.Sleep(rand.N(length)) }

// killBackup kills a backup at a random moment. It may have ended by then, and if it was
// killed after its manifest was written, it is listed.
func killBackup(t *testing.T, s *harness.Server, target string, length time.Duration) {
	t.Helper()
	before := s.ListBackups(t, target)
	backup := s.BackupCommand(t, target)
	if err := backup.Start(); err != nil {
		t.Fatal(err)
	}
	randomMoment(length)
	_ = backup.Process.Kill() // it may have ended
	if err := backup.Wait(); err == nil && s.ListBackups(t, target) == before {
		t.Error("a backup that ended with success is not listed")
	}
	// The lease of the killed backup ends. TestHoldExpires has it end by itself.
	s.Execute(`UPDATE backups SET hold_until = 1`)
}

// backupWriters create objects and push images until the server is gone.
type backupWriters struct {
	pusher *pusher
	group  sync.WaitGroup
	ended  chan struct{}

	mu      sync.Mutex
	objects map[string]bool // acknowledged; guarded by mu
	tags    map[string]tag  // acknowledged; guarded by mu
}

func newBackupWriters(t *testing.T, s *harness.Server) *backupWriters {
	t.Helper()
	w := &backupWriters{objects: map[string]bool{}, tags: map[string]tag{}, ended: make(chan struct{})}
	w.pusher = &pusher{
		t: t, url: fmt.Sprintf("http://%s/v2/kept/app", s.Registry()), rng: rand.New(rand.NewPCG(1, 3)),
		http: s.RegistryHTTP(), api: s.HTTP(), namespace: "kept", tags: map[string]tag{},
	}
	w.pusher.http.Timeout = harness.Patience
	configMaps := client(t, s).CoreV1().ConfigMaps("default")
	w.loop(func(i int) error {
		name := fmt.Sprint("object-", i)
		_, err := configMaps.Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}, Data: map[string]string{"value": name}}, metav1.CreateOptions{})
		if err == nil {
			w.mu.Lock()
			w.objects[name] = true
			w.mu.Unlock()
		}
		return err
	})
	w.loop(func(i int) error {
		name := fmt.Sprint("t", i)
		manifest, err := w.pusher.push(name)
		if err == nil {
			w.mu.Lock()
			w.tags[name] = tag{manifest: manifest}
			w.mu.Unlock()
		}
		return err
	})
	return w
}

// loop writes until the first failure, which is that of the killed server.
func (w *backupWriters) loop(write func(i int) error) {
	w.group.Go(func() {
		for i := 0; ; i++ {
			select {
			case <-w.ended:
				return
			default:
			}
			if write(i) != nil {
				return
			}
		}
	})
}

func (w *backupWriters) stop() {
	close(w.ended)
	w.group.Wait()
}

func (w *backupWriters) acknowledged() (objects map[string]bool, tags map[string]tag) {
	w.mu.Lock()
	defer w.mu.Unlock()
	return maps.Clone(w.objects), maps.Clone(w.tags)
}

// more waits until further writes are acknowledged.
func (w *backupWriters) more(t *testing.T) {
	t.Helper()
	objects, _ := w.acknowledged()
	w.await(t, len(objects)+10)
}

// await waits until so many objects, and at least three images, are acknowledged.
func (w *backupWriters) await(t *testing.T, n int) {
	t.Helper()
	harness.Until(t, "writes", func() error {
		if objects, tags := w.acknowledged(); len(objects) < n || len(tags) < 3 {
			return fmt.Errorf("%d objects, %d images", len(objects), len(tags))
		}
		return nil
	})
}
