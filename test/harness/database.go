package harness

import (
	"bufio"
	"context"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	_ "github.com/jackc/pgx/v5/stdlib" // the driver "pgx"
	_ "modernc.org/sqlite"             // the driver "sqlite"
)

// Database creates an empty database and returns the value for --database. It is dropped
// when the test ends.
func Database(t testing.TB, engine string) string {
	t.Helper()
	switch engine {
	case SQLite:
		return filepath.Join(t.TempDir(), "exeunt.db")
	case Postgres:
		return postgresDatabase(t)
	}
	t.Fatalf("unknown engine %q", engine)
	return ""
}

func postgresDatabase(t testing.TB) string {
	t.Helper()
	server, err := postgresServer()
	if err != nil {
		t.Fatal(err)
	}
	name := "exeunt_" + strings.ToLower(rand.Text()[:12])
	if err := execute(server, "CREATE DATABASE "+name); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := execute(server, "DROP DATABASE "+name+" WITH (FORCE)"); err != nil {
			t.Error(err)
		}
	})
	u, err := url.Parse(server)
	if err != nil {
		t.Fatalf("EXEUNT_TEST_POSTGRES: %v", err)
	}
	u.Path = "/" + name
	return u.String()
}

// postgresServer is the URL of the PostgreSQL server for the tests: the one that
// EXEUNT_TEST_POSTGRES names, else a private one.
var postgresServer = sync.OnceValues(func() (string, error) {
	if url := os.Getenv("EXEUNT_TEST_POSTGRES"); url != "" {
		return url, nil
	}
	// The script's server runs as long as its command (cat), and cat runs as long as this
	// process keeps its input open: so the server ends even if the test binary is killed.
	cmd := exec.Command(filepath.Join(root(), "script", "postgres"), "sh", "-c", `echo "$EXEUNT_TEST_POSTGRES"; exec cat`)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	if err := cmd.Start(); err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	line, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return "", fmt.Errorf("start PostgreSQL: %w", err)
	}
	// Wait keeps a reference to cmd, so its input stays open: Go's garbage collector
	// closes a pipe without references.
	go cmd.Wait()
	return strings.TrimSpace(line), nil
})

func execute(server, statement string) error {
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	conn, err := pgx.Connect(ctx, server)
	if err != nil {
		return fmt.Errorf("connect to PostgreSQL: %w", err)
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, statement); err != nil {
		return fmt.Errorf("%s: %w", statement, err)
	}
	return nil
}

// Forget compacts the log of a stopped server: lists and watches can start at the newest
// version only. The server's own compaction does the same, some minutes later.
func (s *Server) Forget() {
	s.t.Helper()
	if s.cmd != nil {
		s.t.Fatal("Forget: stop the server first")
	}
	s.Execute("UPDATE revision SET compacted = current")
}
