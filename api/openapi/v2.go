package openapi

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"

	openapiv2 "github.com/google/gnostic-models/openapiv2"
	"google.golang.org/protobuf/proto"
	"k8s.io/kube-openapi/pkg/schemamutation"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

// bearer is the name of the authentication scheme in the documents.
const bearer = "BearerToken"

func bearerScheme() *spec.SecurityScheme {
	return &spec.SecurityScheme{SecuritySchemeProps: spec.SecuritySchemeProps{
		Type: "apiKey", In: "header", Name: "authorization", Description: "Bearer token",
	}}
}

func (b *builder) info() *spec.Info {
	return &spec.Info{InfoProps: spec.InfoProps{Title: "Exeunt", Version: b.version}}
}

// swagger returns a v2 document without paths.
func (b *builder) swagger() *spec.Swagger {
	return &spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:             "2.0",
		Info:                b.info(),
		Paths:               &spec.Paths{Paths: map[string]spec.PathItem{}},
		Definitions:         spec.Definitions{},
		SecurityDefinitions: spec.SecurityDefinitions{bearer: bearerScheme()},
		Security:            []map[string][]string{{bearer: {}}},
	}}
}

// addPart adds a group version to a v2 document. Definitions that several groups share
// are equal in each.
func addPart(all *spec.Swagger, p *part) error {
	maps.Copy(all.Paths.Paths, p.paths)
	for name, s := range p.schemas {
		if _, done := all.Definitions[name]; done {
			continue
		}
		converted, err := schemaV2(s)
		if err != nil {
			return fmt.Errorf("convert definition %s: %w", name, err)
		}
		all.Definitions[name] = *converted
	}
	return nil
}

// schemaV2 converts a definition to v2. It drops what v2 cannot express, and defaults,
// which Kubernetes does not publish in v2.
func schemaV2(s *spec.Schema) (*spec.Schema, error) {
	if old, ok := s.Extensions[extV2Schema]; ok {
		return decodeSchema(old)
	}
	if free, _ := s.Extensions.GetBool(extPreserve); free {
		// kubectl would refuse fields that are not listed. As in Kubernetes, all that is
		// left are the extensions that the server adds.
		out := new(spec.Schema).Typed("object", "")
		for _, name := range []string{extGVK, extSelectable} {
			if value, ok := s.Extensions[name]; ok {
				out.AddExtension(name, value)
			}
		}
		return out, nil
	}
	w := schemamutation.Walker{SchemaCallback: narrow, RefCallback: refV2}
	return w.WalkSchema(s), nil
}

// decodeSchema decodes a schema from the value of an extension.
func decodeSchema(value any) (*spec.Schema, error) {
	text, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	var s spec.Schema
	return &s, json.Unmarshal(text, &s)
}

func refV2(ref *spec.Ref) *spec.Ref {
	if ref.String() == "" {
		return ref
	}
	out := spec.MustCreateRef(prefixV2 + refName(ref.String()))
	return &out
}

// narrow copies one schema without what v2 cannot express. A value that may be null or
// have unknown fields becomes a value of any type: v2 clients treat type, items and
// properties as complete.
func narrow(s *spec.Schema) *spec.Schema {
	out := *s
	out.AllOf, out.OneOf, out.AnyOf, out.Not = nil, nil, nil, nil
	out.Default = nil
	free, _ := s.Extensions.GetBool(extPreserve)
	if s.Nullable || free {
		out.Items, out.Properties = nil, nil
	}
	switch {
	case s.Nullable, free && s.Type.Contains("object"), out.Items == nil && s.Type.Contains("array"):
		out.Type = nil
	}
	out.Nullable = false
	out.Required = slices.DeleteFunc(slices.Clone(s.Required), func(field string) bool {
		p, ok := s.Properties[field]
		return ok && p.Nullable
	})
	return &out
}

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
