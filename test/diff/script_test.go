//go:build diff

package diff

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// step is one request or command of a script.
type step struct {
	name    string
	method  string // "$" for a command
	target  string // path, or command line
	headers [][2]string
	groups  []string
	user    string
	raw     bool
	any     bool
	only    string // path
	// decision masks the reason of a review: which of several bindings a real server names is
	// chance.
	decision bool
	saves    [][2]string // name, path
	until    [2]string   // path, value
	body     string
}

// readScript reads the steps of a file.
func readScript(t *testing.T, file string) []step {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var steps []step
	seen := map[string]bool{}
	_, text, _ := strings.Cut("\n"+string(data), "\n== ")
	for _, block := range strings.Split(text, "\n== ") {
		s, err := parseStep(block)
		if err != nil {
			t.Fatalf("%s: step %q: %v", file, s.name, err)
		}
		if seen[s.name] {
			t.Fatalf("%s: two steps %q", file, s.name)
		}
		seen[s.name] = true
		steps = append(steps, s)
	}
	return steps
}

func parseStep(block string) (step, error) {
	head, body, _ := strings.Cut(block, "\n\n")
	lines := strings.Split(strings.TrimSpace(head), "\n")
	s := step{name: lines[0], body: strings.TrimSpace(body)}
	if len(lines) < 2 {
		return s, fmt.Errorf("no request")
	}
	s.method, s.target, _ = strings.Cut(lines[1], " ")
	for _, line := range lines[2:] {
		key, value, found := strings.Cut(line, ": ")
		if !found {
			return s, fmt.Errorf("bad header %q", line)
		}
		s.header(key, value)
	}
	return s, nil
}

func (s *step) header(key, value string) {
	switch key {
	case "As":
		s.user = value
	case "As-Group":
		s.groups = append(s.groups, value)
	case "Raw":
		s.raw = true
	case "Any":
		s.any = true
	case "Only":
		s.only = value
	case "Save":
		name, path, _ := strings.Cut(value, " ")
		s.saves = append(s.saves, [2]string{name, path})
	case "Until":
		path, want, _ := strings.Cut(value, "=")
		s.until = [2]string{path, want}
	default:
		s.headers = append(s.headers, [2]string{key, value})
	}
}
