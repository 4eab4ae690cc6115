package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// target is a server that suites run on.
type target struct{ name, assets string }

// result is what a suite did on one server.
type result struct {
	passed int      // tests and specs
	failed []string // their names
	took   time.Duration
	memory int64 // bytes
}

// serversOf makes the folders of the servers, below the work folder so that their processes can be found.
func serversOf(o options) ([]target, error) {
	self, err := filepath.Abs(o.exeunt)
	if err != nil {
		return nil, err
	}
	mine := target{"exeunt", filepath.Join(o.work, "assets-exeunt")}
	if _, err := output(context.Background(), o.work, self, "envtest", "--bin-dir", mine.assets); err != nil {
		return nil, err
	}
	if o.peers == "" {
		return []target{mine}, nil
	}
	theirs := target{"kube-apiserver", filepath.Join(o.work, "assets-kube-apiserver")}
	if err := os.MkdirAll(theirs.assets, 0o755); err != nil {
		return nil, err
	}
	for _, name := range []string{"kube-apiserver", "etcd"} {
		link := filepath.Join(theirs.assets, name)
		_ = os.Remove(link) // of another run
		if err := os.Symlink(filepath.Join(o.peers, name), link); err != nil {
			return nil, err
		}
	}
	return []target{mine, theirs}, os.WriteFile(filepath.Join(theirs.assets, "kubectl"), []byte("#!/bin/sh\nexec "+filepath.Join(mine.assets, "kubectl")+" \"$@\"\n"), 0o755)
}

// output runs a program and returns what it prints.
func output(ctx context.Context, dir, name string, args ...string) (string, error) {
	cmd := exec.CommandContext(ctx, name, args...)
	cmd.Dir, cmd.Env = dir, append(os.Environ(), "CGO_ENABLED=0", "GOWORK=off")
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s %s: %w\n%s", name, strings.Join(args, " "), err, said.String())
	}
	return string(out), nil
}

// runProgram runs a package's tests on a server.
func runProgram(ctx context.Context, each time.Duration, dir string, server target, log string) (result, error) {
	out, err := os.Create(log)
	if err != nil {
		return result{}, err
	}
	defer out.Close()
	cmd := exec.CommandContext(ctx, filepath.Join(dir, "suite.test"), "-test.v", "-test.timeout", each.String())
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, out, out
	cmd.Env = append(os.Environ(), "KUBEBUILDER_ASSETS="+server.assets, "NO_COLOR=1")
	for _, name := range []string{"etcd", "kube-apiserver", "kubectl"} { // for cert-manager, which looks for each
		cmd.Env = append(cmd.Env, "TEST_ASSET_"+strings.ToUpper(strings.ReplaceAll(name, "-", "_"))+"="+filepath.Join(server.assets, name))
	}
	stop := make(chan struct{})
	var watching sync.WaitGroup
	var r result
	watching.Go(func() {
		for tick := time.NewTicker(100 * time.Millisecond); ; {
			select {
			case <-stop:
				tick.Stop()
				return
			case <-tick.C:
				r.memory = max(r.memory, memory(server.assets))
			}
		}
	})
	begin := time.Now()
	err = cmd.Run()
	took := time.Since(begin)
	close(stop)
	watching.Wait()
	r.took = took
	if _, failed := errors.AsType[*exec.ExitError](err); err != nil && !failed {
		return r, err
	}
	passed, names, scanErr := count(log)
	r.passed, r.failed = passed, names
	if err != nil && len(names) == 0 {
		r.failed = []string{"the test program ended: " + err.Error()}
	}
	end(server.assets)
	return r, scanErr
}

var (
	colours  = regexp.MustCompile("\x1b\\[[0-9;]*m")
	goTest   = regexp.MustCompile(`^\s*--- (PASS|FAIL): (\S+)`)
	ginkgo   = regexp.MustCompile(`^(?:SUCCESS!|FAIL!).* (\d+) Passed \| \d+ Failed`)
	failures = regexp.MustCompile(`^\s+\[(?:FAIL|PANICKED|TIMEDOUT|INTERRUPTED)\] (.*?)\s*$`)
)

// count reads how many tests and specs passed, and the names of those that failed.
func count(log string) (passed int, failed []string, err error) {
	summary := false
	err = scan(log, func(line string) {
		line = colours.ReplaceAllString(line, "")
		if m := goTest.FindStringSubmatch(line); m != nil {
			if m[1] == "PASS" {
				passed++
			} else {
				failed = append(failed, m[2])
			}
		}
		if m := ginkgo.FindStringSubmatch(line); m != nil {
			n, _ := strconv.Atoi(m[1]) // digits
			passed += n
		}
		summary = summary || strings.HasPrefix(line, "Summarizing ")
		if m := failures.FindStringSubmatch(line); m != nil && summary {
			failed = append(failed, m[1])
		}
	})
	return passed, failed, err
}

// processes calls visit with the id of each process that was started from a folder.
func processes(dir string, visit func(pid int)) {
	found, _ := filepath.Glob("/proc/[0-9]*/cmdline") // the pattern is good
	for _, path := range found {
		line, _ := os.ReadFile(path) // the process may have ended
		if pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path))); err == nil && strings.HasPrefix(string(line), dir+"/") {
			visit(pid)
		}
	}
}

// memory is the proportional set size of all processes of a folder.
func memory(dir string) (bytes int64) {
	processes(dir, func(pid int) {
		_ = scan(fmt.Sprintf("/proc/%d/smaps_rollup", pid), func(line string) { // the process may have ended
			if fields := strings.Fields(line); len(fields) > 1 && fields[0] == "Pss:" {
				kilobytes, _ := strconv.ParseInt(fields[1], 10, 64) // digits
				bytes += kilobytes << 10
			}
		})
	})
	return bytes
}

// end kills the servers that a suite has left.
func end(dir string) { processes(dir, func(pid int) { _ = syscall.Kill(pid, syscall.SIGKILL) }) }
