package harness

import (
	"bufio"
	"bytes"
	"context"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/leash"
)

// Result is the output of a command.
type Result struct {
	Stdout, Stderr string
	Code           int // exit code
}

// Kubectl runs the real kubectl as administrator. A command that takes longer
// than two minutes is killed and fails the test.
func (s *Server) Kubectl(t testing.TB, args ...string) Result {
	t.Helper()
	return s.KubectlCommand(t, Command{Args: args})
}

// Command is a kubectl command with input, environment and directory.
type Command struct {
	Args  []string
	Stdin string
	Env   []string // "NAME=value", added to the test's own environment
	Dir   string   // where to run it; file names in Args are relative to it
}

// KubectlCommand runs a command like Kubectl.
func (s *Server) KubectlCommand(t testing.TB, c Command) Result {
	t.Helper()
	return s.run(t, KubectlPath(t), c)
}

func (s *Server) run(t testing.TB, program string, c Command) Result {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, c.Args...)
	var stdout, stderr bytes.Buffer
	cmd.Stdin, cmd.Stdout, cmd.Stderr = strings.NewReader(c.Stdin), &stdout, &stderr
	cmd.Dir = c.Dir
	cmd.Env = append(append(s.environment(), Brief()...), c.Env...)
	err := cmd.Run()
	if ctx.Err() != nil {
		t.Fatalf("%s: still running after two minutes\n%s%s", cmd, stdout.String(), stderr.String())
	}
	if cmd.ProcessState == nil {
		t.Fatalf("%s: %v", cmd, err)
	}
	return Result{Stdout: stdout.String(), Stderr: stderr.String(), Code: cmd.ProcessState.ExitCode()}
}

// Exeunt runs a command of this program as administrator.
func (s *Server) Exeunt(t testing.TB, args ...string) Result {
	t.Helper()
	program, err := s.program()
	if err != nil {
		t.Fatal(err)
	}
	return s.run(t, program, Command{Args: args})
}

// KubectlPath builds kubectl, if necessary, and returns its path.
func KubectlPath(t testing.TB) string {
	t.Helper()
	program, err := kubectlPath()
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// Process is a kubectl command that runs concurrently with the test.
type Process struct {
	lines chan string
	name  string
}

// KubectlStart starts a command that keeps running, such as a watch, until the test ends.
func (s *Server) KubectlStart(t testing.TB, args ...string) *Process {
	t.Helper()
	cmd := exec.Command(KubectlPath(t), args...)
	cmd.Env = s.environment()
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = leash.Leash()
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	p := &Process{lines: make(chan string, 1000), name: "kubectl " + strings.Join(args, " ")}
	done := make(chan struct{})
	go func() {
		defer close(done)
		defer close(p.lines)
		for scanner := bufio.NewScanner(out); scanner.Scan(); {
			p.lines <- scanner.Text()
		}
		cmd.Wait()
	}()
	t.Cleanup(func() {
		cmd.Process.Kill()
		<-done
	})
	return p
}

// Line returns the next line of the process's output.
func (p *Process) Line(t testing.TB) string {
	t.Helper()
	select {
	case line, ok := <-p.lines:
		if !ok {
			t.Fatalf("%s ended early", p.name)
		}
		return line
	case <-time.After(Patience):
		t.Fatalf("%s printed nothing for %v", p.name, Patience)
	}
	return ""
}

// environment returns kubectl's environment. HOME holds its discovery cache: one per
// server, because the servers have different kinds.
// Brief is the environment of a Go program that soon ends: it collects no garbage, which takes a third of its processor time.
func Brief() []string { return []string{"GOGC=off", "GOMEMLIMIT=500MiB"} }

func (s *Server) environment() []string {
	return append(os.Environ(), "KUBECONFIG="+s.Kubeconfig, "HOME="+s.dir)
}
