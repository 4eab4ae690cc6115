// Package packaging_test checks what operators install beside the server: alert rules and
// dashboards.
package packaging_test

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"
)

// rules is a file of Prometheus.
type rules struct {
	Groups []group `yaml:"groups"`
}

type group struct {
	Name  string `yaml:"name"`
	Rules []rule `yaml:"rules"`
}

type rule struct {
	Alert       string            `yaml:"alert,omitempty"`
	Record      string            `yaml:"record,omitempty"`
	Expr        string            `yaml:"expr"`
	Labels      map[string]string `yaml:"labels,omitempty"`
	Annotations map[string]string `yaml:"annotations,omitempty"`
}

// dashboard is the part of a dashboard of Grafana that the tests read.
type dashboard struct {
	UID    string `json:"uid"`
	Title  string `json:"title"`
	Panels []struct {
		ID      int    `json:"id"`
		Title   string `json:"title"`
		Targets []struct {
			Expr string `json:"expr"`
		} `json:"targets"`
	} `json:"panels"`
}

func readAlerts(t *testing.T) (alerts []rule) {
	t.Helper()
	var file rules
	if err := yaml.Unmarshal(read(t, "prometheus/rules.yaml"), &file); err != nil {
		t.Fatal(err)
	}
	for _, g := range file.Groups {
		alerts = append(alerts, g.Rules...)
	}
	if len(alerts) < 10 {
		t.Fatalf("found only %d alerts", len(alerts))
	}
	return alerts
}

func readDashboards(t *testing.T) map[string]dashboard {
	t.Helper()
	files, err := filepath.Glob("grafana/*.json")
	if err != nil || len(files) < 5 {
		t.Fatalf("dashboards: %v, %v", files, err)
	}
	all := map[string]dashboard{}
	for _, file := range files {
		var d dashboard
		if err := json.Unmarshal(read(t, file), &d); err != nil {
			t.Fatalf("%s: %v", file, err)
		}
		all[file] = d
	}
	return all
}

