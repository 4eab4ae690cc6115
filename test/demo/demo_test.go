package demo

import (
	"context"
	"database/sql"
	"maps"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"

	"github.com/exeunt/exeunt/test/harness"
)

// TestDemo runs the demo on both engines and checks everything that it claims.
func TestDemo(t *testing.T) {
	for _, engine := range harness.Engines(t.Name()) {
		t.Run(engine, func(t *testing.T) {
			r, database, metrics := run(t, engine)
			t.Run("metrics", func(t *testing.T) { checkMetrics(t, metrics) })
			t.Run("preview", func(t *testing.T) { checkPreview(t, r) })
			t.Run("order", func(t *testing.T) {
				checkOrder(t, r.between(r.Asked, r.Restored))
				checkOrder(t, r.between(r.Restored, 1<<62))
			})
			t.Run("grace", func(t *testing.T) { checkGrace(t, r) })
			t.Run("why", func(t *testing.T) { checkWhy(t, r) })
			t.Run("restore", func(t *testing.T) { checkRestore(t, r) })
			t.Run("no process is left", func(t *testing.T) { checkGone(t, r) })
			t.Run("bytes", func(t *testing.T) { checkBytes(t, r, engine, database) })
		})
	}
}

// run runs the demo, and reads /metrics after its last act.
func run(t *testing.T, engine string) (r *Record, database, metrics string) {
	t.Helper()
	bin, err := harness.PluginDir()
	if err != nil {
		t.Fatal(err)
	}
	examples, err := filepath.Abs("../../examples/shop")
	if err != nil {
		t.Fatal(err)
	}
	database = harness.Database(t, engine)
	scene := func(ctx context.Context, act, kubeconfig string) (err error) {
		if act == "deleteForGood" {
			metrics, err = readMetrics(ctx, kubeconfig)
		}
		return err
	}
	r, err = Run(t.Context(), Config{
		Exeunt: filepath.Join(bin, "exeunt"), Kubectl: harness.KubectlPath(t), Examples: examples,
		Dir: t.TempDir(), Database: database, Out: t.Output(), Scene: scene,
	})
	if err != nil {
		t.Fatal(err)
	}
	return r, database, metrics
}

func readMetrics(ctx context.Context, kubeconfig string) (string, error) {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return "", err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return "", err
	}
	text, err := client.RESTClient().Get().AbsPath("/metrics").DoRaw(ctx)
	return string(text), err
}

