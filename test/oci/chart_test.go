package oci

import (
	"context"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/compose-spec/compose-go/v2/cli"
	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"sigs.k8s.io/yaml"

	"github.com/exeunt/exeunt/test/harness"
)

const chartDir = "../../packaging/helm/exeunt"

// replicated is the values of three replicas, with everything that the chart has.
const replicated = `
replicas: 3
image: {repository: registry.example/exeunt, tag: v1}
database: {existingSecret: exeunt-database}
keys: {existingSecret: exeunt-keys}
tls: {names: [exeunt.example.com], existingSecret: exeunt-tls}
registry: {storage: "s3://blobs/exeunt?region=eu-1", existingSecret: exeunt-s3}
config: {event-ttl: 2h}
serviceMonitor: {enabled: true, tokenSecret: exeunt-metrics}
`

// optional is what a chart has only if it is asked for, and Kubernetes itself has.
const optional = `
extraEnv: [{name: GOMEMLIMIT, value: 2GiB}]
ingress: {enabled: true, className: nginx, host: exeunt.example.com, tlsSecret: exeunt-tls, annotations: {a.example/b: c}}
networkPolicy: {enabled: true, from: [{namespaceSelector: {matchLabels: {team: shop}}}]}
`

const single = `image: {repository: registry.example/exeunt}`

// TestChart: helm accepts the chart, and renders what the values ask for; values with which
// the server would lose data or not start are refused.
func TestChart(t *testing.T) {
	for name, values := range map[string]string{"defaults": "", "single": single, "replicated": replicated, "all": replicated + optional + "prometheusRule: {enabled: true}"} {
		for _, message := range lint.All(chartDir, parseValues(t, values), "shop", true).Messages {
			if message.Severity > support.InfoSev {
				t.Errorf("%s: lint: %v", name, message)
			}
		}
	}
	one := renderChart(t, single)
	if pod := one["Deployment"]; pod == nil || one["PersistentVolumeClaim"] == nil || one["PodDisruptionBudget"] != nil || one["ServiceMonitor"] != nil {
		t.Errorf("a single server has %d objects", len(one))
	} else if text := render(t, pod); !strings.Contains(text, `"type":"Recreate"`) || strings.Contains(text, "EXEUNT_DATABASE") || !strings.Contains(text, "registry.example/exeunt:v0.1.0") {
		t.Errorf("the deployment of a single server is %s", text)
	}
	all := renderChart(t, replicated)
	if len(all) != 6 || all["PersistentVolumeClaim"] != nil {
		t.Errorf("three replicas have %d objects", len(all))
	}
	if monitor := render(t, all["ServiceMonitor"]); !strings.Contains(monitor, `"jobLabel":"app.kubernetes.io/name"`) || all["Service"].GetLabels()["app.kubernetes.io/name"] != "exeunt" {
		t.Errorf("the alerts are about another job: %s", monitor)
	}
	more := renderChart(t, replicated+optional+"prometheusRule: {enabled: true, labels: {release: prometheus}}")
	if len(more) != 9 || more["NetworkPolicy"] == nil || more["Ingress"] == nil || !strings.Contains(render(t, more["Deployment"]), `{"name":"GOMEMLIMIT","value":"2GiB"}`) {
		t.Errorf("with all that is optional there are %d objects", len(more))
	}
	if rules := render(t, more["PrometheusRule"]); !strings.Contains(rules, `"alert":"ExeuntDown"`) || !strings.Contains(rules, "{{ $labels.") {
		t.Errorf("the rules are %s", rules)
	}
	text := render(t, all["Deployment"])
	for _, want := range []string{
		`"replicas":3`, `"secretKeyRef":{"key":"url","name":"exeunt-database"}`, `{"name":"EXEUNT_AUTHORITY_DIR","value":"/etc/exeunt-keys"}`, `"secretName":"exeunt-keys"`,
		`exeunt.example.com`, `"value":"/etc/exeunt-tls/tls.crt"`, `"value":"s3://blobs/exeunt?region=eu-1"`, `"secretRef":{"name":"exeunt-s3"}`, `"path":"/readyz"`, `"runAsNonRoot":true`, `"readOnlyRootFilesystem":true`,
	} {
		if !strings.Contains(text, want) {
			t.Errorf("the deployment of three replicas lacks %s: %s", want, text)
		}
	}
	for values, want := range map[string]string{
		``:                             "image",
		single + "\nreplicas: 2":       "more than one needs PostgreSQL",
		single + "\nlisten: here":      "listen",
		single + "\nreplicas: several": "replicas",
		single + "\ndatabase: {url: \"postgres://db/x\"}":                            "keys.existingSecret is required",
		single + "\ndatabase: {url: \"postgres://db/x\"}\nkeys: {existingSecret: k}": "registry.storage must be s3://",
		single + "\nserviceMonitor: {enabled: true}":                                 "serviceMonitor.tokenSecret is required",
		single + "\ningress: {enabled: true}":                                        "ingress.host is required",
		single + "\nregistry: {storage: /srv/blobs}":                                 "storage",
	} {
		if _, err := tryChart(parseValues(t, values)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("values %q: %v, want %q", values, err, want)
		}
	}
}

