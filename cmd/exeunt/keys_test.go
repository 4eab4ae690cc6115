package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/store/seal"
)

// TestKeysCreate: the command makes three files that only their owner reads, and never
// replaces one.
func TestKeysCreate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	if code, stdout, stderr := run(t, "keys", "create", dir); code != 0 || !strings.Contains(stdout, "keep a copy") {
		t.Fatalf("exit %d, %q, %q", code, stdout, stderr)
	}
	before := map[string]string{}
	for _, name := range []string{"ca.crt", "ca.key", encryptionFile} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		before[name] = string(text)
		if info, err := os.Stat(filepath.Join(dir, name)); err != nil || info.Mode().Perm() != 0o600 {
			t.Errorf("%s: %v, %v", name, info.Mode(), err)
		}
	}
	if code, _, stderr := run(t, "keys", "create", dir); code != 1 || !strings.Contains(stderr, "exists") {
		t.Errorf("a second time: exit %d, %q", code, stderr)
	}
	for name, text := range before {
		if after, err := os.ReadFile(filepath.Join(dir, name)); err != nil || string(after) != text {
			t.Errorf("%s changed: %v", name, err)
		}
	}
}

// TestKeysRotate: the command rotates once, says what follows, and finishes.
func TestKeysRotate(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	for _, step := range []struct {
		args       []string
		code       int
		says, errs string
	}{
		{[]string{"create", dir}, 0, "keep a copy", ""},
		{[]string{"rotate", dir, "--finish"}, 1, "", "has no rotation to finish"},
		{[]string{"rotate", dir}, 0, "Both authorities are trusted until: exeunt keys rotate " + dir + " --finish", ""},
		{[]string{"rotate", dir}, 1, "", "a rotation is under way: finish it first, with --finish"},
		{[]string{"rotate", dir, "--finish", "-o", "json"}, 0, `"finished": true`, ""},
		{[]string{"rotate", t.TempDir()}, 1, "", "has no authority"},
	} {
		code, stdout, stderr := run(t, append([]string{"keys"}, step.args...)...)
		if code != step.code || !strings.Contains(stdout, step.says) || !strings.Contains(stderr, step.errs) {
			t.Errorf("%v: exit %d, %q, %q", step.args, code, stdout, stderr)
		}
	}
}

// TestKeysRotateSecrets: the command rotates the key of Secrets in a file, says what follows, goes back, and finishes.
func TestKeysRotateSecrets(t *testing.T) {
	t.Parallel()
	dir := filepath.Join(t.TempDir(), "keys")
	if code, _, stderr := run(t, "keys", "create", dir); code != 0 {
		t.Fatal(stderr)
	}
	file := filepath.Join(dir, encryptionFile)
	keys, err := seal.Load(file)
	if err != nil {
		t.Fatal(err)
	}
	old := keys.Names()[0]
	for _, step := range []struct {
		args       []string
		code       int
		says, errs string
	}{
		{[]string{file, "--finish"}, 1, "", "no rotation is under way"},
		{[]string{file}, 0, "the way back: exeunt keys rotate " + file + " --seal-with " + old, ""},
		{[]string{file}, 1, "", "a rotation is under way"},
		{[]string{file, "--seal-with", old, "--finish"}, 1, "", "none of the others can be"},
		{[]string{file, "--seal-with", old}, 0, "has the key " + old + " first", ""},
		{[]string{dir, "--seal-with", old}, 1, "", "not for a directory"},
		{[]string{file, "--finish"}, 0, "has the key " + old + " alone", ""},
	} {
		code, stdout, stderr := run(t, append([]string{"keys", "rotate"}, step.args...)...)
		if code != step.code || !strings.Contains(stdout, step.says) || !strings.Contains(stderr, step.errs) {
			t.Errorf("%v: exit %d, %q, %q", step.args, code, stdout, stderr)
		}
	}
}
