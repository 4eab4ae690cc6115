//go:build diff

package diff

import (
	"regexp"
	"slices"
	"strings"
)

// masked are the keys whose values differ in every run; only whether they are set is
// compared.
var masked = []string{"uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "time", "continue", "expirationTimestamp", "token"}

// texts are the parts of strings that differ in every run.
var texts = []struct {
	pattern *regexp.Regexp
	with    string
}{
	{regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`), "<uid>"},
	{regexp.MustCompile(`\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z`), "<time>"},
	{regexp.MustCompile(`(resourceVersion\\*":\\*")\d+`), "${1}<version>"},
	{regexp.MustCompile(`(ResourceVersion in record \(|current: )\d+`), "${1}<version>"},
	{regexp.MustCompile(`kube-api-access-\w{5}`), "kube-api-access-<generated>"},
	{regexp.MustCompile(`https://(127\.0\.0\.1|localhost):\d+`), "<server>"},
	{regexp.MustCompile(`\b(10\.\d+\.\d+\.\d+)\b`), "<address>"},
	{regexp.MustCompile(`\b\d+(\.\d+)?(ms|s)\b`), "<duration>"},
}

// mask replaces what differs in every run.
func mask(value any) any {
	switch v := value.(type) {
	case map[string]any:
		out := map[string]any{}
		generated, _ := v["generateName"].(string)
		for key, field := range v {
			key = replaceTexts(key) // of managedFields
			switch {
			case field != nil && slices.Contains(masked, key) && isScalar(field):
				out[key] = "<" + key + ">"
			case key == "resourceRules" || key == "nonResourceRules":
				out[key] = asSet(field)
			case key == "name" && generated != "":
				out[key] = generated + "<generated>"
			default:
				out[key] = mask(field)
			}
		}
		return out
	case []any:
		out := make([]any, len(v))
		for i, item := range v {
			out[i] = mask(item)
		}
		return out
	case string:
		return strings.TrimRight(replaceTexts(v), "\n")
	}
	return value
}

func replaceTexts(s string) string {
	for _, t := range texts {
		s = t.pattern.ReplaceAllString(s, t.with)
	}
	return s
}

// isScalar is true of values that are set. An empty string and "0" say something.
func isScalar(value any) bool {
	s, ok := value.(string)
	return ok && s != "" && s != "0"
}

// asSet turns a list without an order into a map. Real servers list rules in the order of a Go
// map.
func asSet(value any) any {
	list, ok := value.([]any)
	if !ok {
		return value
	}
	out := map[string]any{}
	for _, item := range list {
		out[text(item)] = true
	}
	return out
}
