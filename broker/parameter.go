package broker

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"strconv"
)

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
