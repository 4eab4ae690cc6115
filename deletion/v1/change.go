package v1

import (
	"bytes"
	"errors"
	"slices"
	"strconv"

	"github.com/tidwall/gjson"
)

// maxChanges bounds the changes that a result names.
const maxChanges = 50

// Changes compares two states of an object.
func Changes(was, is []byte) ([]Change, error) { return differences(was, is, maxChanges, nil) }

// Differences is Changes without what every write changes: managedFields, generation and resourceVersion.
func Differences(was, is []byte) ([]Change, error) {
	return differences(was, is, maxChanges, func(in, field string) bool {
		return in == "metadata" && (field == "managedFields" || field == "generation" || field == "resourceVersion")
	})
}

// Same reports whether two states are the same but for fields that skip names, by the path of what they are in and their name.
func Same(was, is []byte, skip func(in, field string) bool) (bool, error) {
	found, err := differences(was, is, 1, skip)
	return len(found) == 0, err
}

func differences(was, is []byte, most int, skip func(in, field string) bool) ([]Change, error) {
	if bytes.Equal(was, is) {
		return nil, nil
	}
	if !gjson.ValidBytes(was) || !gjson.ValidBytes(is) {
		return nil, errors.New("compare objects: not JSON")
	}
	c := comparison{most: most, skip: skip}
	c.compare("", gjson.ParseBytes(was), gjson.ParseBytes(is))
	return c.found, nil
}

// comparison collects differences by the path of the field. It parses only values that differ as texts.
//
// +k8s:openapi-gen=false
// +k8s:deepcopy-gen=false
type comparison struct {
	found []Change
	most  int
	skip  func(in, field string) bool // nil: nothing is skipped
}

func (c *comparison) compare(path string, before, after gjson.Result) {
	switch {
	case before.Raw == after.Raw, before.Type == gjson.String && after.Type == gjson.String && before.Str == after.Str:
		return
	case before.IsObject() && after.IsObject():
		c.fields(path, before.Map(), after.Map())
		return
	case before.IsArray() && after.IsArray():
		b, a := before.Array(), after.Array()
		if len(b) == len(a) {
			for i := range b {
				c.compare(path+"["+strconv.Itoa(i)+"]", b[i], a[i])
			}
			return
		}
	}
	c.add(Change{Field: path, Was: shown(before), Is: shown(after)})
}

func (c *comparison) add(change Change) {
	if len(c.found) < c.most {
		c.found = append(c.found, change)
	}
}

func (c *comparison) fields(path string, before, after map[string]gjson.Result) {
	var names []string
	for name, b := range before {
		if a, has := after[name]; !has || a.Raw != b.Raw {
			names = append(names, name)
		}
	}
	for name := range after {
		if _, had := before[name]; !had {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	for _, name := range names {
		if c.skip != nil && c.skip(path, name) || len(c.found) == c.most {
			continue
		}
		b, had := before[name]
		a, has := after[name]
		full := name
		if path != "" {
			full = path + "." + name
		}
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

func shown(value gjson.Result) string {
	if len(value.Raw) > maxShown {
		return value.Raw[:maxShown] + "…"
	}
	return value.Raw
}
