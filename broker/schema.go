package broker

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"unicode/utf8"
)

// ParameterType is the type of a parameter's values. All types are scalar: a
// value fits into one field of an XR, one flag of a command line, one input of
// a form.
type ParameterType string

// The types of parameters: a closed set.
const (
	TypeString  ParameterType = "string"
	TypeInteger ParameterType = "integer"
	TypeNumber  ParameterType = "number"
	TypeBoolean ParameterType = "boolean"
)

// ParameterTypes returns all types.
func ParameterTypes() []ParameterType {
	return []ParameterType{TypeString, TypeInteger, TypeNumber, TypeBoolean}
}

// Limits on a schema, so that no request is expensive to check.
const (
	maxParameters  = 64
	maxEnum        = 128
	maxPattern     = 512
	maxStringBytes = 4096
)

// Parameter declares one parameter.
type Parameter struct {
	Name        string        `json:"name"`
	Type        ParameterType `json:"type"`
	Description string        `json:"description"`
	// Required: a request must give a value. A required parameter has no
	// default.
	Required bool `json:"required"`
	// Default is used when a request gives no value. Nil means the parameter is left
	// out.
	Default any `json:"default"`
	// Enum, if not empty, lists the only values allowed.
	Enum []any `json:"enum"`
	// Minimum and Maximum, inclusive, are for integers and numbers.
	Minimum *float64 `json:"minimum"`
	Maximum *float64 `json:"maximum"`
	// MaxLength is in characters, Pattern a regular expression (RE2) that the
	// whole value must match. Both apply to strings. A string never has more
	// than 4096 bytes.
	MaxLength *int   `json:"maxLength"`
	Pattern   string `json:"pattern"`
}

// ParameterSchema declares the parameters of a blueprint version.
type ParameterSchema []Parameter

var validParameter = lazily(`^[a-zA-Z][a-zA-Z0-9_-]{0,62}$`)

// check reports every error in the schema.
func (s ParameterSchema) check(errs *FieldErrors) {
	if len(s) > maxParameters {
		errs.add("schema", fmt.Sprintf("has %d parameters; at most %d are allowed", len(s), maxParameters))
		return
	}
	seen := map[string]bool{}
	for i, p := range s {
		field := fmt.Sprintf("schema[%d]", i)
		if !validParameter().MatchString(p.Name) {
			errs.add(field+".name", "must be a letter and then up to 62 letters, digits, '_' or '-'")
		} else if seen[p.Name] {
			errs.add(field+".name", fmt.Sprintf("%q is declared twice", p.Name))
		}
		seen[p.Name] = true
		if !slices.Contains(ParameterTypes(), p.Type) {
			errs.add(field+".type", fmt.Sprintf("must be one of %v", ParameterTypes()))
			continue
		}
		p.checkBounds(errs, field)
		p.checkValues(errs, field)
	}
}

// checkBounds checks that the constraints fit the type.
func (p Parameter) checkBounds(errs *FieldErrors, field string) {
	numeric := p.Type == TypeInteger || p.Type == TypeNumber
	if !numeric && (p.Minimum != nil || p.Maximum != nil) {
		errs.add(field, fmt.Sprintf("minimum and maximum are not for type %s", p.Type))
	}
	if !finite(p.Minimum) {
		errs.add(field+".minimum", "must be a finite number")
	}
	if !finite(p.Maximum) {
		errs.add(field+".maximum", "must be a finite number")
	}
	if p.Minimum != nil && p.Maximum != nil && *p.Minimum > *p.Maximum {
		errs.add(field+".maximum", "is less than minimum")
	}
	if p.Type != TypeString && (p.MaxLength != nil || p.Pattern != "") {
		errs.add(field, fmt.Sprintf("maxLength and pattern are not for type %s", p.Type))
	}
	if p.MaxLength != nil && *p.MaxLength < 0 {
		errs.add(field+".maxLength", "must not be negative")
	}
	if len(p.Pattern) > maxPattern {
		errs.add(field+".pattern", fmt.Sprintf("has %d bytes; at most %d are allowed", len(p.Pattern), maxPattern))
	} else if _, err := p.pattern(); err != nil {
		errs.add(field+".pattern", err.Error())
	}
}

func finite(bound *float64) bool {
	return bound == nil || !math.IsNaN(*bound) && !math.IsInf(*bound, 0)
}

// checkValues checks that default and enum are values of the type, and that the
// default is a value that a request may give.
func (p Parameter) checkValues(errs *FieldErrors, field string) {
	if len(p.Enum) > maxEnum {
		errs.add(field+".enum", fmt.Sprintf("has %d values; at most %d are allowed", len(p.Enum), maxEnum))
		return
	}
	single := p
	single.Enum = nil
	for i, value := range p.Enum {
		if _, detail := single.accept(value); detail != "" {
			errs.add(fmt.Sprintf("%s.enum[%d]", field, i), detail)
		}
	}
	if p.Default == nil {
		return
	}
	if p.Required {
		errs.add(field+".default", "a required parameter has no default")
	}
	if _, detail := p.accept(p.Default); detail != "" {
		errs.add(field+".default", detail)
	}
}

// pattern compiles the pattern so that it must match the whole value. It first
// compiles the pattern alone, which refuses patterns such as "a)(b" that would
// close the group.
func (p Parameter) pattern() (*regexp.Regexp, error) {
	if _, err := regexp.Compile(p.Pattern); err != nil {
		return nil, err
	}
	return regexp.Compile(`^(?:` + p.Pattern + `)$`)
}

