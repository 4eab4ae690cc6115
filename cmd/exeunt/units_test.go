package main

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/exeunt/exeunt/cmd/exeunt/settings"
	"github.com/exeunt/exeunt/lifecycle"
)

// TestUnits: flag, environment and file take the same texts, and refuse the same ones.
func TestUnits(t *testing.T) {
	for _, c := range []struct{ name, text, want string }{
		{"archive-for", "7d", "168h0m0s"}, {"archive-for", "1d12h", "36h0m0s"}, {"event-ttl", "90m", "1h30m0s"},
		{"archive-max-bytes", "10GB", "10000000000"}, {"registry-max-blob-bytes", "2GiB", "2147483648"},
		{"archive-for", "7 days", ""}, {"archive-max-bytes", "much", ""},
	} {
		var texts []string
		read := func(given map[string]string) {
			config, err := readConfig(t.Context(), given)
			if err != nil {
				texts = append(texts, err.Error())
				if c.want != "" {
					t.Errorf("%s: %s: %v", c.name, c.text, err)
				}
				return
			}
			for _, s := range config.Settings {
				if s.Name == c.name && s.Raw != c.want {
					t.Errorf("%s: %s is read as %s, want %s", c.name, c.text, s.Raw, c.want)
				}
			}
		}
		read(map[string]string{c.name: c.text})
		t.Setenv(settings.EnvironmentName(c.name), c.text)
		read(nil)
		if err := os.Unsetenv(settings.EnvironmentName(c.name)); err != nil {
			t.Fatal(err)
		}
		file := filepath.Join(t.TempDir(), "exeunt.yaml")
		if err := os.WriteFile(file, []byte(c.name+": "+c.text+"\n"), 0o600); err != nil {
			t.Fatal(err)
		}
		read(map[string]string{settings.ConfigFlag: file})
		if c.want == "" && len(texts) != 3 {
			t.Errorf("%s: %s is refused %d times of 3", c.name, c.text, len(texts))
		}
	}
}

func TestParseDuration(t *testing.T) {
	t.Parallel()
	for text, want := range map[string]time.Duration{"7d": 168 * time.Hour, "0d": 0, "1d1h30m": 25*time.Hour + 30*time.Minute, "36h": 36 * time.Hour, "0": 0, "-1h": -time.Hour} {
		if got, err := lifecycle.ParseDuration(text); err != nil || got != want {
			t.Errorf("%s is %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"", "d", "-1d", "1.5d", "1d-1h", "1h1d", "99999999d", "7"} {
		if got, err := lifecycle.ParseDuration(text); err == nil {
			t.Errorf("%q is %s", text, got)
		}
	}
}
