package server

import (
	"errors"
	"flag"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil/promlint"
	dto "github.com/prometheus/client_model/go"

	"github.com/exeunt/exeunt/api"
	"github.com/exeunt/exeunt/sqldb"
)

var update = flag.Bool("update", false, "rewrite docs/metrics.md and docs/reference/api.md")

const metricsPage = "../docs/metrics.md"

// metricsHeader is the part of docs/metrics.md that is the same for all metrics.
const metricsHeader = `# Metrics

` + "`go generate ./server`" + ` writes this page from the metrics that a server registers. Prometheus scrapes ` + "`https://HOST:6443/metrics`" + ` with the
credentials of a client that may get that path: [Monitor the server](operating.md#monitor-the-server).
The alerts and dashboards in ` + "`packaging/`" + ` use them; [runbook.md](runbook.md) explains the alerts.

Counters and histograms are of one replica, since its start: add them up. The gauges of queues, of the database's size and of the collector's
pause are read from the shared database: they are equal on all replicas, so take their maximum. A series with labels appears when its first event
has happened. The server also has the usual ` + "`go_*`" + ` and ` + "`process_*`" + `.

| name | type | labels | meaning |
|---|---|---|---|
`

// queues says what each queue reviews. Every value of the label queue needs a line.
var queues = map[string]string{
	"admission":                   "objects that the collector is to delete and about which webhooks or policies decide first",
	"mesh-nodes":                  "nodes of the mesh that leave or send no heartbeat",
	"objects":                     "objects whose owner, namespace or dependents changed: garbage collection",
	"provisioned-resource-events": "events of the broker that are to be published",
	"provisioned-resources":       "rounds of the broker",
	"expiry":                      "Objects that expire, at their time",
	"expiry-policies":             "Policies of expiry that were written, and whose objects are not counted yet",
	"restores":                    "Restores that have not ended",
	"quotas":                      "statuses of ResourceQuotas",
	"registry-blobs":              "blobs that may be unused",
	"registry-manifests":          "manifests that may be unused",
	"registry-repositories":       "repositories whose object is deleted",
	"registry-unlinks":            "bytes in the blob store that no row names",
}

// metric is what a server registers under one name.
type metric struct {
	name, help string
	labels     []string
	constant   map[string]map[string]bool // label to values
}

// kind returns the type that the name says, as Prometheus' rules want it: counters end
// in _total, and our histograms in _duration_seconds. TestMetricsPage compares it with
// the types of the metrics that have samples.
func (m *metric) kind() dto.MetricType {
	switch {
	case strings.HasSuffix(m.name, "_total"):
		return dto.MetricType_COUNTER
	case strings.HasSuffix(m.name, "_duration_seconds"):
		return dto.MetricType_HISTOGRAM
	}
	return dto.MetricType_GAUGE
}

func (m *metric) row() string {
	var labels []string
	for _, label := range m.labels {
		labels = append(labels, "`"+label+"`")
	}
	for _, label := range slices.Sorted(maps.Keys(m.constant)) {
		labels = append(labels, "`"+label+"`")
	}
	return fmt.Sprintf("| `%s` | %s | %s | %s |\n", m.name, strings.ToLower(m.kind().String()), strings.Join(labels, ", "), m.help)
}

// sample is a family of the metric with one sample, for the linter.
func (m *metric) sample() *dto.MetricFamily {
	one := &dto.Metric{}
	for _, label := range append(slices.Collect(maps.Keys(m.constant)), m.labels...) {
		one.Label = append(one.Label, &dto.LabelPair{Name: &label, Value: new(string)})
	}
	switch m.kind() {
	case dto.MetricType_COUNTER:
		one.Counter = &dto.Counter{Value: new(float64)}
	case dto.MetricType_HISTOGRAM:
		one.Histogram = &dto.Histogram{}
	default:
		one.Gauge = &dto.Gauge{Value: new(float64)}
	}
	kind := m.kind()
	return &dto.MetricFamily{Name: &m.name, Help: &m.help, Type: &kind, Metric: []*dto.Metric{one}}
}

