package main

import (
	"testing"
	"time"
)

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
