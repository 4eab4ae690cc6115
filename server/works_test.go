package server

import (
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/opencontainers/go-digest"

	"github.com/exeunt/exeunt/registry/importer"
	"github.com/exeunt/exeunt/registry/verify"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// TestWorks: the status has a verification of another process and an import while they go on, and nothing of what a client
// says that is no import.
func TestWorks(t *testing.T) {
	config := Config{Data: filepath.Join(t.TempDir(), "data"), RegistryListen: "127.0.0.1:0"}
	s := start(t, config)
	registry := regexp.MustCompile(`registry is at (\S+)`).FindStringSubmatch(s.out.String())[1]
	token, err := os.ReadFile(filepath.Join(config.Data, "registry-token"))
	if err != nil {
		t.Fatal(err)
	}
	ask := func(method, path, content, password, header string) int {
		t.Helper()
		req, err := http.NewRequestWithContext(t.Context(), method, registry+path, strings.NewReader(content))
		if err != nil {
			t.Fatal(err)
		}
		req.SetBasicAuth("exeunt", password)
		req.Header.Set("Content-Type", "application/octet-stream")
		req.Header.Set(importer.Header, header)
		answer, err := http.DefaultClient.Do(req)
		if err != nil {
			t.Fatal(err)
		}
		answer.Body.Close()
		return answer.StatusCode
	}
	say := func(password, header string) int { return ask(http.MethodGet, "/v2/", "", password, header) }
	password := strings.TrimSpace(string(token))
	const id = "8c0f7f0e-3c39-4c42-9a7c-0a6d8a3a4c11"
	if code := say("wrong", id+" 1 2 3"); code != http.StatusUnauthorized {
		t.Errorf("without a login: %d", code)
	}
	for _, said := range []string{"x", "x 1 2 3", id + " 2 1 3", id + " -1 1 3", id + " 1 1 -3", strings.Repeat("9", 4000), id + " 99999999999999999999 1 1"} {
		if code := say(password, said); code != http.StatusOK {
			t.Errorf("%.50q: %d", said, code)
		}
	}
	if works := s.status(t).Works; len(works) > 0 {
		t.Errorf("what no import says is shown: %+v", works)
	}
	say(password, id+" 1 2 4096")
	if works := s.status(t).Works; len(works) != 1 || works[0].By != localUser || works[0].Done != 1 || works[0].Total != 2 || works[0].Far != "1 of 2 manifests, 4KiB sent" {
		t.Errorf("an import: %+v", works)
	}
	say(password, id)
	blob := "/v2/shop/web/blobs/uploads/?digest=" + digest.FromString("x").String()
	if code := ask(http.MethodPost, blob, "x", password, ""); code != http.StatusCreated {
		t.Fatalf("a push: %d", code)
	}
	var during []string
	_, err = VerifyRegistry(t.Context(), config, verify.Options{Progress: func(verify.Result) {
		if len(during) == 0 {
			dbtest.Await(t, "the verification is shown", func() bool {
				for _, w := range s.status(t).Works {
					during = append(during, w.What)
				}
				return len(during) > 0
			})
		}
	}})
	if err != nil || strings.Join(during, ",") != "Verification of the registry" {
		t.Errorf("a verification: %q, %v", during, err)
	}
	if works := s.status(t).Works; len(works) > 0 {
		t.Errorf("after it: %+v", works)
	}
}
