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

// protoV2 turns a v2 document into protobuf, a chunk at a time.
//
// The converter needs some fifteen times the size of its input, so giving it
// the whole document would take as much memory as the rest of the server. But
// encoded protobuf messages that are joined read as one message with the fields
// of all: lists are appended, messages inside are joined the same way. So each
// chunk is converted as a document with a few paths or definitions, and the
// results are put one after the other.
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

	// The first chunk is all but these two. Every chunk has the fields that a
	// document must have, which later ones only repeat.
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
