package harness

import (
	"bytes"
	"context"
	"fmt"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/test/leash"
)

// GOGC is what servers run with: a user's server spends processor to save memory. A package that measures its memory sets it to the
// empty string, which is what users have.
var GOGC = "400"

// Server is one exeunt process. Only the test's own goroutine may call its methods; the
// clients that Config makes may be used anywhere.
type Server struct {
	Engine     string
	Database   string // value of --database
	Kubeconfig string // path of the administrator's kubeconfig

	t       testing.TB
	dir     string   // --data
	listen  string   // --listen; a fixed port once the first start chose one
	images  string   // --registry-listen; likewise, after the first call of Registry
	flags   []string // further flags
	log     string   // path of the file with the output of the process
	program func() (path string, err error)
	sockets []Socket // that each start inherits, as from systemd
	clock   bool     // its program has a clock that SetClock steps

	cmd    *exec.Cmd     // nil while stopped
	exited chan struct{} // closed when cmd has ended
}

// Start runs a server on a fresh database and waits until it answers.
func Start(t testing.TB, engine string, flags ...string) *Server {
	t.Helper()
	return start(t, t.TempDir(), engine, Database(t, engine), flags)
}

// StartOn is Start on a given database.
func StartOn(t testing.TB, engine, database string, flags ...string) *Server {
	t.Helper()
	return start(t, t.TempDir(), engine, database, flags)
}

// Socket is a listening socket that systemd opened. Name is the FileDescriptorName of its
// unit.
type Socket struct {
	Name string
	File *os.File
}

// StartWithSockets is Start with sockets that systemd has opened.
func StartWithSockets(t testing.TB, engine string, sockets []Socket, flags ...string) *Server {
	t.Helper()
	s := prepare(t, t.TempDir(), engine, Database(t, engine), flags)
	s.sockets = sockets
	s.Start()
	return s
}

// Replica runs a second server on the same PostgreSQL database, with the same CA (so that
// clients of one trust the other), the same blobs and the same key for Secrets.
func (s *Server) Replica(t testing.TB) *Server {
	t.Helper()
	return s.ReplicaOn(t, s.Database, s.replicaFlags()...)
}

// replicaFlags are this server's flags, with its blobs.
func (s *Server) replicaFlags() []string {
	if slices.Contains(s.flags, "--registry-storage") {
		return s.flags
	}
	return append(slices.Clone(s.flags), "--registry-storage", filepath.Join(s.dir, "blobs"))
}

// ReplicaOn is Replica with its own way to the database, and its own flags.
func (s *Server) ReplicaOn(t testing.TB, database string, flags ...string) *Server {
	t.Helper()
	r := s.prepareReplica(t, database, flags)
	r.Start()
	return r
}

// prepareReplica returns a replica that is not started.
func (s *Server) prepareReplica(t testing.TB, database string, flags []string) *Server {
	t.Helper()
	if s.Engine != Postgres {
		t.Fatalf("replicas share a PostgreSQL database, not %s", s.Engine)
	}
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"pki/ca.crt", "pki/ca.key", "encryption.yaml"} {
		data, err := os.ReadFile(filepath.Join(s.dir, name))
		if err == nil {
			err = os.WriteFile(filepath.Join(dir, name), data, 0o600)
		}
		if err != nil {
			t.Fatalf("share the CA and the key for Secrets: %v", err)
		}
	}
	return prepare(t, dir, s.Engine, database, flags)
}

// Refused runs a server on the database of another one, with its own data directory that
// shares nothing. The server must refuse to start; Refused returns its output.
func Refused(t testing.TB, other *Server) string {
	t.Helper()
	return RefusedOn(t, other.Database)
}

// RefusedOn is Refused on a given database.
func RefusedOn(t testing.TB, database string) string {
	t.Helper()
	return refused(t, t.TempDir(), database)
}

// RefusedIn is Refused for the stopped server itself.
func RefusedIn(t testing.TB, s *Server) string {
	t.Helper()
	return refused(t, s.dir, s.Database)
}

