package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A placeholder is ${name} in a string of a template, key or value. $${ stands
// for a plain ${.
var placeholder = regexp.MustCompile(`\$?\$\{[^{}]*\}`)

// variables are the placeholders that every resource has, in addition to its
// parameters.
var variables = []string{
	"resource.id", "resource.name", "resource.namespace", "credential.name",
	"xr.name", "providerConfig.name", "token.secretName",
}

// knows reports whether the placeholder has a value.
func (b BlueprintVersion) knows(name string) bool {
	if parameter, ok := strings.CutPrefix(name, "parameters."); ok {
		return slices.ContainsFunc(b.Schema, func(p Parameter) bool { return p.Name == parameter })
	}
	return slices.Contains(variables, name)
}

// placeholders lists the placeholder names in a spec. It searches the JSON
// text, because no JSON escape contains a brace.
func placeholders(spec []byte) []string {
	var names []string
	for _, found := range placeholder.FindAll(spec, -1) {
		if name, ok := named(string(found)); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// named returns the name in a placeholder; an escaped one has none.
func named(text string) (string, bool) {
	if strings.HasPrefix(text, "$$") {
		return "", false
	}
	return text[2 : len(text)-1], true
}

// Render fills in a template for a resource. A string that consists of one
// placeholder becomes the value, with its type; a placeholder inside a longer
// string becomes text. Render leaves out a field or an element whose only text
// is a parameter without value and default.
//
// Numbers are int64 or float64, as in Kubernetes' decoders.
func (r ProvisionedResource) Render(t Template) (map[string]any, error) {
	decoder := json.NewDecoder(bytes.NewReader(t.Spec))
	decoder.UseNumber()
	var spec map[string]any
	if err := decoder.Decode(&spec); err != nil {
		return nil, fmt.Errorf("render %s for %s: %w", t.Kind, r.state.ID, err)
	}
	values := r.values()
	out, _ := fill(spec, values).(map[string]any)
	return out, nil
}

// values maps the placeholders of a resource to their values.
func (r ProvisionedResource) values() map[string]any {
	name := r.XRName()
	values := map[string]any{
		"resource.id": string(r.state.ID), "resource.name": r.state.Name, "resource.namespace": string(r.state.Project),
		"credential.name": string(r.state.Credential),
		"xr.name":         name, "providerConfig.name": name, "token.secretName": name,
	}
	for key, value := range r.state.Parameters {
		values["parameters."+key] = value
	}
	return values
}

// fill returns a value with its placeholders filled in, or nil to leave it out.
// A null in the template stays.
func fill(value any, values map[string]any) any {
	switch v := value.(type) {
	case map[string]any:
		out := make(map[string]any, len(v))
		for key, inner := range v {
			if filled := fill(inner, values); filled != nil || inner == nil {
				out[fillText(key, values)] = filled
			}
		}
		return out
	case []any:
		out := make([]any, 0, len(v))
		for _, inner := range v {
			if filled := fill(inner, values); filled != nil || inner == nil {
				out = append(out, filled)
			}
		}
		return out
	case string:
		if whole := placeholder.FindString(v); whole == v && v != "" {
			if name, ok := named(whole); ok {
				return values[name]
			}
		}
		return fillText(v, values)
	case json.Number:
		if n, err := v.Int64(); err == nil {
			return n
		}
		f, _ := v.Float64() // the decoder accepted it, so it is a number; one that is too large becomes infinite
		return f
	}
	return value
}

func fillText(text string, values map[string]any) string {
	return placeholder.ReplaceAllStringFunc(text, func(found string) string {
		name, ok := named(found)
		if !ok {
			return found[1:]
		}
		if value, given := values[name]; given {
			return fmt.Sprint(value)
		}
		return ""
	})
}
