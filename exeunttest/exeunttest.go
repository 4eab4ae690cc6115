// Package exeunttest starts Exeunt servers for tests: a Kubernetes API with a garbage
// collector, in a process of its own, on a free port, whose data leaves with the test.
//
//	func TestController(t *testing.T) {
//		s := exeunttest.Start(t)
//		config, err := clientcmd.BuildConfigFromFlags("", s.Kubeconfig)
//		...
//		s.WaitIdle() // everything that can leave has left
//	}
//
// The package needs the standard library only: tests choose their own client. [Prepared]
// gives each test its own copy of a server with CustomResourceDefinitions and other objects
// that all tests need. If a test fails, its log says which objects were still leaving, and
// why.
//
// It runs the program that $EXEUNT names, or exeunt in $PATH, or else builds one with go.
package exeunttest

import (
	"bufio"
	"bytes"
	"crypto/tls"
	"crypto/x509"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io/fs"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"time"
)

// TB is what the package needs of *testing.T, *testing.B or GinkgoT().
type TB interface {
	Helper()
	Logf(format string, args ...any)
	Fatalf(format string, args ...any)
	Failed() bool
	Cleanup(func())
	TempDir() string
}

// Server is a running server. It stops with its test. Only the goroutine of the test may call
// its methods.
type Server struct {
	Kubeconfig string // path of the administrator's kubeconfig
	Host       string // https://127.0.0.1:PORT
	CA         []byte // the certificate authority, in PEM
	Cert, Key  []byte // of the administrator, in PEM
	Data       string // its data directory

	t      TB
	flags  []string
	cmd    *exec.Cmd
	client *http.Client
}

// Start starts a server with an empty database, and waits until it serves. flags are further
// flags of "exeunt serve".
func Start(t TB, flags ...string) *Server {
	t.Helper()
	return (&Snapshot{flags: flags}).Start(t)
}

// Snapshot is the content of a server's data directory at one moment. It is in memory.
type Snapshot struct {
	flags []string
	files map[string][]byte // by path in the directory
}

// Start starts a server with the objects of the snapshot.
func (p *Snapshot) Start(t TB) *Server {
	t.Helper()
	s := &Server{t: t, flags: p.flags, Data: t.TempDir()}
	s.must("write the snapshot", p.write(s.Data))
	s.start("127.0.0.1:0")
	t.Cleanup(func() {
		if t.Failed() {
			s.logLeaving()
		}
		s.kill()
	})
	return s
}

// Fork starts another server with the objects that this one has now, for t. It takes as long as
// a copy of the database and a start.
func (s *Server) Fork(t TB) *Server {
	t.Helper()
	s.t.Helper()
	return s.Snapshot().Start(t)
}

// Prepared returns a function that starts a server with the objects that prepare makes. The first
// call prepares a server of its own; each call starts a copy of it. Parallel tests may call it.
func Prepared(prepare func(t TB, s *Server), flags ...string) func(t TB) *Server {
	var once sync.Mutex
	var ready *Snapshot
	return func(t TB) *Server {
		t.Helper()
		once.Lock()
		if ready == nil {
			func() {
				defer once.Unlock() // also if prepare ends the test
				s := Start(t, flags...)
				prepare(t, s)
				ready = s.Snapshot()
				s.kill()
			}()
		} else {
			once.Unlock()
		}
		return ready.Start(t)
	}
}

// Snapshot copies the data of the server while its process is stopped by a signal. SQLite can
// read a copy of one moment: its write-ahead log has all that its file does not have yet.
func (s *Server) Snapshot() *Snapshot {
	s.t.Helper()
	s.must("stop the process", s.cmd.Process.Signal(syscall.SIGSTOP))
	defer func() { s.must("continue the process", s.cmd.Process.Signal(syscall.SIGCONT)) }()
	var status syscall.WaitStatus
	if _, err := syscall.Wait4(s.cmd.Process.Pid, &status, syscall.WUNTRACED, nil); err != nil || !status.Stopped() {
		s.t.Fatalf("exeunttest: the server has ended: %v", err)
	}
	p := &Snapshot{flags: s.flags, files: map[string][]byte{}}
	s.must("copy the data", filepath.WalkDir(s.Data, func(path string, entry fs.DirEntry, err error) error {
		name, _ := filepath.Rel(s.Data, path) // path is below it
		// SQLite makes its shared memory again, and each server has its own address and log.
		if err != nil || !entry.Type().IsRegular() || strings.HasSuffix(name, "-shm") || name == "kubeconfig" || name == "log" || name == "lock" {
			return err
		}
		p.files[name], err = os.ReadFile(path)
		return err
	}))
	return p
}

