package docs_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// reasons are the only reasons for which a block is not run.
var reasons = []string{
	"builds programs",             // minutes; the tests build the same ones
	"changes the machine",         // packages, units, files outside of the test's directory
	"measures",                    // a benchmark
	"needs a cluster",             // a Kubernetes that runs pods
	"needs a container engine",    // docker or podman
	"needs a provisioned machine", // test/broker and test/mesh have them
	"needs an editor",
	"starts a server", // which stays in the foreground
}

// block is a fenced block of a page, with its marks.
type block struct {
	line  int    // of the opening fence
	kind  string // sh, console, or what is no command
	lines []string
	first string // the script in testdata that runs before it
	why   string // why it is not run; "" if it is
	loose bool   // its output is not compared
	by    string // the test that runs it instead
}

var (
	mark   = regexp.MustCompile(`^<!-- (first|not run|not compared): (.*) -->$`)
	inList = regexp.MustCompile("^ {0,3}")
	testOf = regexp.MustCompile(`^(Test\w+) runs it$`)
)

// parse returns the blocks of a page, or what is wrong with its marks.
func parse(page string) (blocks []block, err error) {
	var next block // marks that wait for their block
	inside, indent := false, ""
	for i, line := range strings.Split(page, "\n") {
		if !inside { // a block may be part of a list
			indent = inList.FindString(line)
		}
		line = strings.TrimPrefix(line, indent)
		switch found := mark.FindStringSubmatch(line); {
		case inside && line == "```":
			blocks, next, inside = append(blocks, next), block{}, false
		case inside:
			next.lines = append(next.lines, line)
		case strings.HasPrefix(line, "```"):
			next.line, next.kind, inside = i+1, strings.TrimPrefix(line, "```"), true
			if next.kind == "" {
				return nil, fmt.Errorf("line %d: the block has no language: sh and console are run, text and others are not", i+1)
			}
		case found != nil && found[1] == "first":
			next.first = found[2]
		case found != nil && found[1] == "not compared":
			next.loose = true
		case found != nil:
			next.why = found[2]
			if test := testOf.FindStringSubmatch(found[2]); test != nil {
				next.by = test[1]
			} else if !slices.Contains(reasons, next.why) {
				return nil, fmt.Errorf("line %d: %q is no reason: %q", i+1, next.why, reasons)
			}
		case strings.HasPrefix(indent+line, "    "):
			return nil, fmt.Errorf("line %d: fence this block, and give it a language", i+1)
		case line != "" && (next.first != "" || next.why != "" || next.loose):
			return nil, fmt.Errorf("line %d: the mark above stands before no block", i+1)
		}
	}
	return blocks, nil
}

// command is a command of a console block with the output that the page shows, or the whole
// of an sh block.
type command struct {
	line int
	text string
	want []string
}

// commands splits a block. In a console block a command begins with a prompt, and a here
// document or a backslash continues it.
func (b block) commands() []command {
	if b.kind == "sh" {
		return []command{{line: b.line + 1, text: strings.Join(b.lines, "\n")}}
	}
	var all []command
	heredoc := regexp.MustCompile(`<<'?(\w+)'?$`)
	end, goesOn := "", false
	for i, line := range b.lines {
		text, prompt := strings.CutPrefix(line, "$ ")
		switch {
		case prompt && end == "":
			all = append(all, command{line: b.line + 1 + i, text: text})
			if found := heredoc.FindStringSubmatch(text); found != nil {
				end = found[1]
			}
			goesOn = strings.HasSuffix(text, `\`)
		case len(all) == 0:
		case end != "" || goesOn:
			last := &all[len(all)-1]
			last.text += "\n" + line
			if line == end {
				end = ""
			}
			goesOn = strings.HasSuffix(line, `\`)
		case !b.loose:
			last := &all[len(all)-1]
			last.want = append(last.want, line)
		}
	}
	return all
}

var fileName = regexp.MustCompile(`^# (\S+\.ya?ml)\b`)

// file returns the name of the file that the block shows, which is in its first line.
func (b block) file() string {
	if found := fileName.FindStringSubmatch(b.lines[0]); found != nil && b.kind == "yaml" {
		return found[1]
	}
	return ""
}

// pages are README and all of docs/*.md.
func pages() ([]string, error) {
	all, err := filepath.Glob(filepath.Join(root, "docs", "*.md"))
	return append([]string{filepath.Join(root, "README.md")}, all...), err
}

func readPage(path string) ([]block, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	return parse(string(text))
}
