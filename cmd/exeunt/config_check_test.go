package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/pflag"

	"github.com/exeunt/exeunt/cmd/exeunt/settings"
	"github.com/exeunt/exeunt/server"
)

// startWith starts a server with a file of settings, on free ports and data of its own, and stops it when it serves.
func startWith(t *testing.T, file string) error {
	t.Helper()
	c, err := readConfig(t.Context(), map[string]string{settings.ConfigFlag: file})
	if err != nil {
		return err
	}
	data := t.TempDir()
	for setting, usual := range map[*string]string{
		&c.Data: "./data", &c.Database: "", &c.RegistryStorage: "", &c.Listen: "127.0.0.1:6443", &c.RegistryListen: "127.0.0.1:5000",
	} {
		switch {
		case *setting != usual: // the file has it
		case setting == &c.Data:
			c.Data = data
		case strings.HasPrefix(usual, "127."):
			*setting = "127.0.0.1:0"
		}
	}
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	c.Logger, c.Started = slog.New(slog.DiscardHandler), func(server.Addresses) { stop() }
	return server.Run(ctx, c)
}

// same checks that the command refuses a file if and only if a start does.
func same(t *testing.T, text string) (refused bool) {
	t.Helper()
	file := settingsFile(t, text)
	start := startWith(t, file)
	if errors.Is(start, context.Canceled) {
		start = nil
	}
	code, _, stderr := run(t, "config", "check", file)
	if (start != nil) != (code != 0) {
		t.Errorf("%q: a start says %v, and config check exits with %d: %s", text, start, code, stderr)
	}
	return start != nil
}

// TestConfigCheckAsStart: what a start refuses because of its settings, and of the files that they name, config check
// refuses, and nothing else.
func TestConfigCheckAsStart(t *testing.T) {
	t.Parallel()
	folder := t.TempDir()
	wrong := filepath.Join(folder, "wrong.yaml")
	if err := os.WriteFile(wrong, []byte("kind: Nothing\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	for text, refused := range map[string]bool{
		"max-cascade: 7\nhistory-for: 2d\narchive-max-bytes: 10MB\n": false,
		"audit-log-path: " + filepath.Join(folder, "audit.log"):      false,
		"listen: 127.0.0.1:99999":                                    true,
		"listen: localhost":                                          true,
		"database: mysql://db/x":                                     true,
		"database: postgres://u@[::1/x":                              true,
		"registry-storage: gs://bucket":                              true,
		"registry-storage: s3://bucket?part-size=1":                  true,
		"registry-storage: /tmp/a,from=/tmp/b":                       true,
		"registry-redirect: true":                                    true,
		"registry-review-after: {no_event: 1h}":                      true,
		"service-cluster-ip-range: 10.0.0.0":                         true,
		"tls-san: ['a b']":                                           true,
		"tls-cert-file: " + wrong:                                    true,
		"client-ca-file: " + wrong:                                   true,
		"authority-dir: " + folder:                                   true,
		"encryption-provider-config: " + wrong:                       true,
		"encryption-provider-config: /no/where":                      true,
		"authentication-config: " + wrong:                            true,
		"authorization-config: " + wrong:                             true,
		"token-auth-file: /no/where":                                 true,
		"service-account-signing-key-file: " + wrong:                 true,
		"oidc-issuer-url: http://plain.example":                      true,
		"audit-policy-file: " + wrong:                                true,
		"audit-webhook-config-file: /no/where":                       true,
		"management-kubeconfig: /no/where":                           true,
		"events-webhook: nonsense":                                   true,
		"otlp-endpoint: nonsense":                                    true,
		"backup-recipients: [nobody]":                                true,
		"manifests: /no/where":                                       true,
		"manifests: " + wrong:                                        true, // a file
		"manifests: " + folder:                                       false,
	} {
		if got := same(t, text); got != refused {
			t.Errorf("%q: refused: %v", text, got)
		}
	}
}

var configFiles = flag.Int("config-files", 16, "files with random settings of TestConfigCheckAsStartRandom")

// TestConfigCheckAsStartRandom compares both for random settings.
func TestConfigCheckAsStartRandom(t *testing.T) {
	t.Parallel()
	names := []string{}
	newServe(nil).Flags().VisitAll(func(f *pflag.Flag) {
		// Where data is, and what is only for one start, is not of the file alone.
		if !slices.Contains([]string{settings.ConfigFlag, "help", "output", "data", "database", "ephemeral", "encryption-give-up-key", "registry-storage", "backup-to", "audit-log-path"}, f.Name) {
			names = append(names, f.Name)
		}
	})
	seed := rand.Uint64()
	random := rand.New(rand.NewPCG(seed, 0))
	t.Logf("seed %d", seed)
	values := []string{"''", "0", "-1", "1", "x", "true", "1h", "10MB", "/no/where", "http://127.0.0.1:1", "127.0.0.1:0", "[]", "[a, b]", "{a: 1h}"}
	count := map[bool]int{}
	for range *configFiles {
		chosen := map[string]string{}
		for range 1 + random.IntN(2) {
			chosen[names[random.IntN(len(names))]] = values[random.IntN(len(values))]
		}
		text := ""
		for _, name := range slices.Sorted(maps.Keys(chosen)) {
			text += fmt.Sprintf("%s: %s\n", name, chosen[name])
		}
		count[same(t, text)]++
	}
	t.Logf("%d refused, %d accepted", count[true], count[false])
}
