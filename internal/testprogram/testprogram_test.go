package testprogram

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// TestLink: the names are this program, also after an attempt that broke off, and the program stays as it is.
func TestLink(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	before, err := os.Stat(self)
	if err != nil {
		t.Fatal(err)
	}
	for name, prepare := range map[string]func(path string) error{
		"new":               func(string) error { return nil },
		"of another binary": func(path string) error { return os.Symlink("/else", path) },
		"already there":     func(path string) error { return os.Symlink(self, path) },
		"broken off":        func(path string) error { return os.Symlink(self, fmt.Sprintf("%s.%d", path, os.Getpid())) },
	} {
		dir := t.TempDir()
		path := filepath.Join(dir, "etcd")
		if err := prepare(path); err != nil {
			t.Fatal(err)
		}
		if err := Link(dir, "etcd"); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		after, err := os.Stat(path)
		if err != nil || !os.SameFile(before, after) || after.Size() != before.Size() {
			t.Errorf("%s: the link leads to another file: %v", name, err)
		}
		if entries, _ := os.ReadDir(dir); len(entries) != 1 {
			t.Errorf("%s: the folder has %v", name, entries)
		}
	}
}

// TestCopyOverwritesNothing: where links are not allowed, a copy does not go through a link either.
func TestCopyOverwritesNothing(t *testing.T) {
	dir := t.TempDir()
	ours, link := filepath.Join(dir, "ours"), filepath.Join(dir, "link")
	if err := os.WriteFile(ours, []byte("ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(ours, link); err != nil {
		t.Fatal(err)
	}
	if err := copyProgram(os.DevNull, link); err == nil {
		t.Error("the copy was written through the link")
	}
	if text, err := os.ReadFile(ours); string(text) != "ours" {
		t.Errorf("the file has %q, %v", text, err)
	}
}

// TestDataDir: the data is in the folder of an etcd that is ours, and otherwise in one that goes.
func TestDataDir(t *testing.T) {
	for name, test := range map[string]struct {
		code   int
		answer string
		ours   bool
	}{
		"ours":         {http.StatusOK, "/folder", true},
		"another etcd": {http.StatusNotFound, "/folder", false},
		"a web page":   {http.StatusOK, "<html>/folder", false},
		"nothing":      {http.StatusOK, "", false},
	} {
		server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, req *http.Request) {
			w.WriteHeader(test.code)
			fmt.Fprint(w, test.answer)
		}))
		dir, remove, err := DataDir(t.Context(), []string{server.URL, "http://127.0.0.1:1"})
		server.Close()
		if err != nil {
			t.Fatal(err)
		}
		if ours := dir == filepath.FromSlash("/folder/exeunt"); ours != test.ours {
			t.Errorf("%s: the data is in %s", name, dir)
		}
		_, there := os.Stat(dir)
		remove()
		if _, left := os.Stat(dir); !test.ours && (there != nil || left == nil) {
			t.Errorf("%s: the new folder: %v, and after its removal: %v", name, there, left)
		}
	}
	if _, _, err := DataDir(t.Context(), []string{"http://a b"}); err == nil || !strings.Contains(err.Error(), "--etcd-servers") {
		t.Errorf("no URL: %v", err)
	}
}

// TestKubectl: our kubectl runs another in PATH with its arguments. If that one is ours too, of another version,
// it ends there: two of them would run each other without an end.
func TestKubectl(t *testing.T) {
	dir := t.TempDir()
	printed := filepath.Join(dir, "printed")
	script := "#!/bin/sh\necho \"$" + inKubectl + " $*\" >" + printed + "\n"
	if err := os.WriteFile(filepath.Join(dir, "kubectl"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	own := t.TempDir()
	if err := Link(own, "kubectl"); err != nil {
		t.Fatal(err)
	}
	kubectl := func() error {
		cmd := NewKubectl()
		cmd.SetArgs([]string{"get", "--all"})
		return cmd.ExecuteContext(t.Context())
	}
	t.Setenv("PATH", own)
	if err := kubectl(); err == nil || !strings.Contains(err.Error(), "install kubectl") {
		t.Errorf("without kubectl: %v", err)
	}
	t.Setenv("PATH", own+string(filepath.ListSeparator)+dir+string(filepath.ListSeparator)+os.Getenv("PATH")+":/bin:/usr/bin")
	if err := kubectl(); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(printed); string(text) != "1 get --all\n" {
		t.Errorf("kubectl got %q, %v", text, err)
	}
	t.Setenv(inKubectl, "1")
	if err := kubectl(); err == nil || !strings.Contains(err.Error(), "made by exeunt envtest") {
		t.Errorf("in kubectl: %v", err)
	}
}
