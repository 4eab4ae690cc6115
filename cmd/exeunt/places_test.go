package main

import (
	"io"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/exeunt/exeunt/cmd/exeunt/settings"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/sqldb/dbtest"
)

// alone are the commands that neither ask a server nor work on its data.
var alone = []string{
	"backup list", "backup prune", "backup verify", // their argument is where the backups are
	"bench apply", "completion bash", "completion fish", "completion powershell", "completion zsh",
	"config check",           // its argument is the file
	"envtest", "help", "man", // they print or write programs and pages
	"keys create", "keys rotate", // their argument is where the keys are, which may be of no server yet
	"node join", // it has a state of its own
}

// runnable returns the commands that do something, by their words.
func runnable() map[string]*cobra.Command {
	all := map[string]*cobra.Command{}
	each(newRoot(), func(c *cobra.Command) {
		if c.Runnable() && !c.HasSubCommands() {
			all[strings.TrimPrefix(c.CommandPath(), "exeunt ")] = c
		}
	})
	return all
}

// TestPlaces: a command asks a server, or works on the data of one, or is in the list above. Each that works on data finds it
// by flags, by the environment and by the server's file alike, and a flag wins.
func TestPlaces(t *testing.T) {
	backups, data := filepath.Join(t.TempDir(), "backups"), t.TempDir()
	if err := os.Mkdir(filepath.Join(data, "pki"), 0o700); err != nil {
		t.Fatal(err)
	}
	if code, _, stderr := run(t, "backup", "create", backups, "--database", dbtest.Migrated(t, sqldb.SQLite), "--data", data); code != 0 {
		t.Fatal(stderr)
	}
	// What a command needs beside the place of the data.
	arguments := map[string][]string{"backup create": {backups}, "backup restore": {backups}, "migrate down": {"--to", "9"}, "migrate database": {"--to", "copy.db"}, "registry verify": {"--registry-storage", backups}}
	t.Chdir(t.TempDir())
	tried := 0
	for name, c := range runnable() {
		switch online, offline := c.Flag("kubeconfig") != nil, c.Flag("data") != nil && name != "serve"; {
		case name == "serve" || online && !offline:
			continue
		case slices.Contains(alone, name) && !online && !offline:
			continue
		case online || !offline:
			t.Errorf("%s: it needs --kubeconfig, or addPlaces, or a line in the list of commands that have nothing of a server", name)
			continue
		}
		tried++
		args := append(strings.Fields(name), arguments[name]...)
		for _, setting := range []string{"data", "database"} {
			const here, elsewhere = "/dev/null/", "/dev/zero/" // places that cannot be read or written, so that each command names its own
			variable := settings.EnvironmentName(setting)
			says := func(how, variable, value string, more ...string) {
				t.Helper()
				if variable != "" {
					t.Setenv(variable, value)
					defer os.Unsetenv(variable)
				}
				root := newRoot()
				root.SetArgs(append(args, more...))
				root.SetOut(io.Discard)
				if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), path.Dir(here)) {
					t.Errorf("%s with %s by %s: %v", name, setting, how, err)
				}
			}
			file, other := settingsFile(t, setting+": "+here+"x\n"), settingsFile(t, setting+": "+elsewhere+"x\n")
			says("a flag", "", "", "--"+setting, here+"x")
			says("the file", "", "", "--config", file)
			says("a file that the environment names", settings.EnvironmentName(settings.ConfigFlag), file)
			says("a flag against the file", "", "", "--config", other, "--"+setting, here+"x")
			says("the environment", variable, here+"x")
			says("the environment against the file", variable, here+"x", "--config", other)
			says("a flag against the environment", variable, elsewhere+"x", "--"+setting, here+"x")
		}
	}
	if tried < 7 {
		t.Errorf("%d commands work on data: this test has changed", tried)
	}
}

// TestNoPasswordInArguments: a URL with a password is refused as an argument and as the value of a flag of every command, and
// not shown.
func TestNoPasswordInArguments(t *testing.T) {
	refused := func(args ...string) {
		t.Helper()
		root := newRoot()
		root.SetArgs(args)
		if err := root.ExecuteContext(t.Context()); err == nil || !strings.Contains(err.Error(), "has a password, which other users") || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%v: %v", args, err)
		}
	}
	tried := 0
	for name, c := range runnable() {
		words := strings.Fields(name)
		if c.DisableFlagParsing || slices.Contains([]string{"completion", "help"}, words[0]) {
			continue
		}
		tried++
		refused(append(words, "postgres://u:geheim@db/x")...)
		c.Flags().VisitAll(func(f *pflag.Flag) {
			if f.Value.Type() != "string" || f.Hidden {
				return
			}
			for _, url := range []string{"postgres://u:geheim@db/x", "https://h.example/?token=geheim", "postgres://u@db/x?sslpassword=geheim"} {
				refused(append(words, "--"+f.Name, url)...)
			}
		})
	}
	if tried < 40 {
		t.Errorf("%d commands were tried: this test has changed", tried)
	}
}
