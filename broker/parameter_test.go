package broker_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"math"
	"reflect"
	"strings"
	"testing"

	"github.com/exeunt/exeunt/broker"
)

var schema = broker.ParameterSchema{
	{Name: "name", Type: broker.TypeString, MaxLength: ptr(4), Pattern: "[a-zé]+|x y"},
	{Name: "count", Type: broker.TypeInteger, Minimum: ptr(-2.0), Maximum: ptr(9007199254740993.0)},
	{Name: "ratio", Type: broker.TypeNumber, Default: 0.5, Maximum: ptr(1.0)},
	{Name: "spare", Type: broker.TypeBoolean},
	{Name: "zone", Type: broker.TypeInteger, Enum: []any{1, 2.0}},
}

func TestCheckParameters(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		given string // JSON
		want  broker.Parameters
		wrong string
	}{
		"nothing, but the default":    {`{}`, broker.Parameters{"ratio": 0.5}, ""},
		"each type":                   {`{"name":"abc","count":3,"ratio":1,"spare":false}`, broker.Parameters{"name": "abc", "count": int64(3), "ratio": 1.0, "spare": false}, ""},
		"an integer written as float": {`{"count":3.0}`, broker.Parameters{"count": int64(3), "ratio": 0.5}, ""},
		"a value of an enum":          {`{"zone":2}`, broker.Parameters{"zone": int64(2), "ratio": 0.5}, ""},
		"the bound itself":            {`{"count":-2,"ratio":1.0}`, broker.Parameters{"count": int64(-2), "ratio": 1.0}, ""},
		"length is in characters":     {`{"name":"éééé"}`, broker.Parameters{"name": "éééé", "ratio": 0.5}, ""},
		"either side of a pattern":    {`{"name":"x y"}`, broker.Parameters{"name": "x y", "ratio": 0.5}, ""},

		"half an integer":           {`{"count":2.5}`, nil, "parameters.count: must be of type integer, is a number that does not fit"},
		"an integer that is a text": {`{"count":"3"}`, nil, "parameters.count: must be of type integer, is a string"},
		"null":                      {`{"name":null}`, nil, "parameters.name: must be of type string, is null"},
		"an array":                  {`{"spare":[true]}`, nil, "parameters.spare: must be of type boolean, is an array"},
		"an object":                 {`{"ratio":{"a":1}}`, nil, "parameters.ratio: must be of type number, is an object"},
		"a boolean for a number":    {`{"ratio":true}`, nil, "parameters.ratio: must be of type number, is a boolean"},
		"too small":                 {`{"count":-3}`, nil, "parameters.count: must be at least -2"},
		"too large":                 {`{"ratio":1.5}`, nil, "parameters.ratio: must be at most 1"},
		"too long":                  {`{"name":"abcde"}`, nil, "parameters.name: must have at most 4 characters"},
		"off pattern":               {`{"name":"a1"}`, nil, `parameters.name: must match "[a-zé]+|x y"`},
		"a part on pattern":         {`{"name":"x yz"}`, nil, `parameters.name: must match "[a-zé]+|x y"`},
		"not of the enum":           {`{"zone":3}`, nil, "parameters.zone: must be one of [1 2]"},
		"a NUL":                     {`{"name":"a\u0000"}`, nil, "parameters.name: must be valid UTF-8 without NUL"},
		"unknown, sorted, and more": {`{"z":1,"y":2,"count":true}`, nil, "parameters.count: must be of type integer, is a boolean; parameters.y: the blueprint has no such parameter; parameters.z: the blueprint has no such parameter"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			plain := map[string]any{}
			if err := json.Unmarshal([]byte(test.given), &plain); err != nil {
				t.Fatal(err)
			}
			exact := map[string]any{}
			decoder := json.NewDecoder(bytes.NewReader([]byte(test.given)))
			decoder.UseNumber()
			if err := decoder.Decode(&exact); err != nil {
				t.Fatal(err)
			}
			for _, given := range []map[string]any{plain, exact} {
				got, err := schema.Check(given)
				if !reflect.DeepEqual(got, test.want) {
					t.Errorf("got %#v, want %#v", got, test.want)
				}
				if test.wrong == "" && err != nil || test.wrong != "" && (err == nil || err.Error() != test.wrong) {
					t.Errorf("got error %v, want %q", err, test.wrong)
				}
				if err != nil {
					wantError(t, err, broker.ErrInvalidRequest)
				}
			}
		})
	}
}

// TestCheckNumbersJSONLacks: values can also come from Go.
func TestCheckNumbersJSONLacks(t *testing.T) {
	t.Parallel()
	for _, value := range []any{math.NaN(), math.Inf(1), float64(1 << 53), json.Number("x"), json.Number("1e999"), uint8(1), struct{}{}} {
		for _, name := range []string{"count", "ratio"} {
			got, err := schema.Check(map[string]any{name: value})
			if !errors.Is(err, broker.ErrInvalidRequest) {
				t.Errorf("%s %v: got %v, %v; want it refused", name, value, got, err)
			}
		}
	}
	if got, err := schema.Check(map[string]any{"count": json.Number("9007199254740993")}); err != nil || got["count"] != int64(9007199254740993) {
		t.Errorf("a large integer: %v, %v", got, err)
	}
	got, err := schema.Check(map[string]any{"name": "\xff"})
	if !errors.Is(err, broker.ErrInvalidRequest) {
		t.Errorf("broken UTF-8: %v, %v", got, err)
	}
}

