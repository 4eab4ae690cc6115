package main

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// program is the test program of a package.
type program struct {
	folder, path string
	tests        []*test
}

// test is one test, and what it does without a bug.
type test struct {
	name    string
	took    time.Duration
	engines bool         // it runs on both
	reaches map[int]bool // numbers of mutants
}

// judge compiles the mutants of a package into the tests of folders, and lets those tests look for each that draw takes of them.
func (r *runner) judge(ctx context.Context, all []*mutant, draw func([]*mutant) []*mutant, folders []string) ([]*mutant, error) {
	dir, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return nil, err
	}
	defer os.RemoveAll(dir)
	overlay, err := write(ctx, dir, all)
	if err != nil {
		return nil, err
	}
	sample := draw(slices.DeleteFunc(slices.Clone(all), func(m *mutant) bool { return m.refused }))
	var programs []*program
	for _, folder := range folders {
		p := &program{folder: folder, path: filepath.Join(dir, strings.ReplaceAll(folder, "/", "-")+".test")}
		if out, err := run(ctx, ".", nil, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", overlay, "-o", p.path, "./"+folder); err != nil {
			return nil, fmt.Errorf("%w\n%s", err, out)
		}
		if err := r.learn(ctx, p, filepath.Join(dir, "reached")); err != nil {
			return nil, err
		}
		programs = append(programs, p)
	}
	for i, m := range sample {
		look(ctx, m, programs)
		if ctx.Err() != nil {
			return nil, ctx.Err()
		}
		fmt.Fprintf(os.Stderr, "mutants: %d of %d: %s %s: %s\n", i+1, len(sample), m.fate, m.by, m)
	}
	return sample, nil
}

// learn runs each test of a program by itself, and notes which mutants it reaches.
func (r *runner) learn(ctx context.Context, p *program, reached string) error {
	list, err := run(ctx, p.folder, nil, p.path, "-test.list="+r.tests)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, list)
	}
	for name := range strings.FieldsSeq(string(list)) {
		t := &test{name: name, reaches: map[int]bool{}}
		begin := time.Now()
		out, err := run(ctx, p.folder, []string{"EXEUNT_MUTANTS_REACHED=" + reached}, p.path, "-test.short", "-test.v", "-test.timeout=20m", "-test.run=^"+name+"$")
		if err != nil {
			fmt.Fprintf(os.Stderr, "mutants: %s %s fails without a bug, and does not look: %s\n", p.folder, name, out[max(0, len(out)-500):])
		} else {
			p.tests = append(p.tests, t)
		}
		t.took, t.engines = time.Since(begin), bytes.Contains(out, []byte("/postgres"))
		numbers, _ := os.ReadFile(reached)
		for n := range strings.FieldsSeq(string(numbers)) {
			number, _ := strconv.Atoi(n)
			t.reaches[number] = true
		}
		_ = os.Remove(reached)
	}
	return ctx.Err()
}

// onlySQLite leaves out what a test does on PostgreSQL; onlyPostgreSQL is the rest.
const onlySQLite, onlyPostgreSQL = "-test.skip=.*/^postgres$|.*/.*/^postgres$", "-test.skip=.*/^sqlite$|.*/.*/^sqlite$"

// look runs the tests that reach a mutant: on SQLite first, because that is cheaper.
func look(ctx context.Context, m *mutant, programs []*program) {
	m.fate = unreached
	for _, engine := range []string{onlySQLite, onlyPostgreSQL} {
		for _, p := range programs {
			var names []string
			limit := 20 * time.Second
			for _, t := range p.tests {
				if t.reaches[m.number] && (t.engines || engine == onlySQLite) {
					names, limit = append(names, t.name), limit+5*t.took
				}
			}
			if len(names) == 0 {
				continue
			}
			m.fate = notSeen
			out, err := run(ctx, p.folder, []string{"EXEUNT_MUTANT=" + strconv.Itoa(m.number)}, p.path, "-test.short", "-test.failfast",
				"-test.timeout="+limit.String(), "-test.run=^("+strings.Join(names, "|")+")$", engine)
			if err != nil {
				m.fate, m.by = seen, "by "+strings.TrimPrefix(string(failed.Find(out)), "--- FAIL: ")
				return
			}
		}
	}
}

// failed is what a test program prints of the test that fails.
var failed = regexp.MustCompile(`(?m)^--- FAIL: \w+|^panic: .*`)

// run runs a command in a folder and returns what it prints.
func run(ctx context.Context, folder string, env []string, command ...string) ([]byte, error) {
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir, cmd.Env = folder, append(os.Environ(), env...)
	cmd.WaitDelay = time.Second
	return cmd.CombinedOutput()
}