func (p *Snapshot) write(dir string) error {
	for name, content := range p.files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, 0o600); err != nil {
			return err
		}
	}
	return nil
}

// Reset restarts the server with the objects of a snapshot, at the same address. Its watches end,
// and its versions go back: informers of before must not be used any more.
func (s *Server) Reset(p *Snapshot) {
	s.t.Helper()
	s.kill()
	entries, err := os.ReadDir(s.Data)
	s.must("read the data directory", err)
	for _, entry := range entries {
		s.must("remove the data", os.RemoveAll(filepath.Join(s.Data, entry.Name())))
	}
	s.must("write the snapshot", p.write(s.Data))
	s.start(strings.TrimPrefix(s.Host, "https://"))
}

// start runs the process until it has printed its address.
func (s *Server) start(listen string) {
	s.t.Helper()
	program, err := find()
	s.must("find the program", err)
	args := []string{"serve", "--ephemeral", "--data", s.Data, "--listen", listen, "--registry-listen", "", "--archive-for", "0", "--log-level", "WARN", "--output", "json"}
	s.cmd = exec.Command(program, append(args, s.flags...)...)
	log, err := os.Create(filepath.Join(s.Data, "log"))
	s.must("make the log", err)
	defer log.Close() // the process has its own
	s.cmd.Stderr = log
	out, err := s.cmd.StdoutPipe()
	s.must("start", err)
	s.must("start", s.cmd.Start())
	line, err := bufio.NewReader(out).ReadBytes('\n')
	var started struct{ API, Kubeconfig string }
	if err == nil {
		err = json.Unmarshal(line, &started)
	}
	if err != nil {
		text, _ := os.ReadFile(log.Name())
		s.t.Fatalf("exeunttest: the server did not start: %v\n%s", err, text)
	}
	s.Host, s.Kubeconfig = started.API, started.Kubeconfig
	s.readCredentials()
}

// kill ends the process. Its data is removed next, so it need not end in order.
func (s *Server) kill() {
	_ = s.cmd.Process.Kill() // it may have ended
	_ = s.cmd.Wait()
}

var credentials = regexp.MustCompile(`(certificate-authority|client-certificate|client-key)-data: (\S+)`)

func (s *Server) readCredentials() {
	s.t.Helper()
	text, err := os.ReadFile(s.Kubeconfig)
	s.must("read the kubeconfig", err)
	for _, found := range credentials.FindAllSubmatch(text, -1) {
		data, err := base64.StdEncoding.DecodeString(string(found[2]))
		s.must("read the kubeconfig", err)
		*map[string]*[]byte{"certificate-authority": &s.CA, "client-certificate": &s.Cert, "client-key": &s.Key}[string(found[1])] = data
	}
	pair, err := tls.X509KeyPair(s.Cert, s.Key)
	s.must("read the kubeconfig", err)
	roots := x509.NewCertPool()
	roots.AppendCertsFromPEM(s.CA)
	s.client = &http.Client{Timeout: time.Minute, Transport: &http.Transport{
		TLSClientConfig: &tls.Config{RootCAs: roots, Certificates: []tls.Certificate{pair}, MinVersion: tls.VersionTLS13}, ForceAttemptHTTP2: true,
	}}
}

// Client returns an HTTP client that is the administrator, for requests to Host.
func (s *Server) Client() *http.Client { return s.client }

func (s *Server) must(what string, err error) {
	s.t.Helper()
	if err != nil {
		s.t.Fatalf("exeunttest: %s: %v", what, err)
	}
}

// get reads a JSON document of the server.
func (s *Server) get(path, accept string, into any) error {
	req, err := http.NewRequest(http.MethodGet, s.Host+path, nil)
	if err != nil {
		return err
	}
	req.Header.Set("Accept", accept)
	answer, err := s.client.Do(req)
	if err != nil {
		return err
	}
	defer answer.Body.Close()
	var body bytes.Buffer
	if _, err := body.ReadFrom(answer.Body); err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s: %s: %s", path, answer.Status, &body)
	}
	return json.Unmarshal(body.Bytes(), into)
}
