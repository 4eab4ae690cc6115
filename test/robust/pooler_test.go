package robust_test

import (
	"fmt"
	"net"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// TestPooler: behind pgbouncer in session mode the server works, and a replica behind another
// pooler receives its changes. In transaction mode it refuses to start, and says why.
func TestPooler(t *testing.T) {
	database := harness.Database(t, harness.Postgres)
	storage := []string{"--registry-storage", t.TempDir()}
	s := harness.StartOn(t, harness.Postgres, pooler(t, database, "session"), storage...)
	replica := s.ReplicaOn(t, pooler(t, database, "session"), storage...)
	h := replica.HTTP()
	created := s.HTTP().Do(t, harness.Request{Method: "POST", Path: "/api/v1/namespaces/default/configmaps", Body: `{"metadata":{"name":"pooled"}}`})
	if created.Code != 201 {
		t.Fatalf("create answers %d: %s", created.Code, created.Body)
	}
	harness.Until(t, "the change at the other replica", func() error {
		if a := h.Do(t, harness.Request{Method: "GET", Path: "/api/v1/namespaces/default/configmaps/pooled"}); a.Code != 200 {
			return fmt.Errorf("GET answers %d", a.Code)
		}
		return nil
	})
	said := harness.RefusedOn(t, pooler(t, database, "transaction"))
	if !strings.Contains(said, "pool_mode = transaction") {
		t.Errorf("in transaction mode the server says:\n%s", said)
	}
}

// pooler starts a pgbouncer in front of a database, and returns the URL through it.
func pooler(t *testing.T, database, mode string) string {
	t.Helper()
	program, err := exec.LookPath("pgbouncer")
	if err != nil {
		t.Fatalf("%v: run the test with script/postgres, which installs it", err)
	}
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	dir, err := os.MkdirTemp("", "exeunt-pooler-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	port := freePort(t)
	file := filepath.Join(dir, "pgbouncer.ini")
	config := fmt.Sprintf("[databases]\n* = host=127.0.0.1 port=%s user=%s\n[pgbouncer]\nlisten_addr=127.0.0.1\nlisten_port=%d\nunix_socket_dir=\nauth_type=any\npool_mode=%s\ndefault_pool_size=60\n",
		u.Port(), u.User.Username(), port, mode)
	if err := os.WriteFile(file, []byte(config), 0o644); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(program, "-q", file)
	if os.Getuid() == 0 { // it refuses to run as root
		as := credential(t, "postgres")
		if err := os.Chmod(dir, 0o755); err != nil {
			t.Fatal(err)
		}
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: as}
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	u.Host = fmt.Sprint("127.0.0.1:", port)
	harness.Until(t, "pgbouncer", func() error {
		conn, err := net.Dial("tcp", u.Host)
		if err == nil {
			err = conn.Close()
		}
		return err
	})
	return u.String()
}
