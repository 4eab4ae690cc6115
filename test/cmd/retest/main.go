// Command retest runs `go test`, prints what `go test` prints, and runs each
// failed test once more, alone:
//
//	retest [-queue=FOLDER] [-FLAG=VALUE...] PACKAGE...
//
// With a queue, which several processes may share, it tests one package after the other: it takes the first file of the
// folder, which names a package, until none is left.
//
// A test that passes then is named on a line `FLAKY PACKAGE TEST`; retest fails if
// one fails again. It runs a whole package again if its program ended early (a
// panic, a timeout), because the tests behind that point did not run. Where
// something does not build, or more than ten tests fail, nothing runs again. A test that takes
// longer than slowTest is named on a line `SLOW TIME PACKAGE TEST`.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const (
	mostReruns = 10
	slowTest   = 20 // seconds
)

// event is a line of `go test -json`; go doc cmd/test2json describes it.
type event struct {
	Action, Package, Test, Output string
	FailedBuild                   string
	Elapsed                       float64 // seconds
}

// result is what has happened in one package.
type result struct {
	tests   []string                    // that have printed, in the order of their first line
	output  map[string]*strings.Builder // of each that has not passed; "" is the package itself
	passed  []string
	failed  []string // the package itself is "", and last
	whole   bool     // the program printed its own verdict, so every test has ended
	noBuild bool
}

// rerun is a test that failed, or, without a test, a package that ended early.
type rerun struct {
	pkg, test string
	names     []string // the test, or those of its subtests that failed
}

func main() {
	var flags, packages []string
	queue := ""
	for _, arg := range os.Args[1:] {
		if folder, ok := strings.CutPrefix(arg, "-queue="); ok {
			queue = folder
		} else if strings.HasPrefix(arg, "-") {
			flags = append(flags, arg)
		} else {
			packages = append(packages, arg)
		}
	}
	var results map[string]*result
	var err error
	if queue == "" {
		results, err = goTest(append(slices.Clone(flags), packages...))
	} else {
		results, err = testQueue(queue, flags)
	}
	if err == nil {
		return
	}
	again := reruns(results)
	if len(again) == 0 || len(again) > mostReruns {
		fmt.Println("FAIL")
		os.Exit(1)
	}
	failed := false
	for _, r := range again {
		fmt.Println("RERUN", r.pkg, r.test)
		args := append(slices.Clone(flags), "-count=1")
		if r.test != "" {
			args = append(args, "-run=^"+r.test+"$")
		}
		second, err := goTest(append(args, r.pkg))
		if err != nil || r.test != "" && !slices.Contains(second[r.pkg].passed, r.test) {
			failed = true
			continue
		}
		for _, name := range r.names {
			fmt.Println("FLAKY", r.pkg, name)
		}
	}
	if failed {
		fmt.Println("FAIL")
		os.Exit(1)
	}
}

// testQueue runs go test for each package that it takes from a queue.
func testQueue(queue string, flags []string) (map[string]*result, error) {
	results := map[string]*result{}
	var failed error
	for {
		pkg, err := take(queue)
		if pkg == "" {
			return results, errors.Join(failed, err)
		}
		more, err := goTest(append(slices.Clone(flags), pkg))
		maps.Copy(results, more)
		failed = errors.Join(failed, err)
	}
}

// take removes the first file of a queue and returns what it contains, or nothing if the queue is empty. A file is taken by the
// process that removes it.
func take(queue string) (string, error) {
	files, err := os.ReadDir(queue)
	for _, file := range files {
		name := filepath.Join(queue, file.Name())
		data, err := os.ReadFile(name)
		if err == nil {
			err = os.Remove(name)
		}
		if errors.Is(err, fs.ErrNotExist) { // another process was faster
			continue
		}
		return strings.TrimSpace(string(data)), err
	}
	return "", err
}

// goTest runs go test and prints its output package by package.
func goTest(args []string) (map[string]*result, error) {
	command := exec.Command("go", append([]string{"test", "-json"}, args...)...)
	command.Stderr = os.Stderr
	pipe, err := command.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := command.Start(); err != nil {
		return nil, err
	}
	results := follow(pipe, os.Stdout)
	return results, command.Wait()
}

func follow(events io.Reader, out io.Writer) map[string]*result {
	results := map[string]*result{}
	lines := bufio.NewReader(events)
	for {
		line, err := lines.ReadBytes('\n')
		if err != nil {
			return results
		}
		var e event
		if json.Unmarshal(line, &e) != nil {
			out.Write(line)
			continue
		}
		if e.Package == "" { // what the compiler printed
			io.WriteString(out, e.Output)
			continue
		}
		r := results[e.Package]
		if r == nil {
			r = &result{output: map[string]*strings.Builder{}}
			results[e.Package] = r
		}
		r.add(e, out)
	}
}

func (r *result) add(e event, out io.Writer) {
	if e.Test != "" && e.Elapsed > slowTest {
		fmt.Fprintf(out, "SLOW %.0fs %s %s\n", e.Elapsed, e.Package, e.Test)
	}
	switch e.Action {
	case "output":
		if e.Test == "" && (e.Output == "PASS\n" || e.Output == "FAIL\n") {
			r.whole = true
		}
		if strings.HasPrefix(e.Output, "=== ") {
			return
		}
		if r.output[e.Test] == nil {
			r.tests = append(r.tests, e.Test)
			r.output[e.Test] = &strings.Builder{}
		}
		r.output[e.Test].WriteString(e.Output)
	case "fail":
		r.failed = append(r.failed, e.Test)
		r.noBuild = e.FailedBuild != ""
		if e.Test == "" {
			r.tests = append(slices.DeleteFunc(r.tests, func(test string) bool { return test == "" }), "")
			for _, test := range r.tests {
				io.WriteString(out, r.output[test].String())
			}
		}
	case "pass", "skip":
		r.passed = append(r.passed, e.Test)
		if e.Test == "" { // only the verdict, as without -v
			text := strings.TrimSuffix(r.output[""].String(), "\n")
			fmt.Fprintln(out, text[strings.LastIndex(text, "\n")+1:])
		}
		r.tests = slices.DeleteFunc(r.tests, func(test string) bool { return test == e.Test })
		delete(r.output, e.Test)
	}
}

// reruns says what to run again: nothing if that cannot help.
func reruns(results map[string]*result) []rerun {
	var again []rerun
	for _, name := range slices.Sorted(maps.Keys(results)) {
		r := results[name]
		switch {
		case r.noBuild:
			return nil
		case r.whole && len(r.failed) > 1:
			again = append(again, r.failures(name)...)
		case len(r.failed) > 0:
			again = append(again, rerun{pkg: name, names: []string{"(the whole package)"}})
		}
	}
	return again
}

// failures has one entry for each test at the top.
func (r *result) failures(pkg string) []rerun {
	var again []rerun
	for _, test := range r.failed {
		if test == "" || strings.Contains(test, "/") {
			continue
		}
		names := slices.DeleteFunc(slices.Clone(r.failed), func(name string) bool {
			inside := name == test || strings.HasPrefix(name, test+"/")
			parent := slices.ContainsFunc(r.failed, func(other string) bool { return strings.HasPrefix(other, name+"/") })
			return !inside || parent
		})
		again = append(again, rerun{pkg: pkg, test: test, names: names})
	}
	return again
}
