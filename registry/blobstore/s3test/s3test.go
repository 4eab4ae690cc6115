// Package s3test gives tests empty prefixes in a real S3 server.
//
// The bucket is the one that EXEUNT_TEST_S3 names, in the form of
// --registry-storage, with credentials in the environment as for Exeunt itself.
// Without it script/s3 starts a private server, once per test binary. The server
// stops with the test binary, even after a crash.
package s3test

import (
	"bufio"
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"
)

const environment = "EXEUNT_TEST_S3"

// Location returns an unused location, as blobstore.Open takes it.
func Location(t testing.TB) string {
	t.Helper()
	u := bucket(t)
	u.Path += "/" + strings.ToLower(rand.Text())
	return u.String()
}

// Through returns a location with another endpoint.
func Through(t testing.TB, location, endpoint string) string {
	t.Helper()
	u, err := url.Parse(location)
	if err != nil {
		t.Fatal(err)
	}
	query := u.Query()
	query.Set("endpoint", endpoint)
	u.RawQuery = query.Encode()
	return u.String()
}

// Endpoint is the server's URL.
func Endpoint(t testing.TB) string {
	t.Helper()
	return bucket(t).Query().Get("endpoint")
}

func bucket(t testing.TB) *url.URL {
	t.Helper()
	location, err := server()
	if err != nil {
		t.Fatalf("an S3 server for the tests: %v", err)
	}
	u, err := url.Parse(location)
	if err != nil {
		t.Fatalf("%s: %v", environment, err)
	}
	return u
}

// server starts the script's server. The server stops with its command, cat,
// which stops when this process closes the pipe to its input.
var server = sync.OnceValues(func() (string, error) {
	if given := os.Getenv(environment); given != "" {
		return given, nil
	}
	_, file, _, _ := runtime.Caller(0)
	script := filepath.Join(filepath.Dir(file), "..", "..", "..", "script", "s3")
	names := []string{environment, "AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"}
	cmd := exec.Command(script, "sh", "-c", fmt.Sprintf(`printf '%%s\n' "$%s"; exec cat`, strings.Join(names, `" "$`)))
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
			return "", fmt.Errorf("%s: no %s: %w", script, name, cmd.Wait())
		}
		if err := os.Setenv(name, lines.Text()); err != nil {
			return "", err
		}
	}
	// Wait keeps cmd, and so the pipe, reachable: the garbage collector closes
	// an unreachable pipe.
	go func() { _ = cmd.Wait() }()
	return os.Getenv(environment), nil
})
