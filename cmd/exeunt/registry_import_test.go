package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/importer"
)

// TestRegistryImport: the output without a terminal, in each format, and the error
// when the registry refuses an item.
func TestRegistryImport(t *testing.T) {
	const digest = "44136fa355b3678a1146ad16f7e8649e94fb4fc21fe77e8310c060f61caaff8a" // of {}
	dir := t.TempDir()
	for path, content := range map[string]string{
		"blobs/sha256/44/" + digest + "/data":                                   "{}",
		"repositories/shop/web/_manifests/revisions/sha256/" + digest + "/link": "sha256:" + digest,
		"repositories/shop/web/_manifests/tags/v1/current/link":                 "sha256:" + digest,
	} {
		path = filepath.Join(dir, "docker/registry/v2", path)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	status := http.StatusCreated
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
		switch {
		case req.URL.Path == "/v2/":
		case req.Method == http.MethodPut && req.URL.String() == "/v2/shop/web/manifests/sha256:"+digest+"?tag=v1":
			w.WriteHeader(status)
		default:
			w.WriteHeader(http.StatusNotFound)
		}
	}))
	defer server.Close()
	for _, tt := range []struct {
		args   []string
		status int
		want   string // part of what is printed, or of the error
		fail   bool
	}{
		{[]string{dir, "--registry", server.URL}, 201, "shop/web: 1 manifest (1 of 1 repository)\nlooked at 1 of 1 repository, 1 of 1 manifest\nsent: 1 manifest, 1 tag, 0 blobs (2B); already in another repository: 0 large blobs\n", false},
		{[]string{dir, "--registry", server.URL + "/"}, 201, "sent: 1 manifest", false},
		{[]string{dir, "--registry", server.URL}, 400, "shop/web@sha256:" + digest + " (v1): refused with 400: Bad Request\n", true},
		{[]string{dir, "--registry", server.URL, "-o", "json"}, 201, "repository)\n{\n  \"repositories\": 1,\n  \"repositoriesTotal\": 1,\n", false},
		{[]string{dir, "--registry", server.URL, "-o", "yaml"}, 201, "manifestsSent: 1\n", false},
		{[]string{dir, "--registry", server.URL, "-o", "name"}, 201, "repository)\nshop/web\n", false},
		{[]string{dir, "--registry", server.URL}, 400, "NOT imported: 1 item, named above\nnot imported: 1 item", true},
		{[]string{dir, "--registry", "127.0.0.1:5000"}, 0, `--registry "127.0.0.1:5000": want http://HOST:PORT`, true},
		{[]string{dir, "--registry", "http://127.0.0.1:1"}, 0, "ask the registry at http://127.0.0.1:1: ", true},
		{[]string{dir, "--registry", "https://127.0.0.1:1", "--kubeconfig", "missing"}, 0, "missing", true},
		{[]string{dir, "--jobs", "0"}, 0, "--jobs 0: want at least 1", true},
		{[]string{t.TempDir()}, 0, "is not the storage of a registry", true},
		{nil, 0, "takes 1 argument, not 0 arguments: DIR", true},
	} {
		status = tt.status
		var out bytes.Buffer
		cmd := newRegistryImport()
		cmd.SilenceUsage, cmd.SilenceErrors = true, true
		cmd.SetOut(&out)
		cmd.SetErr(&out)
		cmd.SetArgs(append([]string{}, tt.args...))
		err := cmd.ExecuteContext(t.Context())
		text := out.String()
		if err != nil {
			text += err.Error()
		}
		if (err != nil) != tt.fail || !strings.Contains(text, tt.want) {
			t.Errorf("%v: error %v, printed:\n%s\nwant %q", tt.args, err, out.String(), tt.want)
		}
	}
}

func TestDescribeImport(t *testing.T) {
	for _, tt := range []struct {
		done, all, bytes, failed int64
		want                     string
	}{
		{0, 0, 0, 0, "0 of 0 manifests, 0B sent"},
		{5, 10, 20 << 20, 0, "5 of 10 manifests, 20MiB sent"},
		{10, 10, 7, 3, "10 of 10 manifests, 7B sent, 3 failed"},
	} {
		var p importer.Progress
		p.Manifests.Store(tt.done)
		p.AllManifests.Store(tt.all)
		p.BytesSent.Store(tt.bytes)
		p.Failed.Store(tt.failed)
		if got := describeImport(&p); got != tt.want {
			t.Errorf("%+v: %q", tt, got)
		}
	}
}
