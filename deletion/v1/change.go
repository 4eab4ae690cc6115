package v1

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
)

// maxChanges bounds the changes that a result names.
const maxChanges = 50

// Changes compares two states of an object.
func Changes(was, is []byte) ([]Change, error) {
	if bytes.Equal(was, is) {
		return nil, nil
	}
	var before, after any
	if err := json.Unmarshal(was, &before); err != nil {
		return nil, fmt.Errorf("compare objects: %w", err)
	}
	if err := json.Unmarshal(is, &after); err != nil {
		return nil, fmt.Errorf("compare objects: %w", err)
	}
	var c comparison
	c.compare("", before, after)
	return c.found, nil
}

// Differences is Changes without what every write changes: managedFields, generation and resourceVersion.
func Differences(was, is []byte) ([]Change, error) {
	var states [2]any
	for i, text := range [][]byte{was, is} {
		var state map[string]any
		if err := json.Unmarshal(text, &state); err != nil {
			return nil, fmt.Errorf("compare objects: %w", err)
		}
		if m, ok := state["metadata"].(map[string]any); ok {
			for _, field := range []string{"managedFields", "generation", "resourceVersion"} {
				delete(m, field)
			}
		}
		states[i] = state
	}
	var c comparison
	c.compare("", states[0], states[1])
	return c.found, nil
}

// comparison collects differences by the path of the field.
type comparison struct{ found []Change }

func (c *comparison) compare(path string, before, after any) {
	switch b := before.(type) {
	case map[string]any:
		if a, ok := after.(map[string]any); ok {
			c.fields(path, b, a)
			return
		}
	case []any:
		if a, ok := after.([]any); ok && len(a) == len(b) {
			for i := range b {
				c.compare(path+"["+strconv.Itoa(i)+"]", b[i], a[i])
			}
			return
		}
	default:
		if before == after {
			return
		}
	}
	c.add(Change{Field: path, Was: shown(before), Is: shown(after)})
}

func (c *comparison) add(change Change) {
	if len(c.found) < maxChanges {
		c.found = append(c.found, change)
	}
}

func (c *comparison) fields(path string, before, after map[string]any) {
	all := maps.Clone(before)
	maps.Copy(all, after)
	for _, name := range slices.Sorted(maps.Keys(all)) {
		full := name
		if path != "" {
			full = path + "." + name
		}
		b, had := before[name]
		a, has := after[name]
		switch {
		case had && has:
			c.compare(full, b, a)
		case had:
			c.add(Change{Field: full, Was: shown(b)})
		default:
			c.add(Change{Field: full, Is: shown(a)})
		}
	}
}

// maxShown bounds the text of a value.
const maxShown = 200

func shown(value any) string {
	text, err := json.Marshal(value)
	if err != nil {
		return ""
	}
	if len(text) > maxShown {
		return string(text[:maxShown]) + "…"
	}
	return string(text)
}
