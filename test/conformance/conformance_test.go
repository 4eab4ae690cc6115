//go:build conformance

package conformance

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/exeunt/exeunt/test/harness"
	"github.com/exeunt/exeunt/test/leash"
	"github.com/exeunt/exeunt/test/peers"
)

var (
	onReal  = flag.Bool("real", false, "run against a real kube-apiserver")
	leftOut = flag.Bool("left-out", false, "run what left-out.txt names instead of the rest: a spec that passes must leave it")
	only    = flag.String("only", "", "regular expression: only specs with such a name")
	workers = flag.Int("workers", 6, "how many specs run at once; they mostly wait")
	keep    = flag.String("keep", "", "directory that keeps reports and logs")
)

// focus selects the specs by name.
var focus = regexp.MustCompile(`^\[sig-api-machinery\].*\[Conformance\]|^\[sig-apps\] (ReplicaSet|Deployment|Job|StatefulSet).*\[Conformance\]`)

// spec is one result of e2e.test.
type spec struct {
	Containers []string `json:"ContainerHierarchyTexts"`
	Leaf       string   `json:"LeafNodeText"`
	Type       string   `json:"LeafNodeType"`
	State      string
	Failure    struct{ Message string }
}

func (s spec) name() string { return strings.Join(append(slices.Clone(s.Containers), s.Leaf), " ") }

// TestConformance runs the specs: those that may share the server at once, the serial ones
// afterwards.
func TestConformance(t *testing.T) {
	dir := t.TempDir()
	if *keep != "" {
		dir = *keep
	}
	group, err := peers.NewGroup(os.Getenv("EXEUNT_PEERS_BIN"), filepath.Join(dir, "peers"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := group.Stop(); err != nil {
			t.Error(err)
		}
	})
	program, err := group.Program("e2e.test")
	if err != nil {
		t.Fatal(err)
	}
	e := &suite{program: program, dir: dir, kubeconfig: startCluster(t, group)}
	specs, err := e.report(t.Context(), "list", "--ginkgo.dry-run")
	if err != nil {
		t.Fatal(err)
	}
	parallel, serial := choose(t, specs)
	names := make(chan string)
	var wait sync.WaitGroup
	for range *workers {
		wait.Go(func() {
			for name := range names {
				e.run(t, name)
			}
		})
	}
	for _, name := range parallel {
		names <- name
	}
	close(names)
	wait.Wait()
	for _, name := range serial {
		e.run(t, name)
	}
	t.Logf("%d of %d specs passed", e.passed.Load(), len(parallel)+len(serial))
}

// startCluster starts a server with the programs that use it.
func startCluster(t *testing.T, group *peers.Group) (kubeconfig string) {
	t.Helper()
	controllers, flags := peers.OursToo, []string{}
	if *onReal {
		var err error
		if kubeconfig, err = group.APIServer(t.Context()); err != nil {
			t.Fatal(err)
		}
		controllers = "*"
		flags = append(flags, "--root-ca-file="+group.CertificateFile()) // published as kube-root-ca.crt
	} else {
		kubeconfig = harness.Start(t, harness.SQLite).Kubeconfig
	}
	if err := group.Cluster(t.Context(), kubeconfig, controllers, 5, flags...); err != nil {
		t.Fatal(err)
	}
	return kubeconfig
}

// choose removes what left-out.txt names, and separates what must run alone.
func choose(t *testing.T, specs []spec) (parallel, serial []string) {
	t.Helper()
	data, err := os.ReadFile("left-out.txt")
	if err != nil {
		t.Fatal(err)
	}
	out := map[string]bool{} // name to whether it was found
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		name, reason, found := strings.Cut(line, " | ")
		if !found || reason == "" {
			t.Fatalf("left-out.txt: not NAME | REASON: %s", line)
		}
		out[name] = false
	}
	wanted := regexp.MustCompile(*only)
	for _, s := range specs {
		name := s.name()
		if s.Type != "It" || !focus.MatchString(name) {
			continue
		}
		_, left := out[name]
		if left {
			out[name] = true
		}
		switch {
		case left != *leftOut:
		case !wanted.MatchString(name):
		case strings.Contains(name, "[Serial]"):
			serial = append(serial, name)
		default:
			parallel = append(parallel, name)
		}
	}
	for name, found := range out {
		if !found {
			t.Errorf("left-out.txt: there is no such spec: %s", name)
		}
	}
	if len(parallel)+len(serial) == 0 {
		t.Fatal("no spec is selected")
	}
	t.Logf("%d specs run, %d of them alone; left-out.txt names %d", len(parallel)+len(serial), len(serial), len(out))
	return parallel, serial
}

// suite runs e2e.test.
type suite struct {
	program, dir, kubeconfig string

	number, passed atomic.Int64 // specs that were started, and that passed
}

// run executes one spec in a process of its own, so that a slow one delays no other, and fails
// the test unless the spec passes.
func (e *suite) run(t *testing.T, name string) {
	begin := time.Now()
	file := fmt.Sprintf("spec-%03d", e.number.Add(1))
	// Ginkgo matches the name of the suite, a space and the name of the spec.
	results, err := e.report(t.Context(), file, "--ginkgo.focus= "+regexp.QuoteMeta(name)+"$")
	if err != nil {
		t.Errorf("%s: %v", name, err)
		return
	}
	ran := false
	for _, s := range results {
		switch {
		case s.State == "passed" && s.Type == "It" && s.name() == name:
			ran = true
		case s.State == "passed", s.State == "skipped" && s.name() != name:
		default:
			t.Errorf("%s (%s.log): %s: %s\n  %s", s.State, file, s.Type, s.name(), strings.ReplaceAll(s.Failure.Message, "\n", "\n  "))
			return
		}
	}
	if !ran {
		t.Errorf("%s: did not run, see %s.log", name, file)
		return
	}
	e.passed.Add(1)
	t.Logf("passed in %v: %s", time.Since(begin).Round(time.Second), name)
}

// report runs e2e.test and reads its report. A failed spec is no error.
func (e *suite) report(ctx context.Context, name string, flags ...string) ([]spec, error) {
	file := filepath.Join(e.dir, name+".json")
	log, err := os.Create(filepath.Join(e.dir, name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.CommandContext(ctx, e.program, append([]string{
		"--kubeconfig=" + e.kubeconfig, "--provider=skeleton", "--ginkgo.json-report=" + file, "--ginkgo.no-color", "--ginkgo.timeout=15m",
		"--minStartupPods=0", "--disable-log-dump", "--dump-logs-on-failure=false", "--num-nodes=5",
	}, flags...)...)
	cmd.Stdout, cmd.Stderr = log, log
	cmd.SysProcAttr = leash.Leash()
	ran := cmd.Run()
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("e2e.test: %w, and wrote no report: see %s", ran, log.Name())
	}
	var suites []struct{ SpecReports []spec }
	if err := json.Unmarshal(data, &suites); err != nil || len(suites) != 1 {
		return nil, fmt.Errorf("read the report: %w", err)
	}
	return suites[0].SpecReports, nil
}
