package harness

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

// S3 is an empty place in a real S3 server, as --registry-storage takes it: in
// the bucket that EXEUNT_TEST_S3 names, else in that of a private server. Its
// credentials are in the environment from here on.
func S3(t testing.TB) string {
	t.Helper()
	bucket, err := s3Server()
	if err != nil {
		t.Fatalf("start an S3 server: %v", err)
	}
	u, err := url.Parse(bucket)
	if err != nil {
		t.Fatalf("EXEUNT_TEST_S3: %v", err)
	}
	u.Path += "/" + strings.ToLower(rand.Text())
	return u.String()
}

// s3Server starts the script's server, which lives as long as this process, as
// postgresServer does.
var s3Server = sync.OnceValues(func() (string, error) {
	if location := os.Getenv("EXEUNT_TEST_S3"); location != "" {
		return location, nil
	}
	names := []string{"EXEUNT_TEST_S3", "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
	print := fmt.Sprintf(`printf '%%s\n' "$%s"; exec cat`, strings.Join(names, `" "$`))
	cmd := exec.Command(filepath.Join(root(), "script", "s3"), "sh", "-c", print)
	cmd.Stderr = os.Stderr
	if _, err := cmd.StdinPipe(); err != nil {
		return "", err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", err
	}
	if err := cmd.Start(); err != nil {
		return "", err
	}
	lines := bufio.NewScanner(out)
	for _, name := range names {
		if !lines.Scan() {
			return "", fmt.Errorf("no %s: %w", name, cmd.Wait())
		}
		if err := os.Setenv(name, lines.Text()); err != nil {
			return "", err
		}
	}
	go cmd.Wait()
	return os.Getenv("EXEUNT_TEST_S3"), nil
})

// VerifyRegistry runs "exeunt registry verify" beside the server, and returns
// what it says. A finding fails the test.
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
