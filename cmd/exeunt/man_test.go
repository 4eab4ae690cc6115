package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestManual: each command that the help shows has a manual page that names its flags.
func TestManual(t *testing.T) {
	dir, root := t.TempDir(), newRoot()
	if err := writeManual(root, dir); err != nil {
		t.Fatal(err)
	}
	each(root, func(c *cobra.Command) {
		text, err := os.ReadFile(filepath.Join(dir, manName(c)+".1"))
		if err != nil || !strings.Contains(string(text), ".SH NAME\n") {
			t.Errorf("%s: %v\n%s", c.CommandPath(), err, text)
		}
	})
	serve, err := os.ReadFile(filepath.Join(dir, "exeunt-serve.1"))
	if err != nil || !strings.Contains(string(serve), ".B \\-\\-listen HOST:PORT\n") || !strings.Contains(string(serve), "(default 127.0.0.1:6443)") {
		t.Errorf("exeunt-serve.1: %v\n%s", err, serve)
	}
	if got := roff(".a\\b-c\n'd"); got != "\\&.a\\eb\\-c\n\\&'d" {
		t.Errorf("roff is %q", got)
	}
}
