package main

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestBackup runs the commands of docs/operating.md: an image that was pushed before
// the backup can be pulled after the restore. Without the blobs the server does not
// start.
func TestBackup(t *testing.T) {
	for _, engine := range dbtest.Engines() {
		t.Run(string(engine), func(t *testing.T) {
			t.Parallel()
			name, tools := "SQLite", []string{"sqlite3"}
			var database, restored string
			if engine == sqldb.Postgres {
				name, tools = "PostgreSQL", []string{"pg_dump", "pg_restore"}
				database, restored = dbtest.Open(t, engine), dbtest.Open(t, engine)
			}
			for _, tool := range tools {
				if _, err := exec.LookPath(tool); err != nil {
					t.Fatalf("%s is needed: install the package of %s's command-line programs", tool, name)
				}
			}
			dir := t.TempDir()
			from := place{data: filepath.Join(dir, "from"), backup: filepath.Join(dir, "backup"), database: database}
			to := place{data: filepath.Join(dir, "to"), backup: from.backup, database: restored}

			server := from.serve(t)
			content := strings.Repeat("content ", 100_000)
			d := server.push(t, "kept", content)
			from.follow(t, "# back up, "+name)
			server.push(t, "later", "after the backup "+content)
			server.stop(t)

			to.follow(t, "# restore, "+name)
			blobs := filepath.Join(to.data, "blobs")
			if err := os.Rename(blobs, blobs+".away"); err != nil {
				t.Fatal(err)
			}
			if log := to.refused(t); !strings.Contains(log, "this blob store is not the one of this database") || !strings.Contains(log, "--registry-accept-storage") {
				t.Errorf("a start without the blobs says:\n%s", log)
			}
			if err := os.RemoveAll(blobs); err != nil {
				t.Fatal(err)
			}
			if err := os.Rename(blobs+".away", blobs); err != nil {
				t.Fatal(err)
			}
			server = to.serve(t)
			to.follow(t, "# after the start")
			if code, got := server.send(t, "GET", "/v2/kept/blobs/"+d, ""); code != http.StatusOK || got != content {
				t.Errorf("the blob is %d, %d bytes", code, len(got))
			}
			if code, got := server.send(t, "GET", "/v2/kept/manifests/v1", ""); code != http.StatusOK || !strings.Contains(got, d) {
				t.Errorf("the image is %d %s", code, got)
			}
			if _, stats, _ := run(t, "gc", "status", "--kubeconfig", filepath.Join(to.data, "kubeconfig")); strings.Contains(stats, "paused: backup") {
				t.Errorf("the collector is still paused: %s", stats)
			}
			server.stop(t)
		})
	}
}

// place is the data of a server: the values of the variables in the page.
type place struct{ data, backup, database string }

// environment returns the environment of the page's commands: the program in PATH,
// and the variables.
func (p place) environment(t *testing.T) []string {
	t.Helper()
	bin := t.TempDir()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	script := fmt.Sprintf("#!/bin/sh\n%s=1 exec '%s' \"$@\"\n", asProgram, self)
	if err := os.WriteFile(filepath.Join(bin, "exeunt"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	return append(os.Environ(), "PATH="+bin+":"+os.Getenv("PATH"), "DATA="+p.data, "BACKUP="+p.backup, "DATABASE="+p.database,
		"KUBECONFIG="+filepath.Join(p.data, "kubeconfig"))
}

// follow runs the commands of the block of the page with this first line.
func (p place) follow(t *testing.T, block string) {
	t.Helper()
	page, err := os.ReadFile(filepath.Join("..", "..", "docs", "operating.md"))
	if err != nil {
		t.Fatal(err)
	}
	_, rest, found := strings.Cut(string(page), "```sh\n"+block+"\n")
	if !found {
		t.Fatalf("docs/operating.md has no block %q", block)
	}
	commands, _, _ := strings.Cut(rest, "\n```")
	cmd := exec.CommandContext(t.Context(), "sh", "-e", "-u", "-c", commands)
	cmd.Env = p.environment(t)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%s: %v\n%s\n%s", block, err, commands, out)
	}
}

// serving is a server in a process of its own.
type serving struct {
	cmd      *exec.Cmd
	log      *lines
	data     string
	registry string
}

// lines is output that is safe for concurrent reads and writes.
type lines struct {
	mu   sync.Mutex
	text strings.Builder
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.Write(p)
}

func (l *lines) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.text.String()
}

