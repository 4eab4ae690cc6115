package robust_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/exeunt/exeunt/test/harness"
)

// cluster is a PostgreSQL primary and a synchronous standby: a commit is acknowledged when
// both have it. Each has a fixed port.
type cluster struct {
	t       *testing.T
	bin     string
	as      *syscall.Credential // PostgreSQL refuses to run as root
	nodes   [2]node
	primary int
}

type node struct {
	dir  string
	port int
}

func newCluster(t *testing.T) *cluster {
	t.Helper()
	harness.Database(t, harness.Postgres) // installs PostgreSQL where it is missing
	dir, err := os.MkdirTemp("", "exeunt-robust-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{t: t, bin: findPostgres(t)}
	if os.Getuid() == 0 {
		c.as = credential(t, "postgres")
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, int(c.as.Uid), int(c.as.Gid))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.nodes {
		c.nodes[i] = node{filepath.Join(dir, strconv.Itoa(i)), freePort(t)}
	}
	c.run("initdb", "-D", c.nodes[0].dir, "-U", "exeunt", "-A", "trust", "-E", "UTF8", "--no-sync")
	t.Cleanup(func() {
		for i := range c.nodes {
			_ = c.command("pg_ctl", "-D", c.nodes[i].dir, "-m", "immediate", "stop").Run()
		}
	})
	c.start(0)
	c.execute("CREATE DATABASE exeunt")
	c.addStandby()
	return c
}

func findPostgres(t *testing.T) string {
	t.Helper()
	if found, err := exec.LookPath("initdb"); err == nil {
		found, err = filepath.EvalSymlinks(found)
		if err == nil {
			return filepath.Dir(found)
		}
	}
	found, _ := filepath.Glob("/usr/lib/postgresql/*/bin")
	if len(found) == 0 {
		t.Fatal("PostgreSQL's programs are missing: run the test with script/postgres")
	}
	return found[len(found)-1]
}

func credential(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

func freePort(t *testing.T) int {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port
}

func (c *cluster) command(name string, args ...string) *exec.Cmd {
	cmd := exec.Command(filepath.Join(c.bin, name), args...)
	cmd.Dir = filepath.Dir(c.nodes[0].dir)
	cmd.Env = append(os.Environ(), "LC_ALL=C.UTF-8")
	if c.as != nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{Credential: c.as}
	}
	return cmd
}

func (c *cluster) run(name string, args ...string) {
	c.t.Helper()
	cmd := c.command(name, args...)
	out, err := os.Create(filepath.Join(c.t.TempDir(), "out")) // pg_ctl's server keeps a pipe open
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if err := cmd.Run(); err != nil {
		text, _ := os.ReadFile(out.Name())
		c.t.Fatalf("%s: %v\n%s", name, err, text)
	}
}

// start starts a node. Its files are not synced to disk: the operating system survives.
func (c *cluster) start(i int) {
	c.t.Helper()
	n := c.nodes[i]
	c.run("pg_ctl", "-D", n.dir, "-l", n.dir+".log", "-t", "60", "-w", "start", "-o", fmt.Sprintf(
		"-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=200 -c fsync=off -c full_page_writes=on -c synchronous_commit=on", n.port))
}

// addStandby makes a standby of the other node, and has commits wait for it. The setting
// comes last, so the standby does not inherit it: after a promotion there is none to wait for.
func (c *cluster) addStandby() {
	c.t.Helper()
	p, s := c.nodes[c.primary], c.nodes[1-c.primary]
	if err := os.RemoveAll(s.dir); err != nil {
		c.t.Fatal(err)
	}
	c.run("pg_basebackup", "-d", fmt.Sprintf("host=127.0.0.1 port=%d user=exeunt", p.port), "-D", s.dir, "-R", "--no-sync", "-c", "fast")
	c.start(1 - c.primary)
	c.execute("ALTER SYSTEM SET synchronous_standby_names = '*'")
	c.execute("SELECT pg_reload_conf()")
	harness.Until(c.t, "the synchronous standby", func() error {
		state, err := c.query("SELECT coalesce(string_agg(sync_state, ' '), 'none') FROM pg_stat_replication")
		if err == nil && state != "sync" {
			err = fmt.Errorf("the standby is %s", state)
		}
		return err
	})
}

// failOver kills the primary at once, promotes the standby, and returns how long the
// database could not be written. Call addStandby afterwards.
func (c *cluster) failOver() time.Duration {
	c.t.Helper()
	began := time.Now()
	c.run("pg_ctl", "-D", c.nodes[c.primary].dir, "-m", "immediate", "-w", "stop")
	c.primary = 1 - c.primary
	c.run("pg_ctl", "-D", c.nodes[c.primary].dir, "-t", "60", "-w", "promote")
	return time.Since(began)
}

func (c *cluster) execute(statement string) {
	c.t.Helper()
	if err := c.ask(func(ctx context.Context, conn *pgx.Conn) error {
		_, err := conn.Exec(ctx, statement)
		return err
	}); err != nil {
		c.t.Fatalf("%s: %v", statement, err)
	}
}

func (c *cluster) query(statement string) (text string, err error) {
	return text, c.ask(func(ctx context.Context, conn *pgx.Conn) error { return conn.QueryRow(ctx, statement).Scan(&text) })
}

// ask uses a connection to the primary.
func (c *cluster) ask(use func(context.Context, *pgx.Conn) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), harness.Patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, fmt.Sprintf("postgres://exeunt@127.0.0.1:%d/postgres?sslmode=disable", c.nodes[c.primary].port))
	if err != nil {
		return err
	}
	defer func() { _ = conn.Close(ctx) }()
	return use(ctx, conn)
}
