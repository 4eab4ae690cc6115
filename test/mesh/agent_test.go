package mesh_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
	"github.com/exeunt/exeunt/test/leash"
)

// agent is an `exeunt node join` process with its own directory.
type agent struct {
	t     *testing.T
	name  string
	args  []string
	state string
	log   string

	cmd    *exec.Cmd
	exited chan struct{}
}

func program(t *testing.T) string {
	t.Helper()
	dir, err := harness.PluginDir()
	if err != nil {
		t.Fatal(err)
	}
	return filepath.Join(dir, "exeunt")
}

// exeunt runs a command as administrator and returns its output.
func exeunt(t *testing.T, s *harness.Server, args ...string) string {
	t.Helper()
	cmd := exec.Command(program(t), append(args, "--kubeconfig", s.Kubeconfig)...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("exeunt %s: %v", strings.Join(args, " "), err)
	}
	return string(out)
}

// join creates a token for a namespace and runs exactly the command that the server
// prints.
func join(t *testing.T, s *harness.Server, namespace, name string, flags ...string) *agent {
	t.Helper()
	printed := strings.Fields(exeunt(t, s, "node", "token", "create", "-n", namespace, "--ttl", "10m"))
	a := &agent{t: t, name: name, state: filepath.Join(t.TempDir(), name), log: filepath.Join(t.TempDir(), "log")}
	a.args = append(append(printed[1:], "--name", name, "--state", a.state), flags...)
	a.start()
	t.Cleanup(func() {
		a.kill()
		if t.Failed() {
			t.Logf("agent %s said:\n%s", name, a.said())
		}
	})
	harness.Until(t, name+" to join", func() error {
		_, err := os.Stat(filepath.Join(a.state, "peers.json"))
		return err
	})
	return a
}

func (a *agent) start() {
	a.t.Helper()
	out, err := os.OpenFile(a.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		a.t.Fatal(err)
	}
	defer out.Close()
	a.cmd, a.exited = exec.Command(program(a.t), a.args...), make(chan struct{})
	a.cmd.Stdout, a.cmd.Stderr = out, out
	a.cmd.SysProcAttr = leash.Leash()
	if err := a.cmd.Start(); err != nil {
		a.t.Fatal(err)
	}
	go func(cmd *exec.Cmd, exited chan struct{}) {
		_ = cmd.Wait()
		close(exited)
	}(a.cmd, a.exited)
}

func (a *agent) said() string {
	data, err := os.ReadFile(a.log)
	if err != nil {
		return err.Error()
	}
	return string(data)
}

func (a *agent) signal(s syscall.Signal) {
	a.t.Helper()
	if err := a.cmd.Process.Signal(s); err != nil {
		a.t.Fatalf("signal agent %s: %v", a.name, err)
	}
}

// kill ends the process at once.
func (a *agent) kill() {
	_ = a.cmd.Process.Kill() // it may have ended
	<-a.exited
}

// ends waits until the process has ended and expects this exit code.
func (a *agent) ends(code int) {
	a.t.Helper()
	harness.Until(a.t, "agent "+a.name+" to end", func() error {
		select {
		case <-a.exited:
			return nil
		default:
			return errors.New("it runs")
		}
	})
	if got := a.cmd.ProcessState.ExitCode(); got != code {
		a.t.Errorf("agent %s ended with %d, not %d:\n%s", a.name, got, code, a.said())
	}
}

// peers returns the phases of the peers in the agent's file, by name.
func (a *agent) peers() map[string]string {
	a.t.Helper()
	data, err := os.ReadFile(filepath.Join(a.state, "peers.json"))
	if err != nil {
		a.t.Fatal(err)
	}
	var file struct {
		Peers []struct{ Name, Phase string }
	}
	if err := json.Unmarshal(data, &file); err != nil {
		a.t.Fatal(err)
	}
	out := map[string]string{}
	for _, p := range file.Peers {
		out[p.Name] = p.Phase
	}
	return out
}

// sees waits until the agent's file has a peer in a phase. If the phase is empty, it waits until
// the peer is absent.
func (a *agent) sees(peer, phase string) {
	a.t.Helper()
	harness.Until(a.t, fmt.Sprintf("agent %s to see %s as %q", a.name, peer, phase), func() error {
		if got := a.peers()[peer]; got != phase {
			return fmt.Errorf("it is %q", got)
		}
		return nil
	})
}

// echo is a service that the nodes relay to: it sends back what it receives.
func echo(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				_, _ = io.Copy(conn, conn)
				_ = conn.Close()
			}()
		}
	}()
	return l.Addr().String()
}

// talk sends a line and reads it back.
func talk(conn net.Conn) error {
	if _, err := conn.Write([]byte("hello")); err != nil {
		return err
	}
	_, err := io.ReadFull(conn, make([]byte, 5))
	return err
}
