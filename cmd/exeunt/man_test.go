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
		text, err := os.ReadFile(filepath.Join(dir, strings.ReplaceAll(c.CommandPath(), " ", "-")+".1"))
		if err != nil || !strings.Contains(string(text), ".SH NAME\n") {
			t.Errorf("%s: %v\n%s", c.CommandPath(), err, text)
		}
	})
	serve, err := os.ReadFile(filepath.Join(dir, "exeunt-serve.1"))
	if err != nil || !strings.Contains(string(serve), `\fB--listen\fP="127.0.0.1:6443"`) || strings.Contains(string(serve), "Auto generated") {
		t.Errorf("exeunt-serve.1: %v\n%s", err, serve)
	}
}
