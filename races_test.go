package exeunt_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"
)

var (
	namedTest   = regexp.MustCompile(`\b(?:Test|Fuzz)[A-Z]\w*`)
	writtenTest = regexp.MustCompile(`(?m)^func ((?:Test|Fuzz)[A-Z]\w*)\(`)
)

// TestRacesNameTheirTests: docs/spec argues every race and names the test that
// forces it. A test that was renamed or removed must not live on there.
func TestRacesNameTheirTests(t *testing.T) {
	written := map[string]bool{}
	for _, s := range sources(t) {
		if !s.test() {
			continue
		}
		for _, found := range writtenTest.FindAllStringSubmatch(read(t, s.path), -1) {
			written[found[1]] = true
		}
	}
	pages, err := filepath.Glob("docs/spec/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("docs/spec has %d pages: %v", len(pages), err)
	}
	for _, page := range pages {
		names := namedTest.FindAllString(read(t, page), -1)
		if len(names) == 0 {
			t.Errorf("%s names no test", page)
		}
		for _, name := range names {
			if !written[name] {
				t.Errorf("%s names %s, which is nowhere", page, name)
			}
		}
	}
}

func read(t *testing.T, name string) string {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
