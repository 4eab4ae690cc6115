package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"
)

// BlueprintVersionRef names one version of a blueprint.
type BlueprintVersionRef struct {
	Name    string `json:"name"`
	Version string `json:"version"`
}

func (r BlueprintVersionRef) String() string { return r.Name + "@" + r.Version }

// ProviderKind is the kind of cloud that a blueprint is for, such as "aws". A
// credential must be of the same kind.
type ProviderKind string

// InjectionStrategy says how a bootstrap token reaches the machine.
type InjectionStrategy string

// The injection strategies: a closed set.
const (
	InjectCloudInitUserData InjectionStrategy = "cloud-init-user-data"
	InjectHelmValues        InjectionStrategy = "helm-values"
	InjectProviderSecret    InjectionStrategy = "provider-secret"
)

// InjectionStrategies returns all strategies.
func InjectionStrategies() []InjectionStrategy {
	return []InjectionStrategy{InjectCloudInitUserData, InjectHelmValues, InjectProviderSecret}
}

// DefaultDeadline is the time to become Ready when the blueprint gives none.
const DefaultDeadline = time.Hour

// maxDeadline is the longest deadline that a blueprint may set.
const maxDeadline = 7 * 24 * time.Hour

// BlueprintVersion says how a resource is built. A version never changes: a
// change is another version.
type BlueprintVersion struct {
	Ref BlueprintVersionRef
	// XR is the composite resource, ProviderConfig its access to the cloud.
	XR, ProviderConfig Template
	Schema             ParameterSchema
	Provider           ProviderKind
	Injection          InjectionStrategy
	// Deadline is how long a resource may take to become Ready, up to 7 days.
	// Zero is DefaultDeadline.
	Deadline time.Duration
}

// ObjectType is the kind of an object on the management cluster.
type ObjectType struct {
	APIVersion string `json:"apiVersion"` // "group/version"
	Kind       string `json:"kind"`
}

// Template is an object before the parameters are filled in.
type Template struct {
	ObjectType
	// Spec is a JSON object. Its strings may have placeholders: see Render.
	Spec json.RawMessage `json:"spec"`
}

var (
	validAPIVersion = lazily(`^[a-z0-9]([a-z0-9.-]{0,251}[a-z0-9])?/v[a-z0-9]{1,62}$`)
	validKind       = lazily(`^[A-Z][A-Za-z0-9]{0,62}$`)
	validVersion    = lazily(`^[A-Za-z0-9]([A-Za-z0-9.+_-]{0,61}[A-Za-z0-9])?$`)
)

// Validate names every invalid field.
func (b BlueprintVersion) Validate() error {
	var errs FieldErrors
	checkBlueprintRef(&errs, b.Ref)
	b.checkTemplate(&errs, "xr", b.XR)
	b.checkTemplate(&errs, "providerConfig", b.ProviderConfig)
	if !validLabel().MatchString(string(b.Provider)) {
		errs.add("provider", labelRule)
	}
	if !slices.Contains(InjectionStrategies(), b.Injection) {
		errs.add("injection", fmt.Sprintf("must be one of %v", InjectionStrategies()))
	}
	if b.Deadline < 0 || b.Deadline > maxDeadline {
		errs.add("deadline", fmt.Sprintf("must be from 0 to %s", maxDeadline))
	}
	b.Schema.check(&errs)
	return errs.err()
}

func (b BlueprintVersion) checkTemplate(errs *FieldErrors, field string, t Template) {
	if !validAPIVersion().MatchString(t.APIVersion) {
		errs.add(field+".apiVersion", `must be "group/version"`)
	}
	if !validKind().MatchString(t.Kind) {
		errs.add(field+".kind", "must be a kind: a capital letter, then letters and digits")
	}
	if !isJSONObject(t.Spec) {
		errs.add(field+".spec", "must be a JSON object")
		return
	}
	for _, name := range placeholders(t.Spec) {
		if !b.knows(name) {
			errs.add(field+".spec", fmt.Sprintf("${%s} is nothing that can be filled in: want ${parameters.NAME} of a declared parameter, or one of %v", name, variables))
		}
	}
}

func checkBlueprintRef(errs *FieldErrors, ref BlueprintVersionRef) {
	if !validLabel().MatchString(ref.Name) {
		errs.add("blueprint.name", labelRule)
	}
	if !validVersion().MatchString(ref.Version) {
		errs.add("blueprint.version", "must be 1 to 63 letters, digits, '.', '+', '_' or '-', and begin and end with a letter or digit")
	}
}

func (b BlueprintVersion) deadline() time.Duration {
	if b.Deadline == 0 {
		return DefaultDeadline
	}
	return b.Deadline
}

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
