package dbtest

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"syscall"
	"time"

	"github.com/jackc/pgx/v5"
)

// server is a private PostgreSQL. It listens only on a socket in its own directory,
// and does not sync: its data is removed after the tests.
type server struct {
	dir  string
	url  string
	cmd  *exec.Cmd
	done chan error // receives once, when the process has ended
}

const startTimeout = 60 * time.Second

func start() (*server, error) {
	bin, err := findBinaries()
	if err != nil {
		return nil, err
	}
	dir, err := os.MkdirTemp("", "exeunt-pg")
	if err != nil {
		return nil, err
	}
	attributes, err := unprivileged(dir)
	if err != nil {
		return nil, errors.Join(err, os.RemoveAll(dir))
	}
	s := &server{dir: dir, done: make(chan error, 1)}
	if err := s.launch(bin, attributes); err != nil {
		s.stop()
		return nil, err
	}
	return s, nil
}

// findBinaries finds PostgreSQL's programs in PATH, or else the newest version in
// Debian's directory.
func findBinaries() (dir string, err error) {
	if path, err := exec.LookPath("initdb"); err == nil {
		if path, err = filepath.EvalSymlinks(path); err == nil {
			return filepath.Dir(path), nil
		}
	}
	found, err := filepath.Glob("/usr/lib/postgresql/*/bin/initdb")
	if err != nil || len(found) == 0 {
		return "", fmt.Errorf("no initdb found: install the package postgresql, or set %s", environment)
	}
	return filepath.Dir(slices.Max(found)), nil
}

func (s *server) launch(bin string, attributes *syscall.SysProcAttr) error {
	data := filepath.Join(s.dir, "data")
	initdb := exec.Command(filepath.Join(bin, "initdb"), "-D", data, "-U", "exeunt", "-A", "trust",
		"-E", "UTF8", "--no-locale", "--no-sync")
	initdb.Dir, initdb.SysProcAttr = s.dir, attributes
	if out, err := initdb.CombinedOutput(); err != nil {
		return fmt.Errorf("initdb: %w: %s", err, out)
	}
	var output bytes.Buffer
	s.cmd = exec.Command(filepath.Join(bin, "postgres"), "-D", data, "-k", s.dir, "-h", "",
		"-c", "fsync=off", "-c", "full_page_writes=off", "-c", "max_connections=300")
	s.cmd.Dir, s.cmd.SysProcAttr = s.dir, attributes
	s.cmd.Stdout, s.cmd.Stderr = &output, &output
	launched := make(chan error)
	go func() {
		// Pdeathsig is bound to the thread that starts the process.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := s.cmd.Start()
		launched <- err
		if err == nil {
			s.done <- s.cmd.Wait()
		}
	}()
	if err := <-launched; err != nil {
		s.cmd = nil
		return fmt.Errorf("start postgres: %w", err)
	}
	s.url = "postgres://exeunt@/postgres?host=" + url.QueryEscape(s.dir)
	return s.wait(&output)
}

func (s *server) wait(output *bytes.Buffer) error {
	ctx, cancel := context.WithTimeout(context.Background(), startTimeout)
	defer cancel()
	for {
		conn, err := pgx.Connect(ctx, s.url)
		if err == nil {
			return conn.Close(ctx)
		}
		select {
		case ended := <-s.done:
			s.cmd = nil
			return fmt.Errorf("postgres ended: %w: %s", ended, output)
		case <-ctx.Done():
			return fmt.Errorf("postgres does not answer: %w", err)
		case <-time.After(50 * time.Millisecond):
		}
	}
}

// stop ends the server at once and removes its directory.
func (s *server) stop() {
	if s.cmd != nil {
		// SIGQUIT is PostgreSQL's immediate shutdown.
		if err := s.cmd.Process.Signal(syscall.SIGQUIT); err == nil {
			<-s.done
		}
	}
	if err := os.RemoveAll(s.dir); err != nil {
		fmt.Fprintln(os.Stderr, "dbtest:", err)
	}
}
