//go:build patroni

package robust_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
	"github.com/exeunt/exeunt/test/leash"
)

// TestPatroni is TestRobust on a database that Patroni fails over. The replicas know both nodes and
// look for the one that can be written.
func TestPatroni(t *testing.T) {
	seed := *robustSeed
	if seed == 0 {
		seed = rand.Uint64()
	}
	p := newPatroni(t)
	w := newWorld(t, seed, p.cluster, false)
	w.newDeck = func() []func(int) fault { return p.deck(w) }
	w.runAll()
}

// patroni manages the nodes of a cluster: it elects the primary with a lease in etcd, promotes the
// synchronous standby when the lease ends, and makes a standby of a node that comes back.
type patroni struct {
	*cluster
	dir    string
	agents [2]*exec.Cmd
}

// lease is how long Patroni's leader may be silent: the least that it allows.
const lease = 20 * time.Second

const patroniConfig = `
scope: exeunt
name: node%[1]d
restapi: {listen: "127.0.0.1:%[2]d", connect_address: "127.0.0.1:%[2]d"}
etcd3: {host: "127.0.0.1:%[3]d"}
bootstrap:
  dcs:
    ttl: %[6]d
    loop_wait: 1
    retry_timeout: 3
    synchronous_mode: true
    postgresql:
      use_pg_rewind: false
      parameters: {max_connections: 200, fsync: "off", wal_keep_size: 256MB}
  initdb: [{encoding: UTF8}]
  pg_hba: ["host all all 127.0.0.1/32 trust", "host replication all 127.0.0.1/32 trust"]
postgresql:
  listen: "127.0.0.1:%[4]d"
  connect_address: "127.0.0.1:%[4]d"
  data_dir: %[5]s
  bin_dir: %[7]s
  pgpass: %[5]s.pgpass
  remove_data_directory_on_diverged_timelines: true
  remove_data_directory_on_rewind_failure: true
  parameters: {unix_socket_directories: ""}
  authentication: {superuser: {username: exeunt}, replication: {username: replicator}}
`

// newPatroni starts etcd and two nodes.
func newPatroni(t *testing.T) *patroni {
	t.Helper()
	dir, err := os.MkdirTemp("", "exeunt-patroni-")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &patroni{cluster: &cluster{t: t, bin: findPostgres(t)}, dir: dir}
	if os.Getuid() == 0 {
		c.as = credential(t, "postgres")
		if err := errors.Join(os.Chmod(dir, 0o755), os.Chown(dir, int(c.as.Uid), int(c.as.Gid))); err != nil {
			t.Fatal(err)
		}
	}
	etcd, peers := freePort(t), freePort(t)
	c.agent("etcd", "--data-dir", filepath.Join(dir, "etcd"), "--unsafe-no-fsync", "--initial-cluster", fmt.Sprintf("default=http://127.0.0.1:%d", peers),
		"--listen-client-urls", fmt.Sprintf("http://127.0.0.1:%d", etcd), "--advertise-client-urls", fmt.Sprintf("http://127.0.0.1:%d", etcd),
		"--listen-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", peers), "--initial-advertise-peer-urls", fmt.Sprintf("http://127.0.0.1:%d", peers))
	for i := range c.nodes {
		c.nodes[i] = node{dir: filepath.Join(dir, strconv.Itoa(i)), port: freePort(t)}
		config := fmt.Sprintf(patroniConfig, i, freePort(t), etcd, c.nodes[i].port, c.nodes[i].dir, int(lease/time.Second), c.bin)
		if err := os.WriteFile(c.nodes[i].dir+".yml", []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
		c.startAgent(i)
	}
	t.Cleanup(func() {
		for i := range c.nodes {
			c.killNode(i)
		}
	})
	c.awaitLeader(-1)
	c.awaitStandby()
	c.execute("CREATE DATABASE exeunt")
	return c
}

// agent starts a program that ends with the test.
func (c *patroni) agent(name string, args ...string) *exec.Cmd {
	c.t.Helper()
	path, err := exec.LookPath(name)
	if err != nil {
		c.t.Fatalf("%v: run the test with script/patroni, which installs it", err)
	}
	out, err := os.OpenFile(filepath.Join(c.dir, name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		c.t.Fatal(err)
	}
	defer out.Close()
	cmd := exec.Command(path, args...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = c.dir, out, out
	cmd.SysProcAttr = leash.Leash()
	cmd.SysProcAttr.Credential = c.as
	if err := cmd.Start(); err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait()
	})
	return cmd
}

func (c *patroni) startAgent(i int) {
	c.t.Helper()
	c.agents[i] = c.agent("patroni", c.nodes[i].dir+".yml")
}

// killNode kills a node as a power cut does: Patroni's agent, and PostgreSQL.
func (c *patroni) killNode(i int) {
	_ = c.agents[i].Process.Kill()
	_ = c.agents[i].Wait()
	text, err := os.ReadFile(filepath.Join(c.nodes[i].dir, "postmaster.pid"))
	if err != nil {
		return // it does not run
	}
	first, _, _ := strings.Cut(string(text), "\n")
	if pid, err := strconv.Atoi(first); err == nil {
		_ = syscall.Kill(pid, syscall.SIGKILL) // its processes notice, and end
	}
}

// awaitLeader waits until a node other than the given one can be written.
func (c *patroni) awaitLeader(not int) {
	c.t.Helper()
	harness.Within(c.t, 4*harness.Patience, "a primary", func() error {
		err := errors.New("both nodes are down")
		for i := range c.nodes {
			if i == not {
				continue
			}
			c.primary = i
			var standby string
			if standby, err = c.query("SELECT pg_is_in_recovery()::text"); err == nil && standby == "false" {
				return nil
			}
		}
		return errors.Join(err, errors.New("no node can be written"))
	})
}

// deck has the faults of replicas, and those that Patroni repairs.
func (c *patroni) deck(w *world) []func(int) fault {
	killed := func() fault { return c.primaryKilled(w) }
	return w.shuffled([]func(int) fault{
		w.kill, w.stop, w.cutDatabase, w.cutClients, w.breakDatabase, w.breakCommits, w.breakCommits, w.slowLink,
		ofCluster(killed), ofCluster(killed),
		ofCluster(func() fault {
			standby := 1 - c.primary
			return fault{kind: "standby killed", begin: func() { c.killNode(standby) }, end: func() {
				c.startAgent(standby)
				c.awaitStandby()
			}}
		}),
	})
}

// primaryKilled lasts until Patroni's lease has ended.
func (c *patroni) primaryKilled(w *world) fault {
	gone := c.primary
	return fault{kind: "primary killed, Patroni fails over", begin: func() {
		began := time.Now()
		c.killNode(gone)
		c.awaitLeader(gone)
		w.failovers = append(w.failovers, time.Since(began))
	}, end: func() {
		c.startAgent(gone)
		c.awaitStandby()
	}}
}
