package archive

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// withStatus returns a stored body with the status of another. It decodes and
// encodes the result, so that it has the stored form.
func withStatus(v *kind.Version, body, from []byte) ([]byte, error) {
	if v.DecodeAll != nil {
		return withConvertedStatus(v, body, from)
	}
	var old, fields map[string]json.RawMessage
	if err := json.Unmarshal(from, &old); err != nil {
		return nil, fmt.Errorf("keep status: %w", err)
	}
	status, ok := old["status"]
	if !ok {
		return body, nil
	}
	if err := json.Unmarshal(body, &fields); err != nil {
		return nil, fmt.Errorf("keep status: %w", err)
	}
	fields["status"] = status
	out := append([]byte(`{"metadata":`), fields["metadata"]...)
	for _, name := range slices.Sorted(maps.Keys(fields)) {
		if name == "metadata" {
			continue
		}
		quoted, err := json.Marshal(name)
		if err != nil {
			return nil, fmt.Errorf("keep status: %w", err)
		}
		out = append(append(append(append(out, ','), quoted...), ':'), fields[name]...)
	}
	obj, err := v.Decode(append(out, '}'), "")
	if err != nil {
		return nil, fmt.Errorf("keep status: %w", err)
	}
	return v.Encode(obj)
}

// withConvertedStatus is withStatus for a kind whose bodies may be in different versions.
func withConvertedStatus(v *kind.Version, body, from []byte) ([]byte, error) {
	objects, err := v.DecodeAll([]object.Object{{Body: body}, {Body: from}})
	if err != nil {
		return nil, fmt.Errorf("keep status: %w", err)
	}
	made, ok := objects[0].(*unstructured.Unstructured)
	old, okOld := objects[1].(*unstructured.Unstructured)
	if !ok || !okOld {
		return nil, fmt.Errorf("keep status: %T is not a custom object", objects[0])
	}
	if status, has := old.Object["status"]; has {
		made.Object["status"] = status
	}
	return v.Encode(made)
}
