package oci

import (
	"encoding/xml"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/exeunt/exeunt/test/harness"
)

// suite is the official conformance suite, as a program.
const suite = "github.com/opencontainers/distribution-spec/conformance"

// TestConformance runs the official suite with every category enabled, for the released
// version of the specification and for the next one. No test may fail or be skipped.
//
// Both leave out one option: OCI_DATA_SPARSE, manifests whose blobs were never pushed. The
// specification lets a registry refuse them, and this one does: every manifest that it
// accepted can be read back completely.
func TestConformance(t *testing.T) {
	program := harness.Program(t, suite)
	harness.Each(t, func(t *testing.T, s *harness.Server) {
		for _, version := range []string{"1.1", "dev"} {
			t.Run(version, func(t *testing.T) { conform(t, program, s, version) })
		}
	})
}

func conform(t *testing.T, program string, s *harness.Server, version string) {
	dir := t.TempDir()
	cmd := exec.CommandContext(t.Context(), program)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(),
		"OCI_REGISTRY="+s.Registry(), "OCI_USERNAME="+harness.RegistryUser, "OCI_PASSWORD="+s.RegistryToken(), "OCI_TLS=disabled", "OCI_VERSION="+version, "OCI_RESULTS_DIR="+dir,
		"OCI_REPO1=conformance/"+version+"/one", "OCI_REPO2=conformance/"+version+"/two")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Errorf("the suite ended with %v", err)
	}
	var report struct {
		Tests    int `xml:"tests,attr"`
		Failures int `xml:"failures,attr"`
		Errors   int `xml:"errors,attr"`
		Skipped  int `xml:"skipped,attr"`
	}
	data, err := os.ReadFile(filepath.Join(dir, "junit.xml"))
	if err == nil {
		err = xml.Unmarshal(data, &report)
	}
	if err != nil {
		t.Fatalf("read the suite's report: %v\n%s", err, out)
	}
	t.Logf("%+v", report)
	if report.Tests < 800 || report.Failures != 0 || report.Errors != 0 || report.Skipped != 0 {
		t.Errorf("the suite reports %+v:\n%s", report, out)
	}
}
