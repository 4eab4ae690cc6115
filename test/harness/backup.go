package harness

import (
	"os/exec"
	"strings"
	"testing"
)

// BackupCommand is "exeunt backup create" of this server, not started.
func (s *Server) BackupCommand(t testing.TB, target string) *exec.Cmd {
	t.Helper()
	return s.backupCommand(t, "backup", "create", target, "--data", s.dir, "--database", s.Database)
}

// ListBackups is the output of "exeunt backup list".
func (s *Server) ListBackups(t testing.TB, target string) string {
	t.Helper()
	out, err := s.backupCommand(t, "backup", "list", target, "-o", "name").CombinedOutput()
	if strings.Contains(string(out), "has no backups") { // nothing was written there yet
		return ""
	}
	if err != nil {
		t.Fatalf("exeunt backup list: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}

// VerifyBackups runs "exeunt backup verify". A finding fails the test.
func (s *Server) VerifyBackups(t testing.TB, target string) {
	t.Helper()
	if out, err := s.backupCommand(t, "backup", "verify", target).CombinedOutput(); err != nil {
		t.Errorf("exeunt backup verify: %v\n%s", err, out)
	}
}

// Restored runs a server on the newest backup of this one, which must be stopped.
func (s *Server) Restored(t testing.TB, target string) *Server {
	t.Helper()
	dir, database := t.TempDir(), Database(t, s.Engine)
	out, err := s.backupCommand(t, "backup", "restore", target, "--data", dir, "--database", database).CombinedOutput()
	if err != nil {
		t.Fatalf("exeunt backup restore: %v\n%s", err, out)
	}
	return start(t, dir, s.Engine, database, s.flags)
}

func (s *Server) backupCommand(t testing.TB, args ...string) *exec.Cmd {
	t.Helper()
	program, err := serverPath()
	if err != nil {
		t.Fatal(err)
	}
	return exec.CommandContext(t.Context(), program, args...)
}

// MoveCommand is "exeunt migrate database" from this server's database, not started.
func (s *Server) MoveCommand(t testing.TB, to string) *exec.Cmd {
	t.Helper()
	cmd := s.backupCommand(t, "migrate", "database", "--data", s.dir, "--database", s.Database)
	cmd.Env = append(cmd.Environ(), "EXEUNT_TO="+to) // it has a password
	return cmd
}

// Moved lets the next start use another database.
func (s *Server) Moved(engine, database string) { s.Engine, s.Database = engine, database }
