package openapi

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"hash"
	"io"
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

// headV2 returns the fields of a v2 document but for paths and definitions.
func (b *builder) headV2() (map[string]json.RawMessage, error) {
	head := spec.Swagger{SwaggerProps: spec.SwaggerProps{
		Swagger:             "2.0",
		Info:                b.info(),
		SecurityDefinitions: spec.SecurityDefinitions{bearer: bearerScheme()},
		Security:            []map[string][]string{{bearer: {}}},
	}}
	text, err := head.MarshalJSON()
	if err != nil {
		return nil, fmt.Errorf("encode the v2 document: %w", err)
	}
	var fields map[string]json.RawMessage
	err = json.Unmarshal(text, &fields)
	delete(fields, "paths")
	delete(fields, "definitions")
	return fields, err
}

// partV2 is the share of one group version in the v2 document, each list in the order of names.
type partV2 struct{ paths, definitions []entryV2 }

type entryV2 struct {
	name string
	text json.RawMessage
}

// eachV2 builds the parts of all group versions, one after the other: together they would take
// several times the memory of the document. Definitions that several groups share are in the first.
func (s *Service) eachV2(b *builder, visit func(*partV2)) {
	done := map[string]bool{}
	for _, gv := range s.groupVersions() {
		p, err := b.part(gv, s.groups[gv])
		if err == nil {
			var encoded *partV2
			if encoded, err = encodeV2(p, done); err == nil {
				visit(encoded)
			}
		}
		if err != nil {
			logBroken(gv, err)
		}
	}
}

// encodeV2 encodes a part without the definitions that are done.
func encodeV2(p *part, done map[string]bool) (*partV2, error) {
	out := &partV2{}
	for _, path := range slices.Sorted(maps.Keys(p.paths)) {
		text, err := p.paths[path].MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode path %s: %w", path, err)
		}
		out.paths = append(out.paths, entryV2{path, text})
	}
	for _, name := range slices.Sorted(maps.Keys(p.schemas)) {
		if done[name] {
			continue
		}
		converted, err := schemaV2(p.schemas[name])
		if err != nil {
			return nil, fmt.Errorf("convert definition %s: %w", name, err)
		}
		text, err := converted.MarshalJSON()
		if err != nil {
			return nil, fmt.Errorf("encode definition %s: %w", name, err)
		}
		out.definitions = append(out.definitions, entryV2{name, text})
	}
	for _, e := range out.definitions {
		done[e.name] = true
	}
	return out, nil
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

// writerV2 writes packed JSON into memory, so that its writes cannot fail.
type writerV2 struct {
	packed bytes.Buffer
	gz     *gzip.Writer
	hash   hash.Hash // of what was written
	some   bool      // an entry was written
}

func newWriterV2() *writerV2 {
	w := &writerV2{hash: sha256.New()}
	w.gz, _ = gzip.NewWriterLevel(&w.packed, gzip.BestSpeed) // the level is a constant
	return w
}

func (w *writerV2) write(text []byte) {
	_, _ = w.gz.Write(text)
	_, _ = w.hash.Write(text)
}

// entry writes a field of an object.
func (w *writerV2) entry(e entryV2) {
	if w.some {
		w.write([]byte{','})
	}
	w.some = true
	name, _ := json.Marshal(e.name) // it is a string
	w.write(append(name, ':'))
	w.write(e.text)
}

// copy writes what another writer has.
func (w *writerV2) copy(from *writerV2) error {
	if err := from.gz.Close(); err != nil {
		return err
	}
	r, err := gzip.NewReader(&from.packed)
	if err != nil {
		return err
	}
	_, err = io.Copy(io.MultiWriter(w.gz, w.hash), r)
	return err
}

// chunk is how many paths or definitions protoV2 converts at a time.
const chunk = 40

// protoV2 builds the v2 document in protobuf, packed, chunk paths or definitions at a time.
//
// The converter needs about fifteen times the size of its input, so the whole document
// would take as much memory as the rest of the server. Concatenated protobuf messages
// parse as one message: lists are appended, and nested messages are merged in the same
// way. So each chunk is converted as a document with a few paths or definitions, and
// the results are concatenated.
func (s *Service) protoV2(head map[string]json.RawMessage) ([]byte, error) {
	b, err := newBuilder(s.version)
	if err != nil {
		return nil, err
	}
	out := newWriterV2()
	var failed error
	add := func(document any) {
		text, err := appendProto(nil, document)
		failed = errors.Join(failed, err)
		out.write(text)
	}
	// The first chunk has everything but the two. Later chunks only repeat the required
	// fields of a document.
	first := maps.Clone(head)
	first["paths"] = json.RawMessage("{}")
	add(first)
	s.eachV2(b, func(p *partV2) {
		for i, list := range [][]entryV2{p.paths, p.definitions} {
			field := []string{"paths", "definitions"}[i]
			for some := range slices.Chunk(list, chunk) {
				entries := map[string]json.RawMessage{}
				for _, e := range some {
					entries[e.name] = e.text
				}
				part := map[string]any{"swagger": "2.0", "info": head["info"], "paths": struct{}{}}
				part[field] = entries
				add(part)
			}
		}
	})
	failed = errors.Join(failed, out.gz.Close())
	return out.packed.Bytes(), failed
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
