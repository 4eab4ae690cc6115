//go:build diff

package diff

import (
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// openFile has the differences that are defects or not decided.
const openFile = "open.txt"

// mostShown is how many differences of one step are printed.
const mostShown = 15

// difference is one place where two answers are not equal.
type difference struct {
	path         string // "body.metadata.name"
	ours, theirs string // JSON; "" where there is nothing
}

// compare returns the differences of two decoded JSON values.
func compare(path string, ours, theirs any) (all []difference) {
	switch o := ours.(type) {
	case map[string]any:
		if t, ok := theirs.(map[string]any); ok {
			keys := maps.Clone(o)
			maps.Copy(keys, t)
			for _, key := range slices.Sorted(maps.Keys(keys)) {
				all = append(all, compare(path+"."+key, get(o, key), get(t, key))...)
			}
			return all
		}
	case []any:
		if t, ok := theirs.([]any); ok {
			if byName, theirsByName := named(o), named(t); byName != nil && theirsByName != nil {
				return compare(path, byName, theirsByName)
			}
			for i := range max(len(o), len(t)) {
				all = append(all, compare(fmt.Sprintf("%s.%d", path, i), at(o, i), at(t, i))...)
			}
			return all
		}
	}
	if text(ours) != text(theirs) {
		all = append(all, difference{strings.TrimPrefix(path, "."), text(ours), text(theirs)})
	}
	return all
}

// named turns a list of objects with distinct names into a map, so that one that is missing is one
// difference; nil if the list is no such list.
func named(list []any) map[string]any {
	out := map[string]any{}
	for _, item := range list {
		object, ok := item.(map[string]any)
		if !ok {
			return nil
		}
		name := identity(object)
		if _, twice := out[name]; name == "" || twice {
			return nil
		}
		out[name] = item
	}
	return out
}

func identity(object map[string]any) string {
	if meta, ok := object["metadata"].(map[string]any); ok {
		object = meta
	}
	for _, key := range []string{"resource", "subresource", "name", "groupVersion", "version"} {
		if name, ok := object[key].(string); ok && name != "" {
			return "[" + name + "]"
		}
	}
	return ""
}

// absent marks a field that is not there, which is not the same as null.
type absent struct{}

func get(m map[string]any, key string) any {
	if value, ok := m[key]; ok {
		return value
	}
	return absent{}
}

func at(list []any, i int) any {
	if i < len(list) {
		return list[i]
	}
	return absent{}
}

func text(value any) string {
	if _, none := value.(absent); none {
		return ""
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Sprint(value)
	}
	return string(data)
}

// meant is an entry of meant.txt, or of open.txt.
type meant struct {
	line       string
	step, path *regexp.Regexp
	open       bool // of open.txt
	used       bool
}

// readMeant reads the entries of a script: "SCRIPT: STEP | PATH | REASON", where * in STEP and PATH
// stands for any text.
func readMeant(t *testing.T, name, script string) []*meant {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	var all []*meant
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		parts := strings.Split(line, " | ")
		file, steps, found := strings.Cut(parts[0], ": ")
		if !found || len(parts) != 3 || strings.TrimSpace(parts[2]) == "" {
			t.Fatalf("%s: not SCRIPT: STEP | PATH | REASON: %s", name, line)
		}
		if file == script {
			all = append(all, &meant{line: line, step: glob(steps), path: glob(parts[1]), open: name == openFile})
		}
	}
	return all
}

func glob(text string) *regexp.Regexp {
	return regexp.MustCompile("^" + strings.ReplaceAll(regexp.QuoteMeta(strings.TrimSpace(text)), `\*`, `.*`) + "$")
}

// judge reports the differences that no entry covers, and the entries without a difference.
func judge(t *testing.T, script string, steps []step, ours, theirs []any) {
	t.Helper()
	entries := append(readMeant(t, "meant.txt", script), readMeant(t, openFile, script)...)
	expected, open := 0, 0
	for i, st := range steps {
		if st.any {
			continue
		}
		var unexpected []string
		for _, d := range compare("", ours[i], theirs[i]) {
			switch e := find(entries, st.name, d.path); {
			case e == nil:
			case e.open:
				open++
				continue
			default:
				expected++
				continue
			}
			unexpected = append(unexpected, fmt.Sprintf("  %s\n    ours   %s\n    theirs %s", d.path, short(d.ours), short(d.theirs)))
		}
		if more := len(unexpected) - mostShown; more > 0 {
			unexpected = append(unexpected[:mostShown], fmt.Sprintf("  and %d more", more))
		}
		if len(unexpected) > 0 {
			t.Errorf("%s: %s: %s %s\n%s", script, st.name, st.method, st.target, strings.Join(unexpected, "\n"))
		}
	}
	for _, e := range entries {
		if !e.used {
			t.Errorf("nothing differs any more, remove: %s", e.line)
		}
	}
	t.Logf("%s: %d steps, %d differences that are meant, %d that are open (%s)", script, len(steps), expected, open, openFile)
}

// find returns the first entry for a difference, and marks it; meant.txt comes first.
func find(entries []*meant, step, path string) *meant {
	for _, e := range entries {
		if e.step.MatchString(step) && e.path.MatchString(path) {
			e.used = true
			return e
		}
	}
	return nil
}

func short(text string) string {
	switch {
	case text == "":
		return "(nothing)"
	case len(text) > 700:
		return text[:700] + "..."
	}
	return text
}