func TestBlueprintValidate(t *testing.T) {
	t.Parallel()
	if err := blueprint().Validate(); err != nil {
		t.Fatal(err)
	}
	parameter := func(p broker.Parameter) func(*broker.BlueprintVersion) {
		return func(b *broker.BlueprintVersion) { b.Schema = broker.ParameterSchema{p} }
	}
	many := make(broker.ParameterSchema, 65)
	for name, test := range map[string]struct {
		change func(*broker.BlueprintVersion)
		fields string
	}{
		"nothing at all": {func(b *broker.BlueprintVersion) { *b = broker.BlueprintVersion{} },
			"blueprint.name blueprint.version xr.apiVersion xr.kind xr.spec providerConfig.apiVersion providerConfig.kind providerConfig.spec provider injection"},
		"a version with a line end":     {func(b *broker.BlueprintVersion) { b.Ref.Version = "1\n" }, "blueprint.version"},
		"the core group":                {func(b *broker.BlueprintVersion) { b.XR.APIVersion = "v1" }, "xr.apiVersion"},
		"a kind in lower case":          {func(b *broker.BlueprintVersion) { b.XR.Kind = "node" }, "xr.kind"},
		"a placeholder for nothing":     {func(b *broker.BlueprintVersion) { b.XR.Spec = []byte(`{"a":["${parameters.sise}"]}`) }, "xr.spec"},
		"a variable that is none":       {func(b *broker.BlueprintVersion) { b.ProviderConfig.Spec = []byte(`{"${resource.uid}":1}`) }, "providerConfig.spec"},
		"a spec that is a list":         {func(b *broker.BlueprintVersion) { b.XR.Spec = []byte(`[]`) }, "xr.spec"},
		"a spec that ends early":        {func(b *broker.BlueprintVersion) { b.XR.Spec = []byte(`{"a":`) }, "xr.spec"},
		"an unknown injection":          {func(b *broker.BlueprintVersion) { b.Injection = "pigeon" }, "injection"},
		"a negative deadline":           {func(b *broker.BlueprintVersion) { b.Deadline = -1 }, "deadline"},
		"an endless deadline":           {func(b *broker.BlueprintVersion) { b.Deadline = 1 << 60 }, "deadline"},
		"too many parameters":           {func(b *broker.BlueprintVersion) { b.Schema = many }, "schema"},
		"a parameter without name":      {parameter(broker.Parameter{Type: broker.TypeString}), "schema[0].name"},
		"a parameter that is a list":    {parameter(broker.Parameter{Name: "a", Type: "array"}), "schema[0].type"},
		"a required one with a default": {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Required: true, Default: "x"}), "schema[0].default"},
		"a default of another type":     {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Default: 1}), "schema[0].default"},
		"a default out of bounds":       {parameter(broker.Parameter{Name: "a", Type: broker.TypeInteger, Default: 1, Minimum: ptr(2.0)}), "schema[0].default"},
		"a default not of the enum":     {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Default: "x", Enum: []any{"y"}}), "schema[0].default"},
		"an enum of another type":       {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Enum: []any{"x", 1}}), "schema[0].enum[1]"},
		"a large enum":                  {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Enum: make([]any, 129)}), "schema[0].enum"},
		"bounds on a string":            {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Minimum: ptr(1.0)}), "schema[0]"},
		"bounds that leave nothing":     {parameter(broker.Parameter{Name: "a", Type: broker.TypeNumber, Minimum: ptr(2.0), Maximum: ptr(1.0)}), "schema[0].maximum"},
		"a bound that is no number":     {parameter(broker.Parameter{Name: "a", Type: broker.TypeNumber, Minimum: ptr(math.NaN())}), "schema[0].minimum"},
		"a pattern on a number":         {parameter(broker.Parameter{Name: "a", Type: broker.TypeNumber, Pattern: "x"}), "schema[0]"},
		"a negative length":             {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, MaxLength: ptr(-1)}), "schema[0].maxLength"},
		"a pattern that does not parse": {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Pattern: "("}), "schema[0].pattern"},
		"a pattern that breaks out":     {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Pattern: "a)|(b"}), "schema[0].pattern"},
		"a pattern that quotes the end": {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Pattern: `\Qa`}), "schema[0].pattern"},
		"a long pattern":                {parameter(broker.Parameter{Name: "a", Type: broker.TypeString, Pattern: strings.Repeat("a", 513)}), "schema[0].pattern"},
		"a name twice": {func(b *broker.BlueprintVersion) {
			b.Schema = broker.ParameterSchema{{Name: "a", Type: broker.TypeString}, {Name: "a", Type: broker.TypeBoolean}}
		}, "schema[1].name"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			b := blueprint()
			test.change(&b)
			err := b.Validate()
			wantError(t, err, broker.ErrInvalidRequest)
			if got := fieldsOf(err); got != test.fields {
				t.Errorf("fields %q, want %q; the error is %v", got, test.fields, err)
			}
		})
	}
}

// FuzzCheckParameters: for any input, the answer is an error or values of the declared
// types that pass a second check unchanged.
func FuzzCheckParameters(f *testing.F) {
	for _, seed := range []string{`{}`, `{"name":"abc"}`, `{"count":1e3,"zone":1}`, `{"ratio":-0.0}`, `{"x":[]}`, `{"spare":null}`} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		var given map[string]any
		if json.Unmarshal(data, &given) != nil {
			return
		}
		checked, err := schema.Check(given)
		if err != nil {
			if !errors.Is(err, broker.ErrInvalidRequest) {
				t.Fatalf("%s: %v", data, err)
			}
			return
		}
		again, err := schema.Check(checked)
		if err != nil || !reflect.DeepEqual(again, checked) {
			t.Fatalf("%s: %v, and again %v, %v", data, checked, again, err)
		}
	})
}