func (p place) start(t *testing.T) *serving {
	t.Helper()
	args := []string{"serve", "--data", p.data, "--listen", "127.0.0.1:0", "--registry-listen", "127.0.0.1:0"}
	if p.database != "" {
		args = append(args, "--database", p.database)
	}
	s := &serving{cmd: exec.CommandContext(t.Context(), os.Args[0], args...), log: &lines{}, data: p.data}
	s.cmd.Env = append(os.Environ(), asProgram+"=1")
	s.cmd.Stdout, s.cmd.Stderr = s.log, s.log
	if err := s.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return s
}

// serve starts a server and waits until it prints the address of its registry.
func (p place) serve(t *testing.T) *serving {
	t.Helper()
	s := p.start(t)
	address := regexp.MustCompile(`OCI registry is at (\S+)`)
	dbtest.Until(t, "the registry listens", func() error {
		found := address.FindStringSubmatch(s.log.String())
		if found == nil {
			return errors.New(s.log.String())
		}
		s.registry = found[1]
		return nil
	})
	return s
}

// refused returns the output of a server that must not start.
func (p place) refused(t *testing.T) string {
	t.Helper()
	s := p.start(t)
	ended := make(chan error, 1)
	go func() { ended <- s.cmd.Wait() }()
	for end := time.Now().Add(60 * time.Second); ; time.Sleep(20 * time.Millisecond) {
		select {
		case err := <-ended:
			if err == nil {
				t.Error("the server ended without an error")
			}
			return s.log.String()
		default:
		}
		if strings.Contains(s.log.String(), "OCI registry is at") || time.Now().After(end) {
			_ = s.cmd.Process.Kill() // it may have ended
			<-ended
			t.Fatalf("the server was not refused:\n%s", s.log)
		}
	}
}

func (s *serving) stop(t *testing.T) {
	t.Helper()
	if err := s.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		t.Fatal(err)
	}
	if err := s.cmd.Wait(); err != nil {
		t.Fatalf("the server ended with %v:\n%s", err, s.log)
	}
}

func (s *serving) send(t *testing.T, method, path, body string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, s.registry+path, strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	token, err := os.ReadFile(filepath.Join(s.data, "registry-token"))
	if err != nil {
		t.Fatal(err)
	}
	req.SetBasicAuth("exeunt-admin", strings.TrimSpace(string(token)))
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(answer)
}

// push pushes an image of one layer, and returns the layer's digest.
func (s *serving) push(t *testing.T, repository, content string) string {
	t.Helper()
	put := func(want int, method, path, body string) {
		if code, answer := s.send(t, method, path, body); code != want {
			t.Fatalf("%s %s: %d %s", method, path, code, answer)
		}
	}
	layer, config := digest.FromString(content), digest.FromString("{}")
	put(http.StatusCreated, "POST", "/v2/"+repository+"/blobs/uploads/?digest="+layer.String(), content)
	put(http.StatusCreated, "POST", "/v2/"+repository+"/blobs/uploads/?digest="+config.String(), "{}")
	put(http.StatusCreated, "PUT", "/v2/"+repository+"/manifests/v1", fmt.Sprintf(
		`{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json",
		"config":{"mediaType":"application/vnd.oci.image.config.v1+json","digest":"%s","size":2},
		"layers":[{"mediaType":"application/vnd.oci.image.layer.v1.tar","digest":"%s","size":%d}]}`, config, layer, len(content)))
	return layer.String()
}