func read(t *testing.T, file string) []byte {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// expressions returns all expressions, by where they stand. Grafana's variables have
// values that Prometheus can parse.
func expressions(t *testing.T) map[string]string {
	t.Helper()
	values := strings.NewReplacer("$__rate_interval", "5m", "$instance", ".*")
	all := map[string]string{}
	for _, alert := range readAlerts(t) {
		all[alert.Alert] = alert.Expr
	}
	for file, d := range readDashboards(t) {
		for _, panel := range d.Panels {
			for i, target := range panel.Targets {
				all[fmt.Sprintf("%s, panel %q, target %d", file, panel.Title, i)] = values.Replace(target.Expr)
			}
		}
	}
	return all
}

// TestRulesByPromtool: Prometheus accepts the rules and every expression of the
// dashboards, and the alerts fire when they should (rules_test.yaml).
func TestRulesByPromtool(t *testing.T) {
	promtool(t, "check", "rules", "prometheus/rules.yaml")
	promtool(t, "test", "rules", "prometheus/rules_test.yaml")
	g := group{Name: "dashboards"}
	for _, expr := range expressions(t) {
		g.Rules = append(g.Rules, rule{Record: fmt.Sprintf("dashboards:expression:%d", len(g.Rules)), Expr: expr})
	}
	text, err := yaml.Marshal(rules{[]group{g}})
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(t.TempDir(), "dashboards.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	promtool(t, "check", "rules", file)
}

func promtool(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command("../script/promtool", args...).CombinedOutput(); err != nil {
		t.Errorf("promtool %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// TestMetricsExist: every metric of an alert or a dashboard, with its labels and queues,
// is in docs/metrics.md, which the tests of server compare with what a server registers.
func TestMetricsExist(t *testing.T) {
	page := string(read(t, "../docs/metrics.md"))
	labels := map[string][]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `((?:exeunt|apiserver)_\\w+)` \\| \\w+ \\| (.*?) \\|").FindAllStringSubmatch(page, -1) {
		labels[row[1]] = regexp.MustCompile(`\w+`).FindAllString(row[2], -1)
	}
	_, table, _ := strings.Cut(page, "## Queues\n")
	var queues []string
	for _, row := range regexp.MustCompile("(?m)^\\| `([\\w-]+)` \\| [a-z]").FindAllStringSubmatch(table, -1) {
		queues = append(queues, row[1])
	}
	selector := regexp.MustCompile(`\b((?:exeunt|apiserver)_\w+)(?:\{([^}]*)\})?`)
	matcher := regexp.MustCompile(`(\w+)\s*(=~|=|!=|!~)\s*"([^"]*)"`)
	for where, expr := range expressions(t) {
		for _, used := range selector.FindAllStringSubmatch(expr, -1) {
			name := used[1]
			if _, ok := labels[name]; !ok {
				name = strings.TrimSuffix(name, "_bucket")
			}
			if _, ok := labels[name]; !ok {
				t.Errorf("%s: no metric %s", where, used[1])
				continue
			}
			for _, m := range matcher.FindAllStringSubmatch(used[2], -1) {
				if !slices.Contains(append(labels[name], "instance", "job"), m[1]) {
					t.Errorf("%s: %s has no label %s", where, name, m[1])
				}
				if m[1] == "queue" && !slices.ContainsFunc(queues, regexp.MustCompile("^(?:"+m[3]+")$").MatchString) {
					t.Errorf("%s: no queue matches %q", where, m[3])
				}
			}
		}
	}
}

// TestRunbook: each alert has a severity, a summary and a section of docs/runbook.md, and
// each section an alert.
func TestRunbook(t *testing.T) {
	page := string(read(t, "../docs/runbook.md"))
	var sections, names []string
	for _, heading := range regexp.MustCompile(`(?m)^## (Exeunt\w+)$`).FindAllStringSubmatch(page, -1) {
		sections = append(sections, heading[1])
	}
	for _, alert := range readAlerts(t) {
		names = append(names, alert.Alert)
		if severity := alert.Labels["severity"]; severity != "critical" && severity != "warning" {
			t.Errorf("%s: severity %q", alert.Alert, severity)
		}
		if alert.Annotations["summary"] == "" {
			t.Errorf("%s has no summary", alert.Alert)
		}
		if got, want := alert.Annotations["runbook"], "docs/runbook.md#"+strings.ToLower(alert.Alert); got != want {
			t.Errorf("%s: runbook %q, want %q", alert.Alert, got, want)
		}
	}
	if !slices.Equal(names, sections) {
		t.Errorf("the alerts are\n%q, and docs/runbook.md explains\n%q", names, sections)
	}
}

// TestDashboards: each dashboard and each panel can be told from the others, and every
// panel shows something.
func TestDashboards(t *testing.T) {
	uids := map[string]string{}
	for file, d := range readDashboards(t) {
		if want := "exeunt-" + strings.TrimSuffix(filepath.Base(file), ".json"); d.UID != want || d.Title == "" {
			t.Errorf("%s: uid %q, title %q; want uid %q", file, d.UID, d.Title, want)
		}
		if other := uids[d.UID]; other != "" {
			t.Errorf("%s and %s have the same uid", file, other)
		}
		uids[d.UID] = file
		ids := map[int]bool{}
		for _, panel := range d.Panels {
			if panel.Title == "" || ids[panel.ID] || len(panel.Targets) == 0 {
				t.Errorf("%s: panel %d %q with %d targets: want a title, an id of its own and a target", file, panel.ID, panel.Title, len(panel.Targets))
			}
			ids[panel.ID] = true
		}
	}
}

// TestChartRules: the chart has the alerts of this folder: a chart can only read its own files.
func TestChartRules(t *testing.T) {
	if string(read(t, "helm/exeunt/rules.yaml")) != string(read(t, "prometheus/rules.yaml")) {
		t.Error("copy prometheus/rules.yaml to helm/exeunt/rules.yaml")
	}
}

// TestPurge: a purge says what it leaves, and removes it if that is asked for. Nothing else is
// removed, and other ends of the script remove nothing.
func TestPurge(t *testing.T) {
	all := []string{"var/lib/exeunt/data.db", "var/backups/exeunt/b1", "etc/exeunt/environment", "etc/other"}
	left := func(end string, environment ...string) (files []string, said string) {
		root := t.TempDir()
		for _, name := range all {
			if err := os.MkdirAll(filepath.Dir(filepath.Join(root, name)), 0o700); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(root, name), nil, 0o600); err != nil {
				t.Fatal(err)
			}
		}
		cmd := exec.Command("sh", "package/postremove.sh", end)
		cmd.Env = append(os.Environ(), append(environment, "DPKG_ROOT="+root)...)
		out, err := cmd.CombinedOutput()
		if err != nil {
			t.Fatalf("%v\n%s", err, out)
		}
		for _, name := range all {
			if _, err := os.Stat(filepath.Join(root, name)); err == nil {
				files = append(files, name)
			}
		}
		return files, string(out)
	}
	if files, said := left("remove"); !slices.Equal(files, all) || said != "" {
		t.Errorf("a removal leaves %v and says %q", files, said)
	}
	files, said := left("purge")
	if !slices.Equal(files, all) {
		t.Errorf("a purge leaves %v", files)
	}
	for _, want := range []string{"/var/lib/exeunt", "/var/backups/exeunt", "/etc/exeunt/environment", "EXEUNT_PURGE=all"} {
		if !strings.Contains(said, want) {
			t.Errorf("a purge does not name %s: %s", want, said)
		}
	}
	if files, _ := left("purge", "EXEUNT_PURGE=all"); !slices.Equal(files, []string{"etc/other"}) {
		t.Errorf("a purge of all leaves %v", files)
	}
}
