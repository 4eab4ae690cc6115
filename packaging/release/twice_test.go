package main

import (
	"archive/tar"
	"errors"
	"io"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// TestPackTwice: two packagings of one program, in two directories, give the same files,
// byte for byte: archives, packages, SPDX documents, image and checksums. (make release
// also builds the program twice.)
func TestPackTwice(t *testing.T) {
	program := filepath.Join(t.TempDir(), "exeunt")
	if _, err := output(".", "go", "build", "-ldflags", "-s -w", "-o", program, "./testdata/small"); err != nil {
		t.Fatal(err)
	}
	first, second := packAll(t, program), packAll(t, program)
	if !maps.Equal(first, second) {
		t.Errorf("two packagings differ:\n%v\n%v", first, second)
	}
	for _, want := range []string{
		"exeunt-v1.2.3-linux-amd64.tar.gz", "exeunt-v1.2.3-linux-amd64.spdx.json", "exeunt-v1.2.3-windows-amd64.zip", "exeunt_1.2.3_amd64.deb", "exeunt_1.2.3_arm64.deb",
		"exeunt-1.2.3-1.x86_64.rpm", "exeunt-1.2.3-1.aarch64.rpm", "exeunt-v1.2.3-image.tar", "exeunt-1.2.3.tgz", "THIRD-PARTY-LICENCES",
	} {
		if first[want] == "" {
			t.Errorf("the release has no %s: %v", want, first)
		}
	}
}

// packAll packs a release in a new directory and returns its checksums.
func packAll(t *testing.T, program string) map[string]string {
	t.Helper()
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	root, err := filepath.Abs("../..")
	check(err)
	r := &release{root: root, into: t.TempDir(), version: "v1.2.3", date: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC),
		linux: map[string]string{"linux/amd64": program, "linux/arm64": program}}
	for _, name := range []string{"man/exeunt-serve.1", "completions/exeunt.bash", "completions/_exeunt", "completions/exeunt.fish"} {
		file := filepath.Join(r.into, name)
		check(os.MkdirAll(filepath.Dir(file), 0o755))
		check(os.WriteFile(file, []byte(name), 0o644))
	}
	check(r.licences(program))
	for _, platform := range []string{"linux/amd64", "linux/arm64", "windows/amd64"} {
		check(r.pack(platform, program))
	}
	check(r.image())
	check(r.chart())
	check(r.checksums())
	checkArchive(t, filepath.Join(r.into, "exeunt-v1.2.3-image.tar"))
	text, err := os.ReadFile(filepath.Join(r.into, "SHA256SUMS"))
	check(err)
	sums := map[string]string{}
	for line := range strings.Lines(string(text)) {
		sum, name, _ := strings.Cut(strings.TrimSpace(line), "  ")
		sums[name] = sum
	}
	return sums
}

// checkArchive: the archive is an OCI layout.
func checkArchive(t *testing.T, file string) {
	t.Helper()
	in, err := os.Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer in.Close()
	names := map[string]bool{}
	for archive := tar.NewReader(in); ; {
		header, err := archive.Next()
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		names[strings.SplitN(header.Name, "/", 2)[0]] = true
	}
	if !names["oci-layout"] || !names["index.json"] || !names["blobs"] {
		t.Errorf("the archive of the image has %v", names)
	}
}