// checkMetrics: the server has every metric that an alert or a dashboard in packaging/ names.
func checkMetrics(t *testing.T, metrics string) {
	names := map[string]bool{}
	for _, pattern := range []string{"prometheus/rules.yaml", "grafana/*.json"} {
		files, err := filepath.Glob("../../packaging/" + pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, file := range files {
			text, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range regexp.MustCompile(`\b(exeunt|process|go)_\w+`).FindAllString(string(text), -1) {
				names[strings.TrimSuffix(name, "_bucket")] = true
			}
		}
	}
	if len(names) < 20 {
		t.Errorf("packaging/ names only %d metrics: its form or this test has changed", len(names))
	}
	for name := range names {
		if !strings.Contains(metrics, "# TYPE "+name+" ") {
			t.Errorf("/metrics has no %s, which packaging/ names", name)
		}
	}
}

// between returns the events after one revision and up to another.
func (r *Record) between(from, to int64) (events []Event) {
	for _, e := range r.Events {
		if e.Revision > from && e.Revision <= to {
			events = append(events, e)
		}
	}
	return events
}

// checkPreview: exactly the listed objects went, and the objects that the listed
// ProvisionedResource had built, for which its finalizer stands.
func checkPreview(t *testing.T, r *Record) {
	listed, archived, gone := map[string]string{}, map[string]string{}, map[string]string{}
	for _, i := range r.Preview {
		if !slices.Contains([]string{"Delete", "Wait", "Block"}, i.Action) {
			t.Errorf("%s %s: %s", i.Kind, i.Name, i.Action)
		}
		listed[i.UID] = i.Kind + " " + i.Name
	}
	for _, i := range r.Archived {
		archived[i.UID] = i.Kind + " " + i.Name
	}
	built := map[string]int{}
	for _, e := range r.between(r.Asked, r.Restored) {
		switch uid := string(e.Object.GetUID()); {
		case e.Verb != watch.Deleted:
		case e.Object.GetLabels()["provisioning.exeunt.dev/resource-id"] != "", e.Object.GetKind() == "Machine", e.Object.GetKind() == "MeshNode":
			built[e.Object.GetKind()]++
		default:
			gone[uid] = e.Name()
		}
	}
	if len(listed) != 8 {
		t.Errorf("the preview listed %v, want 8 objects", listed)
	}
	if diff := cmp.Diff(listed, archived); diff != "" {
		t.Errorf("what the preview listed (-) and what the archive has (+):\n%s", diff)
	}
	if diff := cmp.Diff(listed, gone); diff != "" {
		t.Errorf("what the preview listed (-) and what went (+):\n%s", diff)
	}
	want := map[string]int{"MeshNode": 1, "XNode": 1, "Machine": 1, "ProviderConfig": 1, "Secret": 1}
	if diff := cmp.Diff(want, built); diff != "" {
		t.Errorf("what was built (-) and what of it went (+):\n%s", diff)
	}
}

// checkOrder: the node goes first, then the substrate, then the declaration.
func checkOrder(t *testing.T, events []Event) {
	t.Helper()
	at := func(kind string, match func(Event) bool) int64 {
		for _, e := range events {
			if e.Object.GetKind() == kind && match(e) {
				return e.Revision
			}
		}
		t.Errorf("no such event of a %s", kind)
		return 0
	}
	gone := func(e Event) bool { return e.Verb == watch.Deleted }
	steps := []struct {
		what string
		at   int64
	}{
		{"the declaration is deleted", at("ProvisionedResource", Event.Deleting)},
		{"the node is asked to leave", at("MeshNode", Event.Deleting)},
		{"the node is gone", at("MeshNode", gone)},
		{"the XR is deleted", at("XNode", Event.Deleting)},
		{"the machine is deleted", at("Machine", Event.Deleting)},
		{"the machine is gone", at("Machine", gone)},
		{"the XR is gone", at("XNode", gone)},
		{"the ProviderConfig is gone", at("ProviderConfig", gone)},
		{"the declaration is gone", at("ProvisionedResource", gone)},
	}
	for i := 1; i < len(steps); i++ {
		if steps[i].at <= steps[i-1].at {
			t.Errorf("%s at %d, %s at %d", steps[i-1].what, steps[i-1].at, steps[i].what, steps[i].at)
		}
	}
}

// checkGrace: pods were marked, had their grace period, and went. In the background each
// owner goes before its dependents, in the foreground after them.
func checkGrace(t *testing.T, r *Record) {
	background := []string{"App", "Deployment", "ReplicaSet", "Pod", "Pod", "Pod"}
	checkLeaving(t, r.between(r.Asked, r.Restored), background)
	slices.Reverse(background)
	checkLeaving(t, r.between(r.Again, 1<<62), background)
}

func checkLeaving(t *testing.T, events []Event, want []string) {
	t.Helper()
	asked, gone, order := map[string]bool{}, 0, []string{}
	for _, e := range events {
		grace := e.Object.GetDeletionGracePeriodSeconds()
		switch kind := e.Object.GetKind(); {
		case kind == "Pod" && e.Verb == watch.Modified && e.Deleting() && grace != nil && *grace == 30:
			asked[e.Name()] = true
		case kind == "Pod" && e.Verb == watch.Deleted:
			if !asked[e.Name()] {
				t.Errorf("%s was removed without a deletionTimestamp before", e.Name())
			}
			gone++
			order = append(order, kind)
		case e.Verb == watch.Deleted && slices.Contains([]string{"ReplicaSet", "Deployment", "App"}, kind):
			order = append(order, kind)
		}
	}
	if gone != 3 {
		t.Errorf("%d pods went", gone)
	}
	if diff := cmp.Diff(want, order); diff != "" {
		t.Errorf("order (-want +got):\n%s", diff)
	}
}

// checkWhy: while the deletion was held, the report named everything that it waited for.
func checkWhy(t *testing.T, r *Record) {
	for _, want := range []string{
		"App shop in namespace shop does not exist.", "4 objects to follow it.", "Gone: it was deleted by ", "Dependent: Pod web-1-",
		"GracePeriod: its grace period of 30s has", "Dependent: ProvisionedResource edge",
		"finalizer provisioning.exeunt.dev/teardown is the broker's: Deregistering: waiting for the node to leave the mesh",
		"WaitsFor: MeshNode edge-", "finalizer mesh.exeunt.dev/drain is the mesh's: Draining: asked to finish its connections and leave",
	} {
		if !strings.Contains(r.Why, want) {
			t.Errorf("the report does not say %q:\n%s", want, r.Why)
		}
	}
	if strings.Contains(r.Why, "Repository") {
		t.Errorf("the report names objects that were gone:\n%s", r.Why)
	}
}

// checkRestore: the same objects are back with their uids, but for the provisioned resource, which is
// a new one, and the controllers do not change them.
func checkRestore(t *testing.T, r *Record) {
	if len(r.Before) != len(r.Preview) {
		t.Errorf("before the deletion there were %v, want as many as the preview listed", slices.Sorted(maps.Keys(r.Before)))
	}
	if diff := cmp.Diff(r.Before, r.After); diff != "" {
		t.Errorf("before (-) and restored (+):\n%s", diff)
	}
	was := map[string]string{}
	for _, i := range r.Preview {
		was[i.Kind+" "+i.Name] = i.UID
	}
	for _, e := range r.between(r.Restored, 1<<62) {
		reborn := e.Object.GetKind() == "ProvisionedResource"
		if uid := was[e.Name()]; e.Verb == watch.Added && uid != "" && reborn == (uid == string(e.Object.GetUID())) {
			t.Errorf("%s was %s and is back with the uid %s", e.Name(), uid, e.Object.GetUID())
		}
	}
	if diff := cmp.Diff(r.Before, r.Settled); diff != "" {
		t.Errorf("before (-) and when the controllers were back (+):\n%s", diff)
	}
}

// checkGone: after the demo, neither the server nor an agent listens.
func checkGone(t *testing.T, r *Record) {
	listened := map[string]bool{r.Registry: true}
	for _, e := range r.Events {
		if e.Object.GetKind() == "MeshNode" {
			listened[field(e.Object, "spec", "address")] = true
		}
	}
	if len(listened) != 3 {
		t.Errorf("want the addresses of a registry and two agents, got %v", listened)
	}
	for address := range listened {
		if conn, err := net.Dial("tcp", address); err == nil {
			t.Errorf("a process still listens at %s", address)
			_ = conn.Close()
		}
	}
}

// checkBytes: rows and files stay as long as they can be restored, and all are gone at the
// end.
func checkBytes(t *testing.T, r *Record, engine, database string) {
	if want := int64(len(tags) * layers * layerSize); r.Full.Bytes < want {
		t.Errorf("%d bytes on disk, the layers alone have %d", r.Full.Bytes, want)
	}
	if c := r.Content; c.Tags != len(tags) || c.Manifests != len(tags) || c.Size < r.Full.Bytes {
		t.Errorf("the repository had %+v, and on disk there was %+v", c, r.Full)
	}
	if r.Kept != r.Full {
		t.Errorf("after the first deletion: %+v, before it %+v", r.Kept, r.Full)
	}
	if r.Empty != (Disk{}) {
		t.Errorf("in the end: %+v", r.Empty)
	}
	driver := map[string]string{harness.SQLite: "sqlite", harness.Postgres: "pgx"}[engine]
	db, err := sql.Open(driver, database)
	if err != nil {
		t.Fatal(err)
	}
	defer db.Close()
	for _, table := range []string{"tags", "manifests", "layers", "blobs", "repository_blobs", "repositories", "gc_unlink_queue"} {
		rows := -1
		if err := db.QueryRow("SELECT count(*) FROM " + table).Scan(&rows); err != nil || rows != 0 {
			t.Errorf("%d rows in %s: %v", rows, table, err)
		}
	}
}