func parseValues(t *testing.T, text string) map[string]any {
	t.Helper()
	values, err := chartutil.ReadValues([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	return values
}

func tryChart(values map[string]any) (map[string]string, error) {
	chart, err := loader.Load(chartDir)
	if err != nil {
		return nil, err
	}
	all, err := chartutil.ToRenderValues(chart, values, chartutil.ReleaseOptions{Name: "exeunt", Namespace: "shop"}, nil)
	if err != nil {
		return nil, err
	}
	return engine.Render(chart, all)
}

// renderChart returns the chart's objects by kind.
func renderChart(t *testing.T, values string) map[string]*unstructured.Unstructured {
	t.Helper()
	files, err := tryChart(parseValues(t, values))
	if err != nil {
		t.Fatal(err)
	}
	objects := map[string]*unstructured.Unstructured{}
	for name, text := range files {
		if filepath.Ext(name) != ".yaml" || strings.TrimSpace(text) == "" {
			continue
		}
		o := &unstructured.Unstructured{}
		if err := yaml.UnmarshalStrict([]byte(text), &o.Object); err != nil {
			t.Fatalf("%s: %v\n%s", name, err, text)
		}
		objects[o.GetKind()] = o
	}
	return objects
}

func render(t *testing.T, o *unstructured.Unstructured) string {
	t.Helper()
	text, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// applyChart creates the objects of the chart in the server, which knows every field of
// them and validates them as Kubernetes does.
func applyChart(t *testing.T, s *harness.Server) {
	t.Helper()
	client, err := dynamic.NewForConfig(s.Config())
	if err != nil {
		t.Fatal(err)
	}
	resources := map[string]schema.GroupVersionResource{
		"Deployment": {Group: "apps", Version: "v1", Resource: "deployments"}, "PodDisruptionBudget": {Group: "policy", Version: "v1", Resource: "poddisruptionbudgets"},
		"Service": {Version: "v1", Resource: "services"}, "ConfigMap": {Version: "v1", Resource: "configmaps"}, "ServiceAccount": {Version: "v1", Resource: "serviceaccounts"},
		"PersistentVolumeClaim": {Version: "v1", Resource: "persistentvolumeclaims"},
		"Ingress":               {Group: "networking.k8s.io", Version: "v1", Resource: "ingresses"}, "NetworkPolicy": {Group: "networking.k8s.io", Version: "v1", Resource: "networkpolicies"},
	}
	for _, values := range []string{single, single + optional, strings.Replace(replicated, "enabled: true", "enabled: false", 1)} {
		for kind, o := range renderChart(t, values) {
			_, err := client.Resource(resources[kind]).Namespace("default").Create(t.Context(), o, metav1.CreateOptions{FieldValidation: metav1.FieldValidationStrict, DryRun: []string{metav1.DryRunAll}})
			if err != nil {
				t.Errorf("%s: %v", kind, err)
			}
		}
	}
}

// TestCompose: Docker Compose's library accepts the file. It refuses keys that it does not
// know. The health check is the program's own, because the image has no shell.
func TestCompose(t *testing.T) {
	dir := t.TempDir()
	text, err := os.ReadFile("../../packaging/compose/compose.yaml")
	if err != nil {
		t.Fatal(err)
	}
	file := filepath.Join(dir, "compose.yaml")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	options, err := cli.NewProjectOptions([]string{file}, cli.WithName("exeunt"), cli.WithEnv([]string{"EXEUNT_IMAGE=registry.example/exeunt:v1"}))
	if err != nil {
		t.Fatal(err)
	}
	project, err := options.LoadProject(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	server := project.Services["exeunt"]
	if got := strings.Join(server.HealthCheck.Test, " "); got != "CMD /usr/bin/exeunt status --ready" || server.Image != "registry.example/exeunt:v1" || !server.ReadOnly ||
		server.DependsOn["postgres"].Condition != "service_healthy" || len(server.Secrets) != 1 {
		t.Errorf("the server is %+v", server)
	}
	if without, err := cli.NewProjectOptions([]string{file}, cli.WithName("exeunt")); err != nil {
		t.Fatal(err)
	} else if _, err := without.LoadProject(context.Background()); err == nil || !strings.Contains(err.Error(), "EXEUNT_IMAGE") {
		t.Errorf("without an image: %v", err)
	}
}