// accept returns the value in the form in which it is stored, or says what is
// wrong.
func (p Parameter) accept(value any) (stored any, wrong string) {
	stored, ok := scalar(p.Type, value)
	if !ok {
		return nil, fmt.Sprintf("must be of type %s, is %s", p.Type, describe(value))
	}
	if len(p.Enum) > 0 && !slices.ContainsFunc(p.Enum, func(e any) bool {
		allowed, ok := scalar(p.Type, e)
		return ok && allowed == stored
	}) {
		return nil, fmt.Sprintf("must be one of %v", p.Enum)
	}
	switch v := stored.(type) {
	case string:
		return stored, p.wrongString(v)
	case int64:
		return stored, p.wrongNumber(float64(v))
	case float64:
		return stored, p.wrongNumber(v)
	}
	return stored, ""
}

func (p Parameter) wrongNumber(v float64) string {
	switch {
	case p.Minimum != nil && v < *p.Minimum:
		return fmt.Sprintf("must be at least %v", *p.Minimum)
	case p.Maximum != nil && v > *p.Maximum:
		return fmt.Sprintf("must be at most %v", *p.Maximum)
	}
	return ""
}

func (p Parameter) wrongString(v string) string {
	switch {
	case len(v) > maxStringBytes:
		return fmt.Sprintf("has %d bytes; at most %d are allowed", len(v), maxStringBytes)
	case !utf8.ValidString(v) || bytes.IndexByte([]byte(v), 0) >= 0:
		return "must be valid UTF-8 without NUL"
	case p.MaxLength != nil && utf8.RuneCountInString(v) > *p.MaxLength:
		return fmt.Sprintf("must have at most %d characters", *p.MaxLength)
	}
	if p.Pattern == "" {
		return ""
	}
	pattern, err := p.pattern()
	if err != nil {
		return fmt.Sprintf("cannot be checked: %v", err)
	}
	if !pattern.MatchString(v) {
		return fmt.Sprintf("must match %q", p.Pattern)
	}
	return ""
}

func isJSONObject(data []byte) bool {
	trimmed := bytes.TrimSpace(data)
	return len(trimmed) > 0 && trimmed[0] == '{' && json.Valid(trimmed)
}

// Parameters are the checked values of a resource, by name. A value is a
// string, a bool, an int64 or a float64, as its parameter's type says, so equal
// requests compare equal.
type Parameters map[string]any

// Check converts the values of a request to the form in which they are stored
// and fills in the defaults. The values are as encoding/json decodes them. The
// error is FieldErrors and names every refused value.
func (s ParameterSchema) Check(values map[string]any) (Parameters, error) {
	var errs FieldErrors
	checked := Parameters{}
	for _, p := range s {
		value, given := values[p.Name]
		switch {
		case !given && p.Required:
			errs.add("parameters."+p.Name, "is required")
			continue
		case !given && p.Default == nil:
			continue
		case !given:
			value = p.Default
		}
		stored, wrong := p.accept(value)
		if wrong != "" {
			errs.add("parameters."+p.Name, wrong)
			continue
		}
		checked[p.Name] = stored
	}
	for _, name := range s.unknown(values) {
		errs.add("parameters."+name, "the blueprint has no such parameter")
	}
	if err := errs.err(); err != nil {
		return nil, err
	}
	return checked, nil
}

// unknown lists the values without a declared parameter, sorted, so that the
// same request always gets the same answer.
func (s ParameterSchema) unknown(values map[string]any) []string {
	var names []string
	for name := range values {
		if !slices.ContainsFunc(s, func(p Parameter) bool { return p.Name == name }) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// scalar converts the value to the one Go type that represents t.
func scalar(t ParameterType, value any) (any, bool) {
	switch t {
	case TypeString:
		v, ok := value.(string)
		return v, ok
	case TypeBoolean:
		v, ok := value.(bool)
		return v, ok
	case TypeInteger:
		return integer(value)
	case TypeNumber:
		return number(value)
	}
	return nil, false
}

// exactFloat is 2^53: from here on a float64 may have been rounded from another
// integer, so larger integers are refused.
const exactFloat = 1 << 53

func integer(value any) (any, bool) {
	switch v := value.(type) {
	case int:
		return int64(v), true
	case int64:
		return v, true
	case float64:
		return wholeFloat(v)
	case json.Number:
		if n, err := strconv.ParseInt(v.String(), 10, 64); err == nil {
			return n, true
		}
		if f, err := v.Float64(); err == nil {
			return wholeFloat(f)
		}
	}
	return nil, false
}

func wholeFloat(v float64) (any, bool) {
	if v != math.Trunc(v) || math.Abs(v) >= exactFloat {
		return nil, false
	}
	return int64(v), true
}

func number(value any) (any, bool) {
	var f float64
	switch v := value.(type) {
	case int:
		f = float64(v)
	case int64:
		f = float64(v)
	case float64:
		f = v
	case json.Number:
		parsed, err := v.Float64()
		if err != nil {
			return nil, false
		}
		f = parsed
	default:
		return nil, false
	}
	if math.IsNaN(f) || math.IsInf(f, 0) {
		return nil, false
	}
	return f, true
}

// describe names the JSON type of a value without repeating the value, which
// may be large or secret.
func describe(value any) string {
	switch value.(type) {
	case nil:
		return "null"
	case string:
		return "a string"
	case bool:
		return "a boolean"
	case int, int64, float64, json.Number:
		return "a number that does not fit"
	case []any:
		return "an array"
	case map[string]any:
		return "an object"
	}
	return fmt.Sprintf("a %T", value)
}