var (
	descPattern  = regexp.MustCompile(`^Desc\{fqName: ("[^"]*"), help: ("(?:[^"\\]|\\.)*"), unit: "[^"]*", constLabels: \{(.*)\}, variableLabels: \{(.*)\}\}$`)
	labelPattern = regexp.MustCompile(`(\w+)="([^"]*)"`)
)

// registered returns the metrics of this program in a registry, by name.
func registered(t *testing.T, registry *prometheus.Registry) map[string]*metric {
	t.Helper()
	descs := make(chan *prometheus.Desc)
	go func() {
		registry.Describe(descs)
		close(descs)
	}()
	all := map[string]*metric{}
	for desc := range descs {
		parts := descPattern.FindStringSubmatch(desc.String())
		if parts == nil {
			t.Fatalf("the library describes a metric in another form: %s", desc)
		}
		name, _ := strconv.Unquote(parts[1])
		if strings.HasPrefix(name, "go_") || strings.HasPrefix(name, "process_") {
			continue
		}
		m := all[name]
		if m == nil {
			m = &metric{name: name, constant: map[string]map[string]bool{}}
			m.help, _ = strconv.Unquote(parts[2])
			if parts[4] != "" {
				m.labels = strings.Split(parts[4], ",")
			}
			all[name] = m
		}
		for _, pair := range labelPattern.FindAllStringSubmatch(parts[3], -1) {
			if m.constant[pair[1]] == nil {
				m.constant[pair[1]] = map[string]bool{}
			}
			m.constant[pair[1]][pair[2]] = true
		}
	}
	return all
}

// openMetrics returns the metrics of a server with all its parts. It serves no request.
func openMetrics(t *testing.T) *metrics {
	t.Helper()
	c := Config{
		Data: t.TempDir(), Listen: "127.0.0.1:0", RegistryListen: "127.0.0.1:0", Version: "test", Logger: slog.New(slog.DiscardHandler),
	}.withDefaults()
	db, err := sqldb.Open(t.Context(), c.Database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = db.Close() })
	st, err := openStore(t.Context(), c, db)
	if err != nil {
		t.Fatal(err)
	}
	s := newServer(c, db, st)
	t.Cleanup(func() {
		if err := errors.Join(s.close(), st.Close()); err != nil {
			t.Error(err)
		}
	})
	if err := s.assemble(t.Context()); err != nil {
		t.Fatal(err)
	}
	return s.metrics
}

// TestMetricsPage: docs/metrics.md lists what a server registers, and every metric
// follows Prometheus' rules for names.
func TestMetricsPage(t *testing.T) {
	meters := openMetrics(t)
	all := registered(t, meters.registry)
	page, samples := metricsHeader, []*dto.MetricFamily{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		page += all[name].row()
		samples = append(samples, all[name].sample())
	}
	page += "\n## Queues\n\n| `queue` | what it reviews |\n|---|---|\n"
	for _, name := range slices.Sorted(maps.Keys(all["exeunt_review_queue_depth"].constant["queue"])) {
		if queues[name] == "" {
			t.Errorf("queue %q has no line in this test", name)
		}
		page += fmt.Sprintf("| `%s` | %s |\n", name, queues[name])
	}
	problems, err := promlint.NewWithMetricFamilies(samples).Lint()
	if err != nil {
		t.Fatal(err)
	}
	for _, p := range problems {
		t.Errorf("%s: %s", p.Metric, p.Text)
	}
	meters.observe(api.Observation{Verb: "GET", Version: "v1", Resource: "pods", Scope: "resource", Code: 200})
	families, err := meters.registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	seen := 0
	for _, f := range families {
		if m := all[f.GetName()]; m != nil {
			if seen++; f.GetType() != m.kind() {
				t.Errorf("%s is a %s, and its name says %s", m.name, f.GetType(), m.kind())
			}
		}
	}
	if seen < len(all)/2 {
		t.Errorf("%d of %d metrics have samples: this test has changed", seen, len(all))
	}
	if *update {
		if err := os.WriteFile(metricsPage, []byte(page), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	old, err := os.ReadFile(metricsPage)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page, string(old)); diff != "" {
		t.Errorf("docs/metrics.md is stale: run go generate ./server (-want +got):\n%s", diff)
	}
}
