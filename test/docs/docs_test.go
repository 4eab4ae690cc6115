// Package docs_test runs the commands in README and docs, in order, against one server, so
// that the pages cannot go out of date.
//
// A fenced block of the language sh is a script that must succeed. In a block of the language console
// the lines behind "$ " are commands, and the others are their output, which is compared loosely
// (differs). Blocks of other languages are not run; one of the language yaml whose first line
// is a comment with a name becomes that file. A comment on a line says what to expect:
//
//	kubectl patch ...      # refused: its rule says why        it fails
//	exeunt status          # exit code 1 if something is wrong it ends with 0 or 1
//	kubectl get --watch    # Ctrl-C ends it                    it runs until it is interrupted
//
// So does an output that begins with "exeunt: " or "Error": the command fails. HTML comments in front of a
// block, which readers do not see, are marks:
//
//	<!-- first: shop -->                testdata/shop.sh runs before the block, with $DATA and $BACKUP of the server
//	<!-- not run: REASON -->            one of reasons
//	<!-- not compared: REASON -->       the output here is another one
//	<!-- not run: TestBackup runs it -->    a test of that name exists
package docs_test

import (
	"os/exec"
	"path/filepath"
	"testing"
)

const root = "../.."

// TestDocs runs the pages.
func TestDocs(t *testing.T) {
	all, err := pages()
	if err != nil {
		t.Fatal(err)
	}
	s := newSite(t)
	read, ran := 0, 0 // pages and commands
	for _, path := range all {
		t.Run(filepath.Base(path), func(t *testing.T) {
			blocks, err := readPage(path)
			if err != nil {
				t.Fatalf("%s: %v", path, err)
			}
			read++
			checkTests(t, blocks)
			script := newScript(blocks)
			if len(script.commands) > 0 {
				s.run(t, script)
				ran += len(script.commands)
			}
		})
	}
	if read == len(all) && ran < 60 {
		t.Errorf("ran only %d commands of %d pages", ran, read)
	}
}

// checkTests: the tests that run what this one does not exist.
func checkTests(t *testing.T, blocks []block) {
	t.Helper()
	for _, b := range blocks {
		if b.by == "" {
			continue
		}
		out, err := exec.Command("grep", "-rlE", "--include=*_test.go", `^func `+b.by+`\(`, root).CombinedOutput()
		if err != nil {
			t.Errorf("line %d: %s does not exist: %v %s", b.line, b.by, err, out)
		}
	}
}
