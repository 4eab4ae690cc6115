// Command gen writes the OpenAPI definitions of the built-in kinds.
//
// kube-openapi's generator turns the Go types of Kubernetes into Go source that
// describes them. That source has several megabytes and is needed once. So gen writes
// it to a folder that is not committed, compiles it into the program dump, and removes
// it when dump has written the definitions as one compressed file.
package main

import (
	"flag"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"

	"k8s.io/gengo/v2"
	"k8s.io/gengo/v2/generator"
	"k8s.io/klog/v2"
	"k8s.io/kube-openapi/cmd/openapi-gen/args"
	"k8s.io/kube-openapi/pkg/generators"
)

// packages are the Go packages of the served kinds and of the types that they refer to.
var packages = []string{
	"k8s.io/api/admissionregistration/v1",
	"k8s.io/api/apps/v1",
	"k8s.io/api/authentication/v1",
	"k8s.io/api/authorization/v1",
	"k8s.io/api/autoscaling/v1",
	"k8s.io/api/autoscaling/v2",
	"k8s.io/api/batch/v1",
	"k8s.io/api/certificates/v1",
	"k8s.io/api/coordination/v1",
	"k8s.io/api/core/v1",
	"k8s.io/api/discovery/v1",
	"k8s.io/api/events/v1",
	"k8s.io/api/flowcontrol/v1",
	"k8s.io/api/networking/v1",
	"k8s.io/api/node/v1",
	"k8s.io/api/policy/v1",
	"k8s.io/api/rbac/v1",
	"k8s.io/api/resource/v1",
	"k8s.io/api/scheduling/v1",
	"k8s.io/api/scheduling/v1alpha3", // not served: batch/v1 refers to it
	"k8s.io/api/storage/v1",
	"k8s.io/api/storagemigration/v1",
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1",
	"k8s.io/apimachinery/pkg/api/resource",
	"k8s.io/apimachinery/pkg/apis/meta/v1",
	"k8s.io/apimachinery/pkg/runtime",
	"k8s.io/apimachinery/pkg/util/intstr",
	"k8s.io/apimachinery/pkg/version",
}

// generated is the folder of the temporary source. It is in this module because it needs
// this module's dependencies.
const (
	generated = "definitions"
	source    = "generated.openapi.go"
)

func main() {
	out := flag.String("out", "../builtin.json.gz", "the file to write")
	flag.Parse()
	if err := run(*out); err != nil {
		fmt.Fprintln(os.Stderr, "gen:", err)
		os.Exit(1)
	}
}

func run(out string) error {
	// gengo logs every type it does not know; errors are still returned.
	klog.LogToStderr(false)
	klog.SetOutput(io.Discard)

	defer os.Remove(filepath.Join(generated, source))
	if err := generate(); err != nil {
		return fmt.Errorf("generate definitions: %w", err)
	}

	dump := exec.Command("go", "run", "-tags", "dump", "./dump", out)
	dump.Stdout, dump.Stderr = os.Stdout, os.Stderr
	if err := dump.Run(); err != nil {
		return fmt.Errorf("dump definitions: %w", err)
	}
	return nil
}

// generate writes the Go source. It ignores the linter's findings: they are in
// Kubernetes' own types, which has a list of accepted ones.
func generate() error {
	a := args.New()
	a.OutputDir = generated
	a.OutputPkg = "github.com/exeunt/exeunt/openapi/gen/" + generated
	a.OutputFile = source
	a.ReportFilename = os.DevNull
	// The name accessors already exist in the packages. Naming the file makes the
	// generator use them; read-only prevents that it writes them.
	a.OutputModelNameFile = "zz_generated.model_name.go"
	a.ReadOnlyPkgs = packages
	targets := func(c *generator.Context) []generator.Target {
		return generators.GetOpenAPITargets(c, a, nil)
	}
	return gengo.Execute(generators.NameSystems(), generators.DefaultNameSystem(), targets, gengo.StdBuildTag, packages)
}