func refused(t testing.TB, dir, database string) string {
	t.Helper()
	program, err := serverPath()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), Patience)
	defer cancel()
	cmd := exec.CommandContext(ctx, program, "serve", "--data", dir, "--listen", "127.0.0.1:0", "--registry-listen", "", "--database", database)
	out, err := cmd.CombinedOutput()
	if err == nil || ctx.Err() != nil {
		t.Fatalf("the server was not refused: %v\n%s", err, out)
	}
	return string(out)
}

func start(t testing.TB, dir, engine, database string, flags []string) *Server {
	t.Helper()
	s := prepare(t, dir, engine, database, flags)
	s.Start()
	return s
}

// prepare returns a server that is not started. It ends with the test.
func prepare(t testing.TB, dir, engine, database string, flags []string) *Server {
	t.Helper()
	s := &Server{
		Engine:     engine,
		Database:   database,
		Kubeconfig: filepath.Join(dir, "kubeconfig"),
		t:          t,
		dir:        dir,
		listen:     "127.0.0.1:0",
		images:     "127.0.0.1:0",
		flags:      flags,
		log:        filepath.Join(dir, "test.log"),
		program:    serverPath,
	}
	t.Cleanup(func() {
		s.Kill()
		if t.Failed() {
			t.Logf("the server's last output:\n%s", s.tail())
		}
	})
	return s
}

// Start runs the process again after Stop or Kill, at the same address, and
// waits until it answers.
func (s *Server) Start() {
	s.t.Helper()
	if s.cmd != nil {
		s.t.Fatal("the server is already running")
	}
	program, err := s.program()
	if err != nil {
		s.t.Fatal(err)
	}
	out, err := os.OpenFile(s.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		s.t.Fatal(err)
	}
	defer out.Close()
	args := append([]string{"serve", "--data", s.dir, "--listen", s.listen, "--registry-listen", s.images, "--database", s.Database}, s.flags...)
	cmd := exec.Command(program, args...)
	if s.sockets != nil {
		cmd = withSockets(s.sockets, program, args)
	}
	// Temporary folders are in memory, where a reserve for each server would need too much. A flag of the test has the last word.
	cmd.Env = append(cmd.Environ(), "EXEUNT_DISK_RESERVE_BYTES=0", "GOGC="+GOGC, "GOMEMLIMIT=")
	if s.clock {
		cmd.Env = append(cmd.Environ(), clockVariable+"="+s.clockFile())
	}
	cmd.Stdout, cmd.Stderr = out, out
	cmd.SysProcAttr = leash.Leash()
	if err := cmd.Start(); err != nil {
		s.t.Fatalf("start the server: %v", err)
	}
	s.cmd, s.exited = cmd, make(chan struct{})
	go func(exited chan struct{}) {
		cmd.Wait()
		close(exited)
	}(s.exited)
	s.awaitReady()
}

// withSockets is a command that inherits sockets, by the protocol of systemd: they begin at
// descriptor 3, and LISTEN_PID is the id of the process.
func withSockets(sockets []Socket, program string, args []string) *exec.Cmd {
	cmd := exec.Command("sh", append([]string{"-c", `LISTEN_PID=$$ exec "$@"`, "sh", program}, args...)...)
	var names []string
	for _, socket := range sockets {
		names = append(names, socket.Name)
		cmd.ExtraFiles = append(cmd.ExtraFiles, socket.File)
	}
	cmd.Env = append(os.Environ(), fmt.Sprintf("LISTEN_FDS=%d", len(sockets)), "LISTEN_FDNAMES="+strings.Join(names, ":"))
	return cmd
}

