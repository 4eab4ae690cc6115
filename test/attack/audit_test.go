package attack_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
)

// TestAuditFlood sends deletes without credentials and with long queries, user agents and
// lists of addresses, to the API, to the open path of the mesh and to the registry. They
// do not fill the audit log, which has the deletion of a known client, and they are
// counted.
func TestAuditFlood(t *testing.T) {
	const clients = 3 // more at once would be closed as strangers
	requests := 150
	if testing.Short() {
		requests = 60
	}
	path := filepath.Join(t.TempDir(), "audit.log")
	a := startTarget(t, harness.SQLite, "--audit-log-path", path)
	secure := &http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{RootCAs: a.tls.RootCAs}, MaxIdleConnsPerHost: clients}}
	defer secure.CloseIdleConnections()
	start := time.Now()
	for url, size := range map[string]int{
		"https://" + a.host + configMaps + "/probe":                       900_000,
		"https://" + a.host + "/exeunt/mesh/node/enrol":                   900_000,
		"http://" + a.Registry() + "/v2/default/probe/manifests/v1":       50_000,
		"https://" + a.host + configMaps + "/" + strings.Repeat("x", 5e5): 100_000,
	} {
		var group sync.WaitGroup
		for range clients {
			group.Go(func() {
				for range requests / clients {
					deleteAnonymously(t, secure, url, size)
				}
			})
		}
		group.Wait()
	}
	took := time.Since(start)
	if answer := a.http.Do(t, harness.Request{Method: "DELETE", Path: configMaps + "/probe"}); answer.Code != http.StatusOK {
		t.Fatalf("delete: %d %s", answer.Code, answer.Body)
	}
	metrics := string(a.http.Get(t, "/metrics").Body)
	a.Stop() // writes the last events
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	most := 100_000 + int(took.Seconds()+1)*20_000 // 50 events, then 10 a second, of 2 kB at most
	t.Logf("%d requests in %v: the log has %d bytes", 4*requests, took, len(text))
	if len(text) > most {
		t.Errorf("the audit log has %d bytes after %v, want %d at most", len(text), took, most)
	}
	if n := strings.Count(string(text), `"verb":"delete","user":{"username":"exeunt-admin"`); n != 2 {
		t.Errorf("the deletion of a known client has %d events, want 2", n)
	}
	if strings.Contains(metrics, "\nexeunt_audit_failed_authentications_unrecorded_total 0\n") || strings.Contains(metrics, "\nexeunt_authentication_attempts_total{result=\"failure\"} 0\n") {
		t.Error("the metrics do not count the requests")
	}
}

// deleteAnonymously must be refused.
func deleteAnonymously(t *testing.T, client *http.Client, url string, size int) {
	request, err := http.NewRequest("DELETE", url+"?x="+strings.Repeat("x", size), nil)
	if err != nil {
		t.Error(err)
		return
	}
	request.Header.Set("User-Agent", strings.Repeat("u", 10_000))
	request.Header.Set("X-Forwarded-For", strings.Repeat("192.0.2.1,", 1000))
	answer, err := client.Do(request)
	for tries := 0; err != nil && tries < 5; tries++ { // the server closes connections on which no known client was for 30 seconds
		client.CloseIdleConnections()
		answer, err = client.Do(request)
	}
	if err != nil {
		t.Error(err)
		return
	}
	defer answer.Body.Close()
	if _, err := io.Copy(io.Discard, answer.Body); err != nil || answer.StatusCode < 400 {
		t.Error(fmt.Errorf("answered %s, %w", answer.Status, err))
	}
}
