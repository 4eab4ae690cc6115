// Command suites runs the test suites of operators, unchanged, on "exeunt envtest" and on
// kube-apiserver with etcd, in turns, and writes one table: what passed on each, wall time and
// memory. The suites come from the Go module proxy (suites.txt). It is no part of the product.
//
//	suites -exeunt bin/exeunt -peers DIR -out FILE [-only NAME,...] [-work DIR]
package main

import (
	"bufio"
	"context"
	_ "embed"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"time"
)

//go:embed suites.txt
var table string

// suite is a module and those of its packages that start envtest.
type suite struct {
	name, module, version string
	edits                 []string // arguments of "go mod edit"
	packages              []string
}

// readSuites reads suites.txt.
func readSuites(text string) (all []*suite, err error) {
	for i, line := range strings.Split(text, "\n") {
		fields := strings.Fields(line)
		switch {
		case len(fields) == 0 || strings.HasPrefix(line, "#"):
		case fields[0] == "suite" && len(fields) >= 3:
			module, version, ok := strings.Cut(fields[2], "@")
			if !ok {
				return nil, fmt.Errorf("suites.txt:%d: %s has no version", i+1, fields[2])
			}
			all = append(all, &suite{name: fields[1], module: module, version: version, edits: fields[3:]})
		case len(all) > 0 && strings.HasPrefix(line, "\t") && len(fields) == 1:
			last := all[len(all)-1]
			last.packages = append(last.packages, fields[0])
		default:
			return nil, fmt.Errorf("suites.txt:%d: want \"suite NAME MODULE@VERSION [EDIT...]\" or a tab and a folder", i+1)
		}
	}
	return all, nil
}

type options struct {
	exeunt, peers, out, only, work string
	each                           time.Duration
}

