package archive

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	"github.com/exeunt/exeunt/kind"
)

// withStatus returns a stored body with the status of another. It decodes and
// encodes the result, so that it has the stored form.
func withStatus(v *kind.Version, body, from []byte) ([]byte, error) {
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
