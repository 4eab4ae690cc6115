package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/cmd/exeunt/settings"
	"github.com/exeunt/exeunt/server"
)

// settingsFile writes a configuration file.
func settingsFile(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "exeunt.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

// settingsOf returns the settings that a command line, an environment and a file give.
func settingsOf(t *testing.T, args []string, env map[string]string, file string) (map[string]server.Setting, error) {
	t.Helper()
	flags := newServe(nil).Flags()
	if err := flags.Parse(append(args, "--config", file)); err != nil {
		t.Fatal(err)
	}
	list, err := settings.Apply(flags, func(name string) (string, bool) {
		value, set := env[name]
		return value, set
	})
	byName := map[string]server.Setting{}
	for _, s := range list {
		byName[s.Name] = s
	}
	return byName, err
}

// TestSettingsPrecedence: flags override the environment, which overrides the file; each
// value says where it comes from, and passwords are masked.
func TestSettingsPrecedence(t *testing.T) {
	file := settingsFile(t, `# the shop's server
listen: 192.0.2.1:1
registry-listen: 192.0.2.1:2
max-cascade: 7
archive-secrets: false
event-ttl: 90m
log-level: WARN
tls-san: [a.example, b.example]
registry-review-after: {tag_delete: 72h, tag_switch: 36h}
database: postgres://exeunt:geheim@db/exeunt?sslpassword=geheim&application_name=x
`)
	env := map[string]string{"EXEUNT_LISTEN": "192.0.2.1:3", "EXEUNT_REGISTRY_LISTEN": "192.0.2.1:4", "EXEUNT_STALL_TIMEOUT": "7s", "EXEUNT_PORT": "tcp://192.0.2.1:443"}
	byName, err := settingsOf(t, []string{"--listen", "192.0.2.1:5"}, env, file)
	if err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{
		"listen": "192.0.2.1:5 flag", "registry-listen": "192.0.2.1:4 environment EXEUNT_REGISTRY_LISTEN", "stall-timeout": "7s environment EXEUNT_STALL_TIMEOUT",
		"max-cascade": "7 " + file + ":4", "archive-secrets": "false " + file + ":5", "event-ttl": "1h30m0s " + file + ":6", "log-level": "WARN " + file + ":7",
		"tls-san":     "[a.example,b.example] " + file + ":8",
		"database":    "postgres://exeunt:xxxxx@db/exeunt?application_name=x&sslpassword=xxxxx " + file + ":10",
		"archive-for": "24h0m0s default", "config": file + " flag",
	} {
		if got := byName[name].Value + " " + byName[name].Source; got != want {
			t.Errorf("%s is %s, want %s", name, got, want)
		}
	}
	if got := byName["registry-review-after"].Value; !strings.Contains(got, "tag_delete=72h") || !strings.Contains(got, "tag_switch=36h") {
		t.Errorf("registry-review-after is %s", got)
	}
}

// TestSettingsMistakes: a mistake in a file names the file and the line, and no secret.
func TestSettingsMistakes(t *testing.T) {
	for text, want := range map[string]string{
		"data: /x\nlissten: a:1\n":       `:2: unknown key "lissten": the keys are the flags of exeunt serve`,
		"config: other.yaml\n":           `:1: unknown key "config"`,
		"listen: a:1\n\nlisten: b:1\n":   ":3: listen is also in line 1",
		"\n\nmax-cascade: many\n":        `:3: max-cascade: strconv.ParseInt: parsing "many"`,
		"listen: [a:1, b:1]\n":           ":1: listen: want a value of type string",
		"listen:\n":                      ":1: listen: want a value of type string",
		"tls-san: [[a], b]\n":            ":1: tls-san: its elements must be plain values",
		"- listen\n":                     ":1: want lines of the form NAME: VALUE",
		"listen: a\n  x: y\n":            "line 2: mapping values are not allowed",
		"max-cascade: http://a:geheim@b": `parsing "http://a:xxxxx@b"`,
	} {
		_, err := settingsOf(t, nil, nil, settingsFile(t, text))
		if err == nil || !strings.Contains(err.Error(), want) || strings.Contains(err.Error(), "geheim") {
			t.Errorf("%q: %v; want %q", text, err, want)
		}
	}
	if _, err := settingsOf(t, nil, map[string]string{"EXEUNT_MAX_CASCADE": "x"}, settingsFile(t, "# nothing\n")); err == nil || !strings.Contains(err.Error(), "environment EXEUNT_MAX_CASCADE: ") {
		t.Errorf("a wrong variable: %v", err)
	}
}

// TestConfigCheck: the command says what a start would refuse.
func TestConfigCheck(t *testing.T) {
	good := settingsFile(t, "listen: 127.0.0.1:0\nmax-cascade: 7\n")
	if code, stdout, stderr := run(t, "config", "check", good); code != 0 || stdout != good+" is valid: 2 settings\n" || stderr != "" {
		t.Errorf("exit %d, %q, %q", code, stdout, stderr)
	}
	if code, stdout, stderr := run(t, "config", "check", "-o", "yaml", good); code != 0 || !strings.Contains(stdout, "- name: max-cascade\n  source: "+good+":2\n  value: \"7\"\n") || stderr != "" {
		t.Errorf("-o yaml: exit %d, %q, %q", code, stdout, stderr)
	}
	for text, want := range map[string]string{
		"max-cascade: -1\n":  "--max-cascade -1: must not be negative",
		"listen: nonsense\n": `--listen "nonsense": want HOST:PORT`,
		"no-such-flag: 1\n":  `:1: unknown key "no-such-flag"`,
		"registry-listen: 0.0.0.0:5000\nregistry-anonymous: true\n": "--registry-anonymous: every client",
	} {
		if code, stdout, stderr := run(t, "config", "check", settingsFile(t, text)); code != 1 || stdout != "" || !strings.Contains(stderr, want) {
			t.Errorf("%q: exit %d, %q, %q; want %q", text, code, stdout, stderr, want)
		}
	}
}
