//go:build unix

package durable

import (
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// ownerOf returns the user that a file belongs to.
func ownerOf(t *testing.T, path string) int {
	t.Helper()
	info, err := os.Lstat(path)
	if err != nil {
		t.Fatal(err)
	}
	return int(info.Sys().(*syscall.Stat_t).Uid)
}

// served returns a folder of the server's user, who made name in it a link to a file of ours, and that file.
// As another user than root the test sees its own files only, which then must stay as they are.
func served(t *testing.T, name string, link func(oldname, newname string) error) (dir, ours string) {
	t.Helper()
	dir, ours = t.TempDir(), filepath.Join(t.TempDir(), "ours")
	if os.Geteuid() == 0 {
		if err := os.Chown(dir, 65532, 65532); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(ours, []byte("ours"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := link(ours, filepath.Join(dir, name)); err != nil {
		t.Fatal(err)
	}
	return dir, ours
}

// TestLinksOfTheOwner: the user of a folder in which root writes gains no file of root's by links.
func TestLinksOfTheOwner(t *testing.T) {
	keep := func(path string) error {
		f, err := os.OpenFile(path, os.O_CREATE|os.O_RDWR, 0o600)
		if err != nil {
			return err
		}
		defer f.Close()
		return KeepOwner(f)
	}
	for name, test := range map[string]struct {
		name    string
		do      func(dir string) error
		refused map[string]bool // by the kind of link, when root does it
	}{
		"WriteFile":  {"file.new", func(dir string) error { return WriteFile(filepath.Join(dir, "file"), []byte("new"), KeepOwner) }, nil},
		"KeepOwner":  {"lock", func(dir string) error { return keep(filepath.Join(dir, "lock")) }, map[string]bool{"symlink": true, "link": true}},
		"KeepOwners": {"any", KeepOwners, map[string]bool{"link": true}},
	} {
		for kind, link := range map[string]func(string, string) error{"symlink": os.Symlink, "link": os.Link} {
			dir, ours := served(t, test.name, link)
			if err := test.do(dir); (err != nil) != (test.refused[kind] && os.Geteuid() == 0) {
				t.Errorf("%s, %s: %v", name, kind, err)
			}
			if text, err := os.ReadFile(ours); string(text) != "ours" || err != nil || ownerOf(t, ours) != os.Geteuid() {
				t.Errorf("%s, %s: the file of another directory has %q and belongs to %d, %v", name, kind, text, ownerOf(t, ours), err)
			}
		}
	}
}

// TestOwners: what is in a folder belongs to the owner of the folder afterwards, a file as written and all files
// of a tree; a write that broke off does not hinder the next one.
func TestOwners(t *testing.T) {
	dir := t.TempDir()
	owner := os.Geteuid()
	if owner == 0 {
		owner = 65532
		if err := os.Chown(dir, owner, owner); err != nil {
			t.Fatal(err)
		}
	}
	file := filepath.Join(dir, "file")
	if err := os.WriteFile(file+".new", []byte("a part, and longer"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := WriteFile(file, []byte("whole"), KeepOwner); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile(file); string(text) != "whole" || err != nil || ownerOf(t, file) != owner {
		t.Errorf("the file has %q and belongs to %d, want %d: %v", text, ownerOf(t, file), owner, err)
	}
	deep := filepath.Join(dir, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(deep, "c"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := KeepOwners(dir); err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{dir, filepath.Dir(deep), deep, filepath.Join(deep, "c")} {
		if got := ownerOf(t, path); got != owner {
			t.Errorf("%s belongs to %d, want %d", path, got, owner)
		}
	}
}