func main() {
	var o options
	flag.StringVar(&o.exeunt, "exeunt", "", "the program exeunt")
	flag.StringVar(&o.peers, "peers", "", "folder with kube-apiserver and etcd; without it the suites run on Exeunt only")
	flag.StringVar(&o.out, "out", "", "file for the table")
	flag.StringVar(&o.only, "only", "", "names of suites, with commas; default all")
	flag.StringVar(&o.work, "work", "", "folder for the modules, the test programs and their logs, kept; default a temporary one")
	flag.DurationVar(&o.each, "each", 20*time.Minute, "the longest that the tests of one package may take")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, o); err != nil {
		fmt.Fprintln(os.Stderr, "suites:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, o options) (err error) {
	if o.work == "" {
		if o.work, err = os.MkdirTemp("", "exeunt-suites-"); err != nil {
			return err
		}
		defer os.RemoveAll(o.work)
	}
	if o.work, err = filepath.Abs(o.work); err != nil {
		return err
	}
	if err := os.MkdirAll(o.work, 0o755); err != nil {
		return err
	}
	servers, err := serversOf(o)
	if err != nil {
		return err
	}
	suites, err := readSuites(table)
	if err != nil {
		return err
	}
	var report strings.Builder
	fmt.Fprintf(&report, `# Suites of operators on Exeunt

%s, %d processors, %s/%s: each package in turns, on "exeunt envtest" and on the kube-apiserver and etcd of
`+"`script/kubernetes`"+`. Wall time is that of the test programs, without their compilation; memory is the most that the
servers of a suite had together (PSS).

| suite | | passed | failed | wall time | memory |
|---|---|---|---|---|---|
`, time.Now().UTC().Format(time.DateOnly), runtime.NumCPU(), runtime.GOOS, runtime.GOARCH)
	var differences []string
	for _, s := range suites {
		if o.only != "" && !slices.Contains(strings.Split(o.only, ","), s.name) {
			continue
		}
		results, err := s.run(ctx, o, servers)
		if ctx.Err() != nil {
			return ctx.Err()
		}
		if err != nil { // the others run nevertheless
			fmt.Fprintf(os.Stderr, "suites: %s: %v\n", s.name, err)
			line, _, _ := strings.Cut(err.Error(), "\n")
			differences = append(differences, fmt.Sprintf("- %s did not run: %s", s.name, line))
			continue
		}
		for i, r := range results {
			name := fmt.Sprintf("%s %s", s.name, s.version)
			if i > 0 {
				name = ""
			}
			fmt.Fprintf(&report, "| %s | %s | %d | %d | %.1f s | %d MB |\n", name, servers[i].name, r.passed, len(r.failed), r.took.Seconds(), r.memory>>20)
		}
		differences = append(differences, compare(s, servers, results)...)
	}
	if len(differences) > 0 {
		fmt.Fprintf(&report, "\n%s\n", strings.Join(differences, "\n"))
	}
	fmt.Print(report.String())
	if o.out == "" {
		return nil
	}
	return os.WriteFile(o.out, []byte(report.String()), 0o644)
}

// compare names what failed on one server only, or on the only one.
func compare(s *suite, servers []target, results []result) (lines []string) {
	for i, r := range results {
		for _, name := range r.failed {
			switch {
			case len(results) == 1:
				lines = append(lines, fmt.Sprintf("- %s failed: %s", s.name, name))
			case !slices.Contains(results[1-i].failed, name):
				lines = append(lines, fmt.Sprintf("- %s failed on %s only: %s", s.name, servers[i].name, name))
			}
		}
	}
	return lines
}

// build copies the module, and builds a test program for each package.
func (s *suite) build(ctx context.Context, work string) (source string, err error) {
	source = filepath.Join(work, s.name)
	if _, err := os.Stat(source); err != nil {
		found, err := output(ctx, work, "go", "mod", "download", "-json", s.module+"@"+s.version)
		if err != nil {
			return "", err
		}
		dir := ""
		for line := range strings.Lines(found) {
			if _, value, ok := strings.Cut(line, `"Dir": "`); ok {
				dir, _, _ = strings.Cut(value, `"`)
			}
		}
		if err := os.CopyFS(source, os.DirFS(dir)); err != nil {
			return "", err
		}
		if len(s.edits) > 0 {
			if _, err := output(ctx, source, "go", append([]string{"mod", "edit"}, s.edits...)...); err != nil {
				return "", err
			}
		}
	}
	for _, p := range s.packages {
		if _, err := output(ctx, source, "go", "test", "-mod=mod", "-c", "-o", program(source, p), "./"+p); err != nil {
			return "", err
		}
	}
	return source, nil
}

// program is the path of a package's test program. It is beside the package, because tests look
// for files from there.
func program(source, pkg string) string { return filepath.Join(source, pkg, "suite.test") }

// run builds the suite and runs each package on all servers, one after the other.
func (s *suite) run(ctx context.Context, o options, servers []target) ([]result, error) {
	source, err := s.build(ctx, o.work)
	if err != nil {
		return nil, err
	}
	results := make([]result, len(servers))
	for _, p := range s.packages {
		for i, server := range servers {
			log := filepath.Join(o.work, strings.ReplaceAll(s.name+"-"+p, "/", "-")+"-"+server.name+".log")
			r, err := runProgram(ctx, o.each, filepath.Join(source, p), server, log)
			if err != nil {
				return nil, fmt.Errorf("%s: %w", p, err)
			}
			fmt.Fprintf(os.Stderr, "%s %s on %s: %d passed, %d failed, %.1f s, %d MB\n", s.name, p, server.name, r.passed, len(r.failed), r.took.Seconds(), r.memory>>20)
			for _, name := range r.failed {
				results[i].failed = append(results[i].failed, p+": "+name)
			}
			results[i].passed += r.passed
			results[i].took += r.took
			results[i].memory = max(results[i].memory, r.memory)
		}
	}
	return results, nil
}

// scan calls line with each line of a file.
func scan(path string, line func(string)) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewReader(f)
	for {
		text, err := lines.ReadString('\n')
		if text != "" {
			line(strings.TrimRight(text, "\n"))
		}
		if err != nil {
			return nil // the end of the file
		}
	}
}
