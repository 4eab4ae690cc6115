package object

import (
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"
)

func TestParseResourceVersion(t *testing.T) {
	t.Parallel()
	for s, want := range map[string]int64{
		"": 0, "0": 0, "1": 1, "10": 10, "9223372036854775807": 1<<63 - 1,
	} {
		if got, err := ParseResourceVersion(s); err != nil || got != want {
			t.Errorf("ParseResourceVersion(%q) = %d, %v; want %d", s, got, err, want)
		}
	}
	for _, s := range []string{"-1", "-0", "+1", "+0", "00", "01", "1.0", "1e3", "0x1", " 1", "1 ", "1_0", "abc", "9223372036854775808"} {
		if got, err := ParseResourceVersion(s); !Is(err, BadRequest) {
			t.Errorf("ParseResourceVersion(%q) = %d, %v; want a BadRequest", s, got, err)
		}
	}
}

func TestKeyString(t *testing.T) {
	t.Parallel()
	for want, key := range map[string]Key{
		"pods/default/web":      {Kind: "pods", Namespace: "default", Name: "web"},
		"namespaces/default":    {Kind: "namespaces", Name: "default"},
		"deployments.apps/n/dd": {Kind: "deployments.apps", Namespace: "n", Name: "dd"},
	} {
		if got := key.String(); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

func TestErrors(t *testing.T) {
	t.Parallel()
	err := fmt.Errorf("write: %w", Errorf(Conflict, "version %d", 3))
	if !Is(err, Conflict) || Is(err, NotFound) || Is(nil, Conflict) || Is(fmt.Errorf("x"), Conflict) {
		t.Errorf("Is does not recognise the code of %v", err)
	}
	path := field.NewPath("metadata", "name")
	invalid := InvalidFields(field.ErrorList{field.Required(path, "say who"), field.Required(path, "say who")})
	if invalid.Code != Invalid || invalid.Message != "metadata.name: Required value: say who" || len(invalid.Fields) != 2 {
		t.Errorf("got %+v", invalid)
	}
	if empty := InvalidFields(nil); empty.Error() != "invalid" {
		t.Errorf("without fields: %q", empty.Error())
	}
}
