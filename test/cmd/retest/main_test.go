package main_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// once is a condition of the tests below that holds the first time only.
const once = `
package p

import (
	"os"
	"testing"
)

func once() bool {
	file, err := os.OpenFile("ran", os.O_CREATE|os.O_EXCL, 0o666)
	file.Close()
	return err == nil
}
`

var packages = map[string]string{
	"good":   `func TestGood(t *testing.T) { t.Log("not printed") }`,
	"flaky":  `func TestFlaky(t *testing.T) { t.Run("other", func(*testing.T) {}); t.Run("sub", func(t *testing.T) { if once() { t.Error("first time") } }) }`,
	"panics": `func TestPanics(t *testing.T) { if once() { panic("first time") } }; func TestAfter(t *testing.T) {}`,
	"exits":  `func TestExits(t *testing.T) { if once() { os.Exit(3) } }`,
	// What a panic hides must not pass.
	"hides":   `func TestPanics(t *testing.T) { if once() { panic("first time") } }; func TestHidden(t *testing.T) { t.Error("always") }`,
	"bad":     `func TestBad(t *testing.T) { t.Error("always") }`,
	"nobuild": `func TestNothing(t *testing.T) { undefined() }`,
	"many": `func TestMain(m *testing.M) { once(); os.Exit(m.Run()) }
		func Test1(t *testing.T) { t.Error() }; func Test2(t *testing.T) { t.Error() }; func Test3(t *testing.T) { t.Error() }
		func Test4(t *testing.T) { t.Error() }; func Test5(t *testing.T) { t.Error() }; func Test6(t *testing.T) { t.Error() }
		func Test7(t *testing.T) { t.Error() }; func Test8(t *testing.T) { t.Error() }; func Test9(t *testing.T) { t.Error() }
		func TestA(t *testing.T) { t.Error() }; func TestB(t *testing.T) { t.Error() }`,
}

func build(t *testing.T) (program string) {
	t.Helper()
	program = filepath.Join(t.TempDir(), "retest")
	if out, err := exec.Command("go", "build", "-o", program, ".").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return program
}

// TestQueue: of processes that share a queue, one tests each package, and runs again what failed in it.
func TestQueue(t *testing.T) {
	program, dir, queue := build(t), t.TempDir(), t.TempDir()
	write(t, filepath.Join(dir, "go.mod"), "module fx\n\ngo 1.26\n")
	for _, name := range []string{"good", "bad", "flaky"} {
		write(t, filepath.Join(dir, name, "p_test.go"), once+packages[name])
		write(t, filepath.Join(queue, name), "fx/"+name+"\n")
	}
	var commands [3]*exec.Cmd
	var outs [3]strings.Builder
	for i := range commands {
		commands[i] = exec.Command(program, "-queue="+queue, "-timeout=5m")
		commands[i].Dir, commands[i].Env = dir, append(os.Environ(), "GOFLAGS=", "GOWORK=off")
		commands[i].Stdout, commands[i].Stderr = &outs[i], &outs[i]
		if err := commands[i].Start(); err != nil {
			t.Fatal(err)
		}
	}
	all := ""
	for i, command := range commands {
		err := command.Wait()
		if tested := strings.Contains(outs[i].String(), "RERUN fx/bad TestBad"); tested != (err != nil) {
			t.Errorf("a process ended with %v:\n%s", err, outs[i].String())
		}
		all += outs[i].String()
	}
	for line, want := range map[string]int{"ok  \tfx/good\t": 1, "RERUN fx/bad TestBad\n": 1, "FLAKY fx/flaky TestFlaky/sub\n": 1, "RERUN": 2} {
		if n := strings.Count(all, line); n != want {
			t.Errorf("%q is printed %d times, want %d:\n%s", line, n, want, all)
		}
	}
	if left, err := os.ReadDir(queue); err != nil || len(left) > 0 {
		t.Errorf("left in the queue: %v (%v)", left, err)
	}
}

func TestRetest(t *testing.T) {
	program := build(t)
	for name, test := range map[string]struct {
		packages string
		fails    bool
		want     []string // the lines that begin with a word in capitals, or with ok
	}{
		"passes":                       {"good", false, []string{"ok fx/good"}},
		"a flaky subtest":              {"flaky good", false, []string{"FAIL", "FAIL fx/flaky", "ok fx/good", "RERUN fx/flaky TestFlaky", "ok fx/flaky", "FLAKY fx/flaky TestFlaky/sub"}},
		"a panic":                      {"panics", false, []string{"FAIL fx/panics", "RERUN fx/panics", "ok fx/panics", "FLAKY fx/panics (the whole package)"}},
		"an exit":                      {"exits", false, []string{"FAIL fx/exits", "RERUN fx/exits", "ok fx/exits", "FLAKY fx/exits (the whole package)"}},
		"a panic before a failure":     {"hides", true, []string{"FAIL fx/hides", "RERUN fx/hides", "FAIL", "FAIL fx/hides", "FAIL"}},
		"fails twice":                  {"bad good", true, []string{"FAIL", "FAIL fx/bad", "ok fx/good", "RERUN fx/bad TestBad", "FAIL", "FAIL fx/bad", "FAIL"}},
		"does not build":               {"nobuild flaky good", true, []string{"FAIL fx/nobuild [build failed]", "FAIL", "FAIL fx/flaky", "ok fx/good", "FAIL"}},
		"too many":                     {"many", true, []string{"FAIL", "FAIL fx/many", "FAIL"}},
		"a package that is not there":  {"none", true, []string{"FAIL ./none [setup failed]", "FAIL"}},
		"the second of two fails once": {"bad flaky", true, []string{"FAIL", "FAIL fx/bad", "FAIL", "FAIL fx/flaky", "RERUN fx/bad TestBad", "FAIL", "FAIL fx/bad", "RERUN fx/flaky TestFlaky", "ok fx/flaky", "FLAKY fx/flaky TestFlaky/sub", "FAIL"}},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "go.mod"), "module fx\n\ngo 1.26\n")
			args := []string{"-timeout=5m", "-p=1"}
			for name := range strings.FieldsSeq(test.packages) {
				args = append(args, "./"+name)
				if packages[name] != "" {
					write(t, filepath.Join(dir, name, "p_test.go"), once+packages[name])
				}
			}
			command := exec.Command(program, args...)
			command.Dir = dir
			command.Env = append(os.Environ(), "GOFLAGS=", "GOWORK=off")
			out, err := command.CombinedOutput()
			if (err != nil) != test.fails {
				t.Errorf("retest: %v", err)
			}
			var got []string
			for _, line := range regexp.MustCompile(`(?m)^(ok|[A-Z]+)\b.*$`).FindAllString(string(out), -1) {
				line = regexp.MustCompile(`\t(\d+\.\d+s|\(cached\))`).ReplaceAllString(line, "")
				got = append(got, strings.Join(strings.Fields(line), " "))
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("lines (-want +got):\n%s\nall of it:\n%s", diff, out)
			}
			if strings.Contains(string(out), "not printed") {
				t.Error("prints the log of a test that passed")
			}
			if strings.Contains(test.packages, "flaky") && !strings.Contains(string(out), "first time") {
				t.Errorf("does not print why a test failed:\n%s", out)
			}
		})
	}
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o666); err != nil {
		t.Fatal(err)
	}
}
