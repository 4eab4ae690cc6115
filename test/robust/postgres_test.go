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
	// replication[i] is the standby's connection to node i while node i is the primary.
	replication [2]*link
	panics      int    // nodes that ended by themselves, on a full disk
	fakeTime    string // the library that steps the nodes' clocks; empty means they do not step
}

type node struct {
	disk  disk
	dir   string
	clock string // the file with the offset of its clock
	port  int
}

// newCluster starts both nodes. With steps their clocks can be stepped.
func newCluster(t *testing.T, steps bool) *cluster {
	t.Helper()
	harness.Database(t, harness.Postgres) // installs PostgreSQL where it is missing
	dir, err := os.MkdirTemp("", "exeunt-robust-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{t: t, bin: findPostgres(t)}
	if steps {
		c.fakeTime = findFakeTime(t)
	}
	if os.Getuid() == 0 {
		c.as = credential(t, "postgres")
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, int(c.as.Uid), int(c.as.Gid))); err != nil {
			t.Fatal(err)
		}
	}
	for i := range c.nodes {
		at := filepath.Join(dir, strconv.Itoa(i))
		c.nodes[i] = node{dir: at, clock: at + ".clock", port: freePort(t)}
		if c.as != nil {
			c.mountDisk(i)
		}
		c.setClock(i, 0)
		c.replication[i] = newLink(t, fmt.Sprintf("standby to database node %d", i), fmt.Sprint("127.0.0.1:", c.nodes[i].port))
	}
	// Small segments: a full disk then stops the log within seconds, and not after 16 MiB.
	c.run("initdb", "-D", c.nodes[0].dir, "-U", "exeunt", "-A", "trust", "-E", "UTF8", "--no-sync", "--wal-segsize=1")
	t.Cleanup(func() {
		for i := range c.nodes {
			_ = c.command("pg_ctl", "-D", c.nodes[i].dir, "-m", "immediate", "stop").Run()
		}
	})
	c.start(0)
	// The operating system survives, so nothing is synced, but while the disk is slow.
	c.alter("fsync = off")
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

// findFakeTime finds Debian's libfaketime. Without it the run goes on, and its report says so.
func findFakeTime(t *testing.T) string {
	t.Helper()
	found, _ := filepath.Glob("/usr/lib/*/faketime/libfaketime.so.1")
	if len(found) == 0 {
		t.Log("the database's clock does not step: install the package libfaketime")
		return ""
	}
	return found[0]
}

// setClock sets the difference between a node's clock and the machine's. The node notices
// within a second.
func (c *cluster) setClock(i int, offset time.Duration) {
	c.t.Helper()
	if err := os.WriteFile(c.nodes[i].clock, fmt.Appendf(nil, "%+ds\n", int64(offset/time.Second)), 0o644); err != nil {
		c.t.Fatal(err)
	}
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
	c.runWith(nil, name, args...)
}

func (c *cluster) runWith(environment []string, name string, args ...string) {
	c.t.Helper()
	cmd := c.command(name, args...)
	cmd.Env = append(cmd.Env, environment...)
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

// start starts a node.
func (c *cluster) start(i int) {
	c.t.Helper()
	n := c.nodes[i]
	var environment []string
	if c.fakeTime != "" {
		environment = []string{"LD_PRELOAD=" + c.fakeTime, "FAKETIME_TIMESTAMP_FILE=" + n.clock, "FAKETIME_CACHE_DURATION=1", "FAKETIME_DONT_FAKE_MONOTONIC=1"}
	}
	c.runWith(environment, "pg_ctl", "-D", n.dir, "-l", n.dir+".log", "-t", "60", "-w", "start", "-o", fmt.Sprintf(
		"-p %d -c listen_addresses=127.0.0.1 -c unix_socket_directories='' -c max_connections=200 -c full_page_writes=on -c synchronous_commit=on -c min_wal_size=2MB -c max_wal_size=64MB -c wal_keep_size=256MB", n.port))
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
	host, port, err := net.SplitHostPort(c.replication[c.primary].address())
	if err != nil {
		c.t.Fatal(err)
	}
	// The last line of a setting counts.
	c.appendTo(filepath.Join(s.dir, "postgresql.auto.conf"), fmt.Sprintf("primary_conninfo = 'host=%s port=%s user=exeunt'\nwal_retrieve_retry_interval = 200\n", host, port))
	c.start(1 - c.primary)
	c.alter("synchronous_standby_names = '*'")
	c.awaitStandby()
}

// alter changes settings of the primary.
func (c *cluster) alter(settings ...string) {
	c.t.Helper()
	for _, s := range settings {
		c.execute("ALTER SYSTEM SET " + s)
	}
	c.execute("SELECT pg_reload_conf()")
}

func (c *cluster) awaitStandby() {
	c.t.Helper()
	harness.Within(c.t, 4*harness.Patience, "the synchronous standby", c.standbyIsSync)
}

func (c *cluster) standbyIsSync() error {
	state, err := c.query("SELECT coalesce(string_agg(sync_state, ' '), 'none') FROM pg_stat_replication WHERE state = 'streaming'")
	if err == nil && state != "sync" {
		err = fmt.Errorf("the standby is %s", state)
	}
	return err
}

func (c *cluster) appendTo(name, text string) {
	c.t.Helper()
	file, err := os.OpenFile(name, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		c.t.Fatal(err)
	}
	defer file.Close()
	if _, err := file.WriteString(text); err != nil {
		c.t.Fatal(err)
	}
}

// cutStandby cuts the standby off from the primary: commits wait.
func (c *cluster) cutStandby(m mode) { c.replication[c.primary].set(m) }

func (c *cluster) joinStandby() {
	c.t.Helper()
	c.replication[c.primary].set(passing)
	c.awaitStandby()
}

// failOver kills the primary at once, promotes the standby, and returns how long the
// database could not be written. Call addStandby afterwards.
func (c *cluster) failOver() time.Duration {
	c.t.Helper()
	began := time.Now()
	c.run("pg_ctl", "-D", c.nodes[c.primary].dir, "-m", "immediate", "-w", "stop")
	// What a cut link still held is lost with the primary.
	c.replication[c.primary].set(refusing)
	c.replication[c.primary].set(passing)
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
