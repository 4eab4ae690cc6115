package exeunttest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"sync"
)

// find returns the path of the program. It is found, or built, once in a process.
var find = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("EXEUNT"); path != "" {
		return filepath.Abs(path)
	}
	if path, err := exec.LookPath("exeunt"); err == nil {
		return filepath.Abs(path)
	}
	_, file, _, _ := runtime.Caller(0)
	if source := filepath.Dir(filepath.Dir(file)); exists(filepath.Join(source, "cmd", "exeunt")) {
		// A check-out of Exeunt itself: with the flags of its other tests, so that the linker runs once.
		target := filepath.Join(source, "bin", "exeunt")
		return target, run(source, nil, "build", "-ldflags", "-s -w", "-o", target, "./cmd/exeunt")
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		return "", err
	}
	dir := filepath.Join(cache, "exeunt", "test")
	return filepath.Join(dir, "exeunt"), run("", []string{"GOBIN=" + dir}, "install", "github.com/exeunt/exeunt/cmd/exeunt@latest")
})

func exists(path string) bool {
	_, err := os.Stat(path)
	return err == nil
}

func run(dir string, env []string, args ...string) error {
	cmd := exec.Command("go", args...)
	cmd.Dir, cmd.Env = dir, append(append(os.Environ(), "CGO_ENABLED=0"), env...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("set $EXEUNT to the program exeunt, or put it into $PATH; it could not be built: go %s: %w\n%s", args[0], err, out)
	}
	return nil
}
