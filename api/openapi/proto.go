package openapi

import (
	"encoding/json"
	"maps"
	"slices"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
)

// chunk is how many paths or definitions protoV2 converts at a time.
const chunk = 40

// protoV2 converts a v2 document to protobuf, chunk paths or definitions at a time.
//
// The converter needs about fifteen times the size of its input, so the whole document
// would take as much memory as the rest of the server. Concatenated protobuf messages
// parse as one message: lists are appended, and nested messages are merged in the same
// way. So each chunk is converted as a document with a few paths or definitions, and
// the results are concatenated.
func protoV2(text []byte) ([]byte, error) {
	var whole map[string]json.RawMessage
	if err := json.Unmarshal(text, &whole); err != nil {
		return nil, err
	}
	large := map[string]map[string]json.RawMessage{"paths": {}, "definitions": {}}
	for field := range large {
		entries := map[string]json.RawMessage{}
		if err := json.Unmarshal(whole[field], &entries); err != nil {
			return nil, err
		}
		large[field] = entries
	}

	// The first chunk has everything but these two. Later chunks only repeat the
	// required fields of a document.
	delete(whole, "definitions")
	whole["paths"] = json.RawMessage("{}")
	out, err := appendProto(nil, whole)
	if err != nil {
		return nil, err
	}
	for _, field := range []string{"paths", "definitions"} {
		names := slices.Sorted(maps.Keys(large[field]))
		for some := range slices.Chunk(names, chunk) {
			entries := map[string]json.RawMessage{}
			for _, name := range some {
				entries[name] = large[field][name]
			}
			part := map[string]any{"swagger": "2.0", "info": whole["info"], "paths": struct{}{}}
			part[field] = entries
			if out, err = appendProto(out, part); err != nil {
				return nil, err
			}
		}
	}
	return out, nil
}

// appendProto converts a document and appends it.
func appendProto(out []byte, document any) ([]byte, error) {
	text, err := json.Marshal(document)
	if err != nil {
		return nil, err
	}
	parsed, err := openapiv2.ParseDocument(text)
	if err != nil {
		return nil, err
	}
	return proto.MarshalOptions{}.MarshalAppend(out, parsed)
}
