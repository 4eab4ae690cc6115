package exeunt_test

import (
	"os"
	"regexp"
	"strings"
	"testing"
)

// TestDocsQuoteRealErrors: each text that the table of errors in
// docs/operating.md quotes is in the code, so that a person who searches for
// what the server said finds it. In a quote, … with or without quotation marks
// and a word in CAPITALS stand for anything.
func TestDocsQuoteRealErrors(t *testing.T) {
	doc, err := os.ReadFile("docs/operating.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(doc), "## What an error means\n")
	if !found {
		t.Fatal("docs/operating.md has no table of errors")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	var code strings.Builder
	for _, s := range sources(t) {
		if !s.test() {
			text, err := os.ReadFile(s.path)
			if err != nil {
				t.Fatal(err)
			}
			code.Write(text)
		}
	}
	quotes := 0
	gap := regexp.MustCompile(`"?…"?|\b[A-Z]{2,}\b`)
	quote := regexp.MustCompile("`([^`]+)`")
	for _, row := range strings.Split(section, "\n") {
		cells := strings.Split(row, "|")
		if len(cells) < 3 {
			continue
		}
		for _, q := range quote.FindAllStringSubmatch(cells[1], -1) {
			if !strings.Contains(q[1], " ") {
				continue // a header, a reason: no text
			}
			quotes++
			for _, part := range gap.Split(q[1], -1) {
				if part = strings.TrimSpace(part); !strings.Contains(code.String(), part) {
					t.Errorf("docs/operating.md quotes %q: no code says %q", q[1], part)
				}
			}
		}
	}
	if quotes < 5 {
		t.Errorf("found only %d quotes: the table or this test has changed", quotes)
	}
}