// awaitReady returns when the process answers /readyz at the address in its
// kubeconfig.
func (s *Server) awaitReady() {
	s.t.Helper()
	deadline := time.Now().Add(Patience)
	for pause := 5 * time.Millisecond; ; pause = min(2*pause, 50*time.Millisecond) {
		err := s.ready()
		if err == nil {
			break
		}
		select {
		case <-s.exited:
			s.t.Fatalf("the server ended with %v while starting:\n%s", s.cmd.ProcessState, s.tail())
		case <-time.After(pause):
		}
		if time.Now().After(deadline) {
			s.t.Fatalf("the server is not ready after %v: %v\n%s", Patience, err, s.tail())
		}
	}
	u, err := url.Parse(s.Config().Host)
	if err != nil {
		s.t.Fatalf("the kubeconfig's address: %v", err)
	}
	s.listen = u.Host
}

func (s *Server) ready() error {
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		return err
	}
	client, err := rest.HTTPClientFor(config)
	if err != nil {
		return err
	}
	defer client.CloseIdleConnections()
	client.Timeout = 2 * time.Second
	answer, err := client.Get(config.Host + "/readyz")
	if err != nil {
		return err
	}
	answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("/readyz answers %s", answer.Status)
	}
	return nil
}

// Stop asks the process to end (SIGTERM) and waits for it. A shutdown that
// takes longer than Patience, or ends with an error, fails the test.
func (s *Server) Stop() {
	s.t.Helper()
	if s.cmd == nil {
		return
	}
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		s.t.Fatalf("stop the server: %v", err)
	}
	select {
	case <-s.exited:
	case <-time.After(Patience):
		s.t.Fatalf("the server is still there %v after SIGTERM:\n%s", Patience, s.tail())
	}
	if state := s.cmd.ProcessState; !state.Success() {
		s.t.Fatalf("the server ended with %v after SIGTERM:\n%s", state, s.tail())
	}
	s.cmd = nil
}

// Kill ends the process at once (SIGKILL), as a crash would.
func (s *Server) Kill() {
	if s.cmd == nil {
		return
	}
	s.cmd.Process.Kill()
	<-s.exited
	s.cmd = nil
}

// Pid returns the id of the running process.
func (s *Server) Pid() int { return s.cmd.Process.Pid }

// Restart stops the process gracefully and starts it again, at the same
// address and on the same database.
func (s *Server) Restart() {
	s.t.Helper()
	s.Stop()
	s.Start()
}

// Alive fails the test when the process has ended or does not answer.
func (s *Server) Alive() {
	s.t.Helper()
	select {
	case <-s.exited:
		s.t.Fatalf("the server ended with %v:\n%s", s.cmd.ProcessState, s.tail())
	default:
	}
	if err := s.ready(); err != nil {
		s.t.Fatalf("the server does not answer: %v", err)
	}
}

// Config returns the administrator's client configuration, without client-side rate
// limits.
func (s *Server) Config() *rest.Config {
	s.t.Helper()
	config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
	if err != nil {
		s.t.Fatalf("read the kubeconfig: %v", err)
	}
	config.QPS = -1
	return config
}

// Registry returns the address of the OCI registry, HOST:PORT. It stays the same across
// restarts.
func (s *Server) Registry() string {
	s.t.Helper()
	if !strings.HasSuffix(s.images, ":0") {
		return s.images
	}
	said := s.Said()
	_, rest, found := strings.Cut(said, "The OCI registry is at http://")
	if !found {
		s.t.Fatalf("the server does not say where its registry is:\n%s", said)
	}
	s.images, _, _ = strings.Cut(rest, "\n")
	s.keepLogin()
	return s.images
}

// Said returns everything that the process and its predecessors have printed.
func (s *Server) Said() string {
	s.t.Helper()
	data, err := os.ReadFile(s.log)
	if err != nil {
		s.t.Fatal(err)
	}
	return string(data)
}

// tail returns the last lines that the process printed.
func (s *Server) tail() string {
	data, err := os.ReadFile(s.log)
	if err != nil {
		return err.Error()
	}
	lines := strings.Split(string(bytes.TrimSpace(data)), "\n")
	return strings.Join(lines[max(0, len(lines)-60):], "\n")
}
