package console

import (
	"crypto/sha256"
	"encoding/hex"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strings"
	"testing"
)

// TestVendoredFiles: the table in vendor/README.md lists every vendored script with its
// hash.
func TestVendoredFiles(t *testing.T) {
	table, err := fs.ReadFile(static, "static/vendor/README.md")
	if err != nil {
		t.Fatal(err)
	}
	scripts, err := fs.Glob(static, "static/vendor/*.js")
	if err != nil || len(scripts) == 0 {
		t.Fatalf("vendored scripts: %v, %v", scripts, err)
	}
	for _, name := range scripts {
		data, err := fs.ReadFile(static, name)
		if err != nil {
			t.Fatal(err)
		}
		sum := sha256.Sum256(data)
		base := strings.TrimPrefix(name, "static/vendor/")
		row := regexp.MustCompile(`(?m)^\| ` + regexp.QuoteMeta(base) + ` .*` + hex.EncodeToString(sum[:])).Find(table)
		if row == nil {
			t.Errorf("vendor/README.md has no row for %s with the hash %x", base, sum)
		}
	}
}

// TestFirstView: all that the first view loads is below 100 kB, compressed.
func TestFirstView(t *testing.T) {
	total := 0
	for name, f := range newFiles().byName {
		if regexp.MustCompile(`\.(js|css|html|svg)$`).MatchString(name) {
			total += len(f.gzipped)
		}
	}
	t.Logf("%d bytes", total)
	if total == 0 || total > 100_000 {
		t.Errorf("the page is %d bytes, want 100,000 at most", total)
	}
}

// TestNoInlineCode: the Content-Security-Policy forbids it, so a page that has some
// would not work.
func TestNoInlineCode(t *testing.T) {
	page, err := fs.ReadFile(static, "static/index.html")
	if err != nil {
		t.Fatal(err)
	}
	if found := regexp.MustCompile(`(?i)<script[^>]*>[^<]|<style|\son[a-z]+=|style=`).Find(page); found != nil {
		t.Errorf("index.html has %q", found)
	}
	if found := regexp.MustCompile(`https?://`).Find(page); found != nil {
		t.Errorf("index.html refers to another host: %q", found)
	}
}

func TestFiles(t *testing.T) {
	k := New(Config{})
	get := func(path string, header ...string) *httptest.ResponseRecorder {
		req := httptest.NewRequest("GET", path, nil)
		for i := 0; i < len(header); i += 2 {
			req.Header.Set(header[i], header[i+1])
		}
		w := httptest.NewRecorder()
		k.ServeHTTP(w, req)
		return w
	}
	page := get("/console/")
	if page.Code != http.StatusOK || !strings.Contains(page.Body.String(), "<title>Exeunt</title>") {
		t.Fatalf("the page: %d %s", page.Code, page.Body)
	}
	for name, want := range map[string]string{
		"X-Frame-Options": "DENY", "X-Content-Type-Options": "nosniff", "Referrer-Policy": "no-referrer", "Cache-Control": "no-cache",
		"Cross-Origin-Opener-Policy": "same-origin", "Cross-Origin-Resource-Policy": "same-origin",
	} {
		if got := page.Header().Get(name); got != want {
			t.Errorf("%s is %q, want %q", name, got, want)
		}
	}
	if policy := page.Header().Get("Content-Security-Policy"); !strings.Contains(policy, "default-src 'none'") || strings.Contains(policy, "unsafe") {
		t.Errorf("Content-Security-Policy is %q", policy)
	}
	small := get("/console/app.js", "Accept-Encoding", "gzip")
	if small.Header().Get("Content-Encoding") != "gzip" || small.Header().Get("Content-Type") != "text/javascript; charset=utf-8" {
		t.Errorf("app.js: %v", small.Header())
	}
	if again := get("/console/app.js", "If-None-Match", small.Header().Get("ETag")); again.Code != http.StatusNotModified || again.Body.Len() > 0 {
		t.Errorf("app.js again: %d", again.Code)
	}
	if missing := get("/console/../server.go"); missing.Code == http.StatusOK {
		t.Errorf("a path outside: %d", missing.Code)
	}
	if missing := get("/console/nothing.js"); missing.Code != http.StatusNotFound {
		t.Errorf("a file that is not there: %d", missing.Code)
	}
	if redirect := get("/console"); redirect.Header().Get("Location") != "/console/" {
		t.Errorf("/console: %d %v", redirect.Code, redirect.Header())
	}
}

// TestTextStaysText: our scripts have nothing that turns text into markup, code or an
// address of another scheme, so what other users wrote stays text also without the
// Content-Security-Policy. Links are written as fragments of this page, or come from a
// function that does so.
func TestTextStaysText(t *testing.T) {
	sinks := regexp.MustCompile(`(?i)(inner|outer)HTML|insertAdjacentHTML|dangerouslySet|document\.write|createContextualFragment|DOMParser|srcdoc|\beval\(|new Function|javascript:|window\.open|location\.(assign|replace|href)|\bimport\(|set(Timeout|Interval)\(\s*["'` + "`" + `]`)
	link := regexp.MustCompile(`href=(\$\{[^}]*|"[^"]*)`)
	own := regexp.MustCompile(`^("(#|/console/)|\$\{["` + "`" + `]#/|\$\{(object|deletion)Link\(|\$\{(n\.)?href$)`)
	scripts := 0
	err := fs.WalkDir(static, "static", func(name string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(name, ".js") || strings.HasPrefix(name, "static/vendor/") {
			return err
		}
		scripts++
		data, err := fs.ReadFile(static, name)
		if err != nil {
			return err
		}
		if found := sinks.Find(data); found != nil {
			t.Errorf("%s has %q", name, found)
		}
		for _, to := range link.FindAllSubmatch(data, -1) {
			if !own.Match(to[1]) {
				t.Errorf("%s links to %q, which may be an address that another user wrote", name, to[1])
			}
		}
		return nil
	})
	if err != nil || scripts == 0 {
		t.Errorf("%d scripts, %v", scripts, err)
	}
}
