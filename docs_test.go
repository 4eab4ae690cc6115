package exeunt_test

import (
	"os"
	"path/filepath"
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

// TestDocsLinks: every relative link of a page leads to a file, and its anchor to a heading
// of that file.
func TestDocsLinks(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	for _, pattern := range []string{"*.md", "docs/*/*.md"} {
		more, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		pages = append(pages, more...)
	}
	link := regexp.MustCompile(`\]\(([^)\s]+)\)`)
	links := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		for _, found := range link.FindAllStringSubmatch(string(text), -1) {
			if strings.Contains(found[1], "://") {
				continue
			}
			links++
			name, anchor, _ := strings.Cut(found[1], "#")
			target := page
			if name != "" {
				target = filepath.Join(filepath.Dir(page), name)
			}
			if _, err := os.Stat(target); err != nil {
				t.Errorf("%s links to %s: %v", page, found[1], err)
			} else if anchor != "" && !anchors(t, target)[anchor] {
				t.Errorf("%s links to %s, which has no such heading", page, found[1])
			}
		}
	}
	if links < 100 {
		t.Errorf("found only %d links: this test has changed", links)
	}
}

// anchors returns the anchors of a page's headings, as GitHub and GitLab make them.
func anchors(t *testing.T, page string) map[string]bool {
	t.Helper()
	text, err := os.ReadFile(page)
	if err != nil {
		t.Fatal(err)
	}
	all := map[string]bool{}
	drop := regexp.MustCompile(`[^\p{L}\p{N} _-]`)
	for _, heading := range regexp.MustCompile(`(?m)^#+ (.*)$`).FindAllStringSubmatch(string(text), -1) {
		all[strings.ReplaceAll(drop.ReplaceAllString(strings.ToLower(heading[1]), ""), " ", "-")] = true
	}
	return all
}

// TestTourLeavesNoCredential: what the commands of the README write into the folder of the
// repository is ignored by git: most of it are credentials.
func TestTourLeavesNoCredential(t *testing.T) {
	readme, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	ignored, err := os.ReadFile(".gitignore")
	if err != nil {
		t.Fatal(err)
	}
	written := regexp.MustCompile(`(?m)^[^#\n|]*[^0-9&]>\s*([a-z][\w./-]*)`).FindAllStringSubmatch(string(readme), -1)
	if len(written) == 0 {
		t.Fatal("the README writes no file")
	}
	for _, file := range written {
		found := false
		for _, pattern := range strings.Fields(string(ignored)) {
			match, _ := filepath.Match(pattern, file[1])
			found = found || match || strings.HasPrefix("/"+file[1], pattern)
		}
		if !found {
			t.Errorf("the README writes %s, which .gitignore does not name", file[1])
		}
	}
}

// TestDocsKeepTokens: no page sends a renewed token into the file that has the old one: the shell empties that file first,
// and a refused command would leave nothing.
func TestDocsKeepTokens(t *testing.T) {
	pages, err := filepath.Glob("docs/*.md")
	more, errMore := filepath.Glob("docs/reference/*.md")
	pages = append(append(pages, more...), "README.md")
	if err != nil || errMore != nil {
		t.Fatal(err, errMore)
	}
	found := 0
	for _, page := range pages {
		text, err := os.ReadFile(page)
		if err != nil {
			t.Fatal(err)
		}
		added := map[string]bool{}
		for _, m := range regexp.MustCompile(`user add .*?>\s*([\w.-]+)`).FindAllStringSubmatch(string(text), -1) {
			added[m[1]] = true
		}
		for _, m := range regexp.MustCompile(`(?:user token|create token) .*?>\s*([\w.-]+)`).FindAllStringSubmatch(string(text), -1) {
			if found++; added[m[1]] {
				t.Errorf("%s: %q empties the only copy of the first token", page, m[0])
			}
		}
	}
	if found < 2 {
		t.Errorf("%d pages renew a token: this test has changed", found)
	}
}
