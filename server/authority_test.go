package server

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/exeunt/exeunt/access"
)

// TestTakeAuthority: a replica gets the authority of the others at its first start, also
// after a crash between the two files, and never loses another one.
func TestTakeAuthority(t *testing.T) {
	t.Parallel()
	shared := t.TempDir()
	if err := access.CreateAuthority(shared, time.Now()); err != nil {
		t.Fatal(err)
	}
	read := func(name string) string {
		t.Helper()
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	c := Config{Data: t.TempDir(), AuthorityDir: shared}
	own := filepath.Join(c.Data, "pki")
	for _, missing := range []string{"", "ca.crt", "ca.key"} {
		if missing != "" {
			if err := os.Remove(filepath.Join(own, missing)); err != nil {
				t.Fatal(err)
			}
		}
		if err := takeAuthority(c); err != nil {
			t.Fatalf("without %q: %v", missing, err)
		}
		for _, name := range []string{"ca.crt", "ca.key"} {
			if read(filepath.Join(own, name)) != read(filepath.Join(shared, name)) {
				t.Errorf("without %q: %s differs", missing, name)
			}
		}
	}
	identity, err := access.Open(own, []string{"localhost"}, time.Now())
	if err != nil || string(identity.AuthorityPEM()) != read(filepath.Join(shared, "ca.crt")) {
		t.Errorf("the server does not use the authority: %v", err)
	}
	other := t.TempDir()
	if err := access.CreateAuthority(other, time.Now()); err != nil {
		t.Fatal(err)
	}
	before := read(filepath.Join(own, "ca.key"))
	if err := takeAuthority(Config{Data: c.Data, AuthorityDir: other}); err == nil || !strings.Contains(err.Error(), "differs from") {
		t.Errorf("another authority: %v", err)
	}
	if read(filepath.Join(own, "ca.key")) != before {
		t.Error("the key of the authority was replaced")
	}
	if err := takeAuthority(Config{Data: t.TempDir(), AuthorityDir: t.TempDir()}); err == nil || !strings.Contains(err.Error(), "ca.key") {
		t.Errorf("an empty directory: %v", err)
	}
}
