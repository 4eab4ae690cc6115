package harness

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/registry/blobstore/s3test"
)

// S3 returns an empty prefix in a real S3 server, as a value for --registry-storage. It
// sets the credentials in the environment.
func S3(t testing.TB) string {
	t.Helper()
	return s3test.Location(t)
}

// VerifyRegistry runs "exeunt registry verify" beside the server and returns its output. A
// finding fails the test.
func (s *Server) VerifyRegistry(t testing.TB, flags ...string) string {
	t.Helper()
	program, err := serverPath()
	if err != nil {
		t.Fatal(err)
	}
	args := append([]string{"registry", "verify", "--data", s.dir, "--database", s.Database}, flags...)
	out, err := exec.CommandContext(t.Context(), program, args...).CombinedOutput()
	if err != nil {
		t.Errorf("exeunt registry verify: %v\n%s", err, out)
	}
	return strings.TrimSpace(string(out))
}
