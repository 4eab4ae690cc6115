//go:build install

package main

import (
	"os/exec"
	"path/filepath"
	"testing"
	"time"
)

// TestInstall installs the Debian package on copies of this machine, with and without
// systemd, uses it, upgrades and removes it. script/try-package has the steps.
func TestInstall(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release{root: root, into: t.TempDir(), version: "v1.2.3", date: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)}
	program := filepath.Join(r.into, "exeunt")
	// Without -trimpath, as the other tests build it: from the build cache.
	if _, err := output(root, "go", "build", "-ldflags", "-s -w -X main.releaseVersion=v1.2.3", "-o", program, "./cmd/exeunt"); err != nil {
		t.Fatal(err)
	}
	if err := r.document(program); err != nil {
		t.Fatal(err)
	}
	if err := r.packages("amd64", program); err != nil {
		t.Fatal(err)
	}
	for _, args := range [][]string{{"script/try-package"}, {"--without-systemd", "script/try-package"}} {
		cmd := exec.Command(filepath.Join(root, "script", "machine"), append(args, filepath.Join(r.into, "exeunt_1.2.3_amd64.deb"))...)
		cmd.Dir = root
		out, err := cmd.CombinedOutput()
		t.Logf("%s", out)
		if err != nil {
			t.Fatalf("%v: %v", args, err)
		}
	}
}
