package console

import (
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
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
