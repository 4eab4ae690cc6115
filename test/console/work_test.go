package console

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/blobstore/s3test"
	"github.com/exeunt/exeunt/test/harness"
)

// TestRunningBackup: a backup whose target takes nothing for a while is long work: the page and `exeunt status` say how far it
// is, and no longer when it has ended.
func TestRunningBackup(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	real, err := url.Parse(s3test.Endpoint(t))
	if err != nil {
		t.Fatal(err)
	}
	ended, proxy := make(chan struct{}), httputil.NewSingleHostReverseProxy(real)
	target := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if (r.Method == http.MethodPut || r.Method == http.MethodPost) && !strings.Contains(r.URL.Path, "/lock-") && !strings.HasSuffix(r.URL.Path, "/.exeunt") {
			select {
			case <-ended:
			case <-r.Context().Done():
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(target.Close)
	backup := s.BackupCommand(t, s3test.Through(t, s3test.Location(t), target.URL))
	var said strings.Builder
	backup.Stdout, backup.Stderr = &said, &said
	if err := backup.Start(); err != nil {
		t.Fatal(err)
	}
	p := openTab(t, s)
	p.signIn()
	p.until("the backup is shown", `document.querySelector("#work td")?.textContent === "Backup"`)
	p.see("keys, ")
	p.shootAll("running")
	p.accessible("Now, with a backup")
	if got := s.Exeunt(t, "status"); !strings.Contains(got.Stdout, "one runs since ") || !strings.Contains(got.Stdout, ": keys, ") {
		t.Errorf("exeunt status:\n%s", got.Stdout)
	}
	close(ended)
	if err := backup.Wait(); err != nil {
		t.Errorf("the backup: %v\n%s", err, &said)
	}
	p.until("the backup is not shown", `!document.querySelector("#work")`)
}

// TestRunningImport: an import whose registry takes no blob for a while is long work on the page and in `exeunt status`, and
// no longer when it has ended.
func TestRunningImport(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	const digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // of {}
	dir := t.TempDir()
	for path, content := range map[string]string{
		"blobs/sha256/44/" + digest + "/data":                                   "{}",
		"repositories/shop/web/_manifests/revisions/sha256/" + digest + "/link": "sha256:" + digest,
	} {
		path = filepath.Join(dir, "docker/registry/v2", path)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(content), 0o600)); err != nil {
			t.Fatal(err)
		}
	}
	ended, proxy := make(chan struct{}), httputil.NewSingleHostReverseProxy(&url.URL{Scheme: "http", Host: s.Registry()})
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v2/" {
			select {
			case <-ended:
			case <-r.Context().Done():
			}
		}
		proxy.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	plugins, err := harness.PluginDir()
	if err != nil {
		t.Fatal(err)
	}
	imported := exec.Command(filepath.Join(plugins, "exeunt"), "registry", "import", dir, "--registry", front.URL, "--kubeconfig", s.Kubeconfig)
	if err := imported.Start(); err != nil {
		t.Fatal(err)
	}
	p := openTab(t, s)
	p.signIn()
	p.until("the import is shown", `document.querySelector("#work td")?.textContent === "Import into the registry"`)
	p.see("asked for by exeunt-admin, ")
	p.see("0 of 1 manifest, 0B sent")
	if got := s.Exeunt(t, "status"); !strings.Contains(got.Stdout, "running     Import into the registry, since ") {
		t.Errorf("exeunt status:\n%s", got.Stdout)
	}
	close(ended)
	if err := imported.Wait(); err == nil {
		t.Error("the import of what is no manifest has not failed")
	}
	p.until("the import is not shown", `!document.querySelector("#work")`)
}
