package lifecycle

import (
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestAnnotations: of each annotation, the values that mean something are accepted, and all
// others refused with what is allowed; an update may leave an old value as it is, and a
// restore brings it back.
func TestAnnotations(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		good, bad []string
		want      string
	}{
		MaxCascade:     {[]string{"0", "1", "1000", "9223372036854775807"}, []string{"abc", "1,000", "-1", "", "1.5", "1e3", " 1", "9223372036854775808"}, "number of objects in plain digits"},
		ConfirmCascade: {[]string{"1", "1000"}, []string{"0", "all", "true", "-1", ""}, "number of objects that may go"},
		ConfirmBy:      {[]string{"another-user"}, []string{"", "me", "true", "Another-User"}, `must be "another-user"`},
		HistoryFor:     {[]string{"0s", "72h", "3d"}, []string{"forever", "3 days", "-1h", ""}, `duration such as "3d"`},
		ArchiveFor:     {[]string{"0s", "72h", "1h30m", "3d"}, []string{"forever", "3 days", "72", "-1h", ""}, `duration such as "3d"`},
		PropagateGrace: {[]string{"0", "30", "true"}, []string{"false", "-1", "30s", ""}, "number of seconds"},
		ExpiresAt:      {[]string{"1970-01-01T00:00:00Z", "9999-12-31T00:00:00Z"}, []string{"1969-12-31T23:59:59Z", "9999-12-31T00:00:01Z", "tomorrow"}, "must be a time"},
		TTL:            {[]string{"1d0s", "2d1h"}, []string{"2d-1h", "2d1", "d1h"}, "duration"},
		KeepUntil:      {[]string{"forever", "2027-01-31T12:00:00Z"}, []string{"always", "1969-12-31T23:59:59Z", ""}, `must be "forever", or a time`},
		StartRetention: {[]string{"1", "7"}, []string{"0", "-1", "now", "1/2", ""}, "metadata.generation"},
		StartExpiry:    {[]string{"1", "7/1500"}, []string{"0", "0/5", "1/0", "1/", "/5", "now", ""}, "metadata.generation"},
	} {
		for _, value := range c.good {
			if errs := checkAnnotations(map[string]string{name: value}, nil, false); len(errs) > 0 {
				t.Errorf("%s %q: %v", name, value, errs)
			}
		}
		for _, value := range c.bad {
			bad, other := map[string]string{name: value}, map[string]string{name: value + "x"}
			errs := checkAnnotations(bad, other, false)
			if len(errs) != 1 || errs[0].Field != "metadata.annotations["+name+"]" || !strings.Contains(errs[0].Detail, c.want) {
				t.Errorf("%s %q: %v", name, value, errs)
			}
			if errs := append(checkAnnotations(bad, bad, false), checkAnnotations(bad, nil, true)...); len(errs) > 0 {
				t.Errorf("%s %q, unchanged or restored: %v", name, value, errs)
			}
			if errs := checkAnnotations(nil, bad, false); len(errs) > 0 {
				t.Errorf("%s %q, removed: %v", name, value, errs)
			}
		}
		if !slices.ContainsFunc(annotations, func(a annotation) bool { return a.name == name && a.check != nil }) {
			t.Errorf("%s is not in the table", name)
		}
	}
}

// TestEveryAnnotationIsInTheTable finds the names of this server's domain in all shipped Go files.
func TestEveryAnnotationIsInTheTable(t *testing.T) {
	t.Parallel()
	others := map[string]string{
		"lifecycle.exeunt.dev/v1":                 "the API group",
		"lifecycle.exeunt.dev/content-lost":       "a label",
		"lifecycle.exeunt.dev/cascade":            "of audit events",
		"lifecycle.exeunt.dev/announce-expiry":    "a label",
		"lifecycle.exeunt.dev/policy":             "of audit events",
		"lifecycle.exeunt.dev/removed":            "of audit events",
		"lifecycle.exeunt.dev/marked":             "of audit events",
		"lifecycle.exeunt.dev/released":           "of audit events",
		"lifecycle.exeunt.dev/finalizers-removed": "of audit events",
		"lifecycle.exeunt.dev/settings-changed":   "of audit events",
	}
	quoted := regexp.MustCompile(`"(lifecycle\.exeunt\.dev/[a-z0-9-]+)"`)
	found := map[string]bool{}
	err := filepath.WalkDir("..", func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() && path == filepath.Join("..", "test") {
			return fs.SkipDir
		}
		if filepath.Ext(path) != ".go" || strings.HasSuffix(path, "_test.go") {
			return nil
		}
		text, err := os.ReadFile(path)
		for _, match := range quoted.FindAllSubmatch(text, -1) {
			name := string(match[1])
			found[name] = true
			if others[name] == "" && !slices.ContainsFunc(annotations, func(a annotation) bool { return a.name == name }) {
				t.Errorf("%s: %s is not in the table of annotations", path, name)
			}
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	for _, a := range annotations {
		if !found[a.name] {
			t.Errorf("%s was not found: the test looks in the wrong place", a.name)
		}
	}
}
