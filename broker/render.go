package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// A placeholder is ${name} in a text of a template, key or value. $${ is a
// plain ${.
var placeholder = regexp.MustCompile(`\$?\$\{[^{}]*\}`)

// variables are the placeholders that every resource has, besides its
// parameters.
var variables = []string{
	"resource.id", "resource.name", "resource.namespace", "credential.name",
	"xr.name", "providerConfig.name", "token.secretName",
}

// knows says whether a placeholder can be filled in.
func (b BlueprintVersion) knows(name string) bool {
	if parameter, ok := strings.CutPrefix(name, "parameters."); ok {
		return slices.ContainsFunc(b.Schema, func(p Parameter) bool { return p.Name == parameter })
	}
	return slices.Contains(variables, name)
}

// placeholders lists the names that a spec asks for. They are looked for in the
// JSON text: no escape of JSON has a brace in it.
func placeholders(spec []byte) []string {
	var names []string
	for _, found := range placeholder.FindAll(spec, -1) {
		if name, ok := named(string(found)); ok && !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// named is the name in a placeholder; an escaped one has none.
func named(text string) (string, bool) {
	if strings.HasPrefix(text, "$$") {
		return "", false
	}
	return text[2 : len(text)-1], true
}

// Render fills in a template for a resource. A text that is nothing but one
// placeholder becomes the value, with its type; a placeholder within a text
// becomes text. A field or an element whose only text is a parameter that was
// not given, and has no default, is left out.
//
// Numbers are int64 or float64, as Kubernetes' own decoders have them.
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

// values are what the placeholders of a resource stand for.
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

// fill returns a value with its placeholders filled in, or nil where it is to be
// left out. A null of the template stays.
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
		f, _ := v.Float64() // what the decoder took is a number; too large is infinite
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
