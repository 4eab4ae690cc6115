package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestPackagedPages: the packages have the page that an alert names, where it says, and the pages to which pages link.
func TestPackagedPages(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	r := &release{root: root, into: t.TempDir(), version: "v1.2.3", date: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)}
	program := filepath.Join(r.into, "exeunt")
	for _, name := range []string{program, "THIRD-PARTY-LICENCES", "completions/exeunt.bash", "completions/_exeunt", "completions/exeunt.fish", "man/exeunt-serve.1"} {
		if name != program {
			name = filepath.Join(r.into, name)
		}
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte("text\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if err := r.packages("amd64", program); err != nil {
		t.Fatal(err)
	}
	installed := t.TempDir()
	if _, err := output(r.into, "dpkg-deb", "-x", "exeunt_1.2.3_amd64.deb", installed); err != nil {
		t.Fatal(err)
	}
	rules, err := os.ReadFile(filepath.Join(installed, installedDocs, "prometheus", "rules.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	named := regexp.MustCompile(`runbook: (\S+)#(\S+)`).FindAllSubmatch(rules, -1)
	if len(named) == 0 {
		t.Error("no alert names a page")
	}
	for _, n := range named {
		page, err := os.ReadFile(filepath.Join(installed, string(n[1])))
		if err != nil || !bytes.Contains(bytes.ToLower(page), append([]byte("\n## "), n[2]...)) {
			t.Errorf("the package has no %s#%s: %v", n[1], n[2], err)
		}
	}
	pages, err := filepath.Glob(filepath.Join(installed, installedDocs, "docs", "*.md"))
	if err != nil || len(pages) < 10 {
		t.Fatalf("the package has the pages %v: %v", pages, err)
	}
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, link := range regexp.MustCompile(`\]\(([a-z0-9/-]+\.md)`).FindAllSubmatch(text, -1) {
			if _, err := os.Stat(filepath.Join(filepath.Dir(page), string(link[1]))); err != nil {
				t.Errorf("%s links to what the package lacks: %v", page, err)
			}
		}
	}
}

// TestPackageVersion: packages of a release have its version, and those of other commits
// are older than every release.
func TestPackageVersion(t *testing.T) {
	date := time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)
	for version, want := range map[string]string{
		"v0.1.0": "0.1.0", "a1b2c3d": "0.0.0~20240506070809.a1b2c3d", "v0.1.0-3-ga1b2c3d-dirty": "0.0.0~20240506070809.v0.1.0.3.ga1b2c3d.dirty",
	} {
		if got := (&release{version: version, date: date}).packageVersion(); got != want {
			t.Errorf("%s becomes %s, want %s", version, got, want)
		}
	}
}

// TestChartVersion: the packed chart has the version of the release, in the forms of helm and of the image's tag, and all files
// of the chart.
func TestChartVersion(t *testing.T) {
	root, err := filepath.Abs("../..")
	if err != nil {
		t.Fatal(err)
	}
	for version, want := range map[string]string{"v1.2.3": "1.2.3", "v1.2.3-4-ga1b2c3d": "1.2.3-4-ga1b2c3d", "a1b2c3d": "0.0.0-ga1b2c3d"} {
		r := &release{root: root, into: t.TempDir(), version: version, date: time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC)}
		if err := r.chart(); err != nil {
			t.Fatal(err)
		}
		if _, err := output(r.into, "tar", "xzf", "exeunt-"+want+".tgz"); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(filepath.Join(r.into, "exeunt", "Chart.yaml"))
		if err != nil || !strings.Contains(string(text), "\nversion: "+want+"\n") || !strings.Contains(string(text), "\nappVersion: \""+version+"\"\n") {
			t.Errorf("%s: %v: %s", version, err, text)
		}
		if differs, err := output(r.into, "diff", "-r", "-x", "Chart.yaml", filepath.Join(root, "packaging", "helm", "exeunt"), "exeunt"); err != nil {
			t.Errorf("%s: the packed chart differs: %v: %s", version, err, differs)
		}
	}
}

// TestNameLicence: texts are named by the words that only they have.
func TestNameLicence(t *testing.T) {
	for text, want := range map[string]string{
		"Apache License\n   Version 2.0, January 2004":                            "Apache-2.0",
		"Redistributions of source code must retain … Neither the name of Google": "BSD-3-Clause",
		"Redistributions of source code must retain the above copyright":          "BSD-2-Clause",
		"Permission is hereby granted, free of\ncharge, to any person":            "MIT",
		"Permission to use, copy, modify, and distribute this software for any":   "ISC",
		"Mozilla Public License, version 2.0":                                     "MPL-2.0",
		"GNU GENERAL PUBLIC LICENSE Version 3":                                    "",
	} {
		if got := nameLicence(text); got != want {
			t.Errorf("%q is named %q, want %q", text, got, want)
		}
	}
}
