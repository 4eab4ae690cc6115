package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"runtime"
	"sync"
	"syscall"
	"testing"
)

// kubectlVersion is the release of the kubectl module that the tests build; they are
// written for it.
const kubectlVersion = "v1.37.2"

// root is the repository's directory, derived from the path of this file.
var root = sync.OnceValue(func() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(filepath.Dir(filepath.Dir(file)))
})

// serverPath builds bin/exeunt once per test binary and returns its path.
// EXEUNT_TEST_SERVER names another program to test instead.
var serverPath = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("EXEUNT_TEST_SERVER"); path != "" {
		return filepath.Abs(path)
	}
	return build(root(), filepath.Join(root(), "bin", "exeunt"), "./cmd/exeunt", "-s -w")
})

// PluginDir returns a directory with the program under the names that users type: exeunt,
// and the names under which kubectl finds plugins.
func PluginDir() (string, error) {
	program, err := serverPath()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(root(), "test", "bin", "plugin")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", fmt.Errorf("make plugin directory: %w", err)
	}
	for _, name := range []string{"exeunt", "kubectl-exeunt", "kubectl_complete-exeunt"} {
		link := filepath.Join(dir, name)
		if to, err := os.Readlink(link); err == nil && to == program {
			continue
		}
		// Linked under another name and renamed: other tests may be about to run it.
		aside := fmt.Sprintf("%s.%d", link, os.Getpid())
		if err := errors.Join(os.Symlink(program, aside), os.Rename(aside, link)); err != nil {
			return "", fmt.Errorf("link plugin: %w", err)
		}
	}
	return dir, nil
}

// kubectlPath builds kubectl once per test binary and returns its path. As for the
// released kubectl, the linker sets its version.
var kubectlPath = sync.OnceValues(func() (string, error) {
	const version = "k8s.io/component-base/version."
	flags := fmt.Sprintf("-s -w -X %sgitVersion=%s -X %sgitMajor=1 -X %sgitMinor=37", version, kubectlVersion, version, version)
	dir := filepath.Join(root(), "test")
	return build(dir, filepath.Join(dir, "bin", "kubectl"), "./cmd/kubectl", flags)
})

// Program builds a program of another project, which test/go.mod must name as
// a tool, and returns its path.
func Program(t testing.TB, pkg string) string {
	t.Helper()
	dir := filepath.Join(root(), "test")
	program, err := build(dir, filepath.Join(dir, "bin", path.Base(pkg)), pkg, "-s -w")
	if err != nil {
		t.Fatal(err)
	}
	return program
}

// build compiles a program. Go does not touch a file that is up to date, so a second build
// costs almost nothing; a lock keeps concurrent test binaries from replacing a file that
// another one is about to start.
func build(dir, target, pkg, ldflags string, flags ...string) (string, error) {
	if err := os.MkdirAll(filepath.Dir(target), 0o755); err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	lock, err := os.OpenFile(target+".lock", os.O_CREATE|os.O_RDWR, 0o644)
	if err != nil {
		return "", fmt.Errorf("build %s: %w", pkg, err)
	}
	defer lock.Close()
	if err := syscall.Flock(int(lock.Fd()), syscall.LOCK_EX); err != nil {
		return "", fmt.Errorf("build %s: lock: %w", pkg, err)
	}
	args := append([]string{"build", "-ldflags", ldflags, "-o", target}, flags...)
	cmd := exec.Command("go", append(args, pkg)...)
	cmd.Dir = dir
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build %s: %w\n%s", pkg, err, out)
	}
	return target, nil
}
