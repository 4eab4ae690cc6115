// Package peers runs the real Kubernetes programs that script/kubernetes builds:
// a kube-apiserver with its etcd, to compare our server with, and the programs that use an
// API server: kube-controller-manager, kube-scheduler and kwok.
//
// A Group owns the processes. It starts each with its log in one directory, and stops them in
// reverse order. The programs listen on loopback only. The package does not know our
// server: callers pass a kubeconfig.
package peers

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/exeunt/exeunt/test/leash"
)

// patience bounds the wait until a program answers or ends.
const patience = 2 * time.Minute

// Group is a set of processes.
type Group struct {
	// Sync lets etcd sync every commit to disk: for measurements. Tests do without.
	Sync bool

	bin string // directory of the programs
	dir string // logs and state

	mu        sync.Mutex
	processes []*Process // in the order of their starts; guarded by mu
}

// Process is one running program.
type Process struct {
	Name string
	Log  string // path

	cmd    *exec.Cmd
	exited chan struct{} // closed when the process has ended
}

// NewGroup makes a group. bin is the directory that script/kubernetes prints; dir receives
// logs and state.
func NewGroup(bin, dir string) (*Group, error) {
	if bin == "" {
		return nil, errors.New("the directory of the Kubernetes programs is not given: use the make targets, or script/kubernetes")
	}
	bin, err := filepath.Abs(bin)
	if err != nil {
		return nil, err
	}
	return &Group{bin: bin, dir: dir}, os.MkdirAll(dir, 0o700)
}

// Program returns the path of a program.
func (g *Group) Program(name string) (string, error) {
	path := filepath.Join(g.bin, name)
	if _, err := os.Stat(path); err != nil {
		return "", fmt.Errorf("%w: build it with script/kubernetes %s", err, name)
	}
	return path, nil
}

// Start runs a program.
func (g *Group) Start(name string, args ...string) (*Process, error) {
	return g.StartWith(nil, name, args...)
}

// StartWith is Start with further variables of the environment, each NAME=VALUE.
func (g *Group) StartWith(environment []string, name string, args ...string) (*Process, error) {
	path, err := g.Program(name)
	if err != nil {
		return nil, err
	}
	return g.startPath(environment, path, args...)
}

// StartPath runs a program that is not of this group's directory.
func (g *Group) StartPath(path string, args ...string) (*Process, error) {
	return g.startPath(nil, path, args...)
}

func (g *Group) startPath(environment []string, path string, args ...string) (*Process, error) {
	name := filepath.Base(path)
	p := &Process{Name: name, Log: filepath.Join(g.dir, name+".log"), exited: make(chan struct{})}
	log, err := os.OpenFile(p.Log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(path, args...)
	p.cmd.Env = append(os.Environ(), environment...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = leash.OwnGroup()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	go func() {
		_ = p.cmd.Wait() // the process state has the result
		close(p.exited)
	}()
	g.mu.Lock()
	defer g.mu.Unlock()
	g.processes = append(g.processes, p)
	return p, nil
}

// Pause stops a program for a moment, until resume is called, so that its files can be copied.
func (g *Group) Pause(name string) (resume func() error, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	i := slices.IndexFunc(g.processes, func(p *Process) bool { return p.Name == name })
	if i < 0 {
		return nil, fmt.Errorf("%s does not run", name)
	}
	process := g.processes[i].cmd.Process
	return func() error { return process.Signal(syscall.SIGCONT) }, process.Signal(syscall.SIGSTOP)
}

// Stop ends all processes, the last one first, and reports those that had ended before or
// did not end on SIGTERM.
func (g *Group) Stop() error {
	g.mu.Lock()
	processes := g.processes
	g.processes = nil
	g.mu.Unlock()
	var all []error
	for _, p := range slices.Backward(processes) {
		all = append(all, p.stop())
	}
	return errors.Join(all...)
}

func (p *Process) stop() error {
	select {
	case <-p.exited:
		return fmt.Errorf("%s ended early: %v\n%s", p.Name, p.cmd.ProcessState, p.tail())
	default:
	}
	_ = p.cmd.Process.Signal(syscall.SIGTERM) // it may end at this moment
	select {
	case <-p.exited:
		return nil
	case <-time.After(patience):
		_ = p.cmd.Process.Kill()
		<-p.exited
		return fmt.Errorf("%s did not end within %v of SIGTERM", p.Name, patience)
	}
}

// Running returns an error when a process has ended.
func (g *Group) Running() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	for _, p := range g.processes {
		select {
		case <-p.exited:
			return fmt.Errorf("%s ended: %v\n%s", p.Name, p.cmd.ProcessState, p.tail())
		default:
		}
	}
	return nil
}

// tail returns the last lines of the log.
func (p *Process) tail() string {
	data, err := os.ReadFile(p.Log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(strings.TrimSpace(string(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// until polls until the condition holds or a process of the group has ended.
func (g *Group) until(ctx context.Context, what string, condition func() error) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		err := condition()
		if err == nil {
			return nil
		}
		if ended := g.Running(); ended != nil {
			return ended
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("waiting for %s: %w", what, err)
		case <-time.After(100 * time.Millisecond):
		}
	}
}

// healthy asks a URL without verifying the certificate, which the program signed itself.
func healthy(url string) error {
	client := http.Client{Timeout: 2 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}}
	defer client.CloseIdleConnections()
	answer, err := client.Get(url)
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("%s answers %s", url, answer.Status)
	}
	return nil
}

// freePort returns a port that was free a moment ago.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, err
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
