package start_test

import (
	"encoding/json"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"github.com/exeunt/exeunt/test/harness"
)

// TestFreshDashboards: on a server that has just started, every query of a dashboard finds series, or its panel says 0: a
// panel without data looks broken to an operator.
func TestFreshDashboards(t *testing.T) {
	s := harness.Start(t, harness.SQLite)
	client, err := rest.HTTPClientFor(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	var metrics []byte
	for range 2 { // the first scrape is a request that the second one counts
		answer, err := client.Get(s.Config().Host + "/metrics")
		if err != nil {
			t.Fatal(err)
		}
		if metrics, err = io.ReadAll(answer.Body); err != nil || answer.StatusCode != http.StatusOK {
			t.Fatalf("%s, %v", answer.Status, err)
		}
		answer.Body.Close()
	}
	files, err := filepath.Glob("../../packaging/grafana/*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("%v, %v", files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		var dashboard struct {
			Panels []struct {
				Title       string
				Targets     []struct{ Expr string }
				FieldConfig struct{ Defaults struct{ NoValue string } }
			}
		}
		if err := json.Unmarshal(text, &dashboard); err != nil {
			t.Fatal(err)
		}
		for _, panel := range dashboard.Panels {
			for _, target := range panel.Targets {
				if missing := withoutSeries(target.Expr, string(metrics)); missing != "" && panel.FieldConfig.Defaults.NoValue != "0" {
					t.Errorf("%s, panel %q: a fresh server has no series of %s", filepath.Base(file), panel.Title, missing)
				}
			}
		}
	}
}

var (
	selector = regexp.MustCompile(`\b((?:exeunt|apiserver|process|go)_\w+)(?:\{([^}]*)\})?`)
	matcher  = regexp.MustCompile(`(\w+)\s*(=~|=|!=|!~)\s*"([^"]*)"`)
)

// withoutSeries returns a selector of an expression that no line of the metrics matches; "" if there is none.
func withoutSeries(expr, metrics string) string {
	for _, selected := range selector.FindAllStringSubmatch(expr, -1) {
		found := false
		for line := range strings.Lines(metrics) {
			rest, ok := strings.CutPrefix(line, selected[1])
			found = found || ok && (rest[0] == '{' || rest[0] == ' ') && matches(selected[2], rest)
		}
		if !found {
			return selected[0]
		}
	}
	return ""
}

// matches reports whether the labels of a sample match. Prometheus adds job and instance.
func matches(matchers, labels string) bool {
	for _, m := range matcher.FindAllStringSubmatch(matchers, -1) {
		if m[1] == "job" || m[1] == "instance" {
			continue
		}
		value := ""
		if found := regexp.MustCompile(`[{,]` + m[1] + `="([^"]*)"`).FindStringSubmatch(labels); found != nil {
			value = found[1]
		}
		pattern := m[3]
		if !strings.HasSuffix(m[2], "~") {
			pattern = regexp.QuoteMeta(pattern)
		}
		if regexp.MustCompile("^(?:"+pattern+")$").MatchString(value) == strings.HasPrefix(m[2], "!") {
			return false
		}
	}
	return true
}
