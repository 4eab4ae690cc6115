package openapi

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"sort"
	"sync"

	"k8s.io/apimachinery/pkg/runtime/schema"
	builderutil "k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/handler3"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"

	"github.com/exeunt/exeunt/kind"
)

// builder holds the inputs of the documents. It lives for one request.
type builder struct {
	version    string
	builtin    definitions
	names      map[schema.GroupVersionKind]string
	parameters map[string][]spec.Parameter // by verb
}

func newBuilder(version string) (*builder, error) {
	builtin, err := loadBuiltin()
	if err != nil {
		return nil, err
	}
	b := &builder{version: version, builtin: builtin, names: builtin.names()}
	b.parameters, err = queryParameters(builtin)
	return b, err
}

// part is the share of one group version in a document: its paths, in v2 form, and the
// definitions that they need, in v3 form.
type part struct {
	gv      schema.GroupVersion
	paths   map[string]spec.PathItem
	schemas definitions
}

// part builds the part of a group version.
func (b *builder) part(gv schema.GroupVersion, versions []*kind.Version) (*part, error) {
	p := &part{gv: gv, paths: map[string]spec.PathItem{}, schemas: definitions{}}
	all := maps.Clone(b.builtin)
	needed := []string{nameStatus, namePatch, metaV1 + "DeleteOptions"}
	for _, v := range versions {
		m := b.model(v, all)
		b.addPaths(p.paths, v, m)
		needed = append(needed, m.object)
		if !v.Kind.Ephemeral {
			needed = append(needed, m.list)
		}
		if v.Scale != nil {
			needed = append(needed, nameScale)
		}
	}
	for _, name := range needed {
		if err := all.reach(name, p.schemas); err != nil {
			return nil, fmt.Errorf("describe %s: %w", gv, err)
		}
	}
	return p, nil
}

// model names the definitions of a kind's objects and lists.
type model struct {
	object, list string
	custom       bool
}

// model finds the definitions of a kind. It creates those that are not built in and
// adds them to all.
func (b *builder) model(v *kind.Version, all definitions) model {
	object, builtin := b.names[v.GVK]
	if !builtin || v.Schema != nil {
		builtin, object = false, modelName(v.GVK)
		all[object] = b.customObject(v)
	}
	m := model{object: object, custom: !builtin}
	if v.Kind.Ephemeral {
		return m
	}
	listGVK := v.GVK.GroupVersion().WithKind(v.Kind.ListName)
	if m.list, builtin = b.names[listGVK]; !builtin {
		m.list = modelName(listGVK)
		all[m.list] = b.customList(v, listGVK, object)
	}
	return m
}

// documentV3 returns a group version's document, or nil if there is none.
func (s *Service) documentV3(gv schema.GroupVersion) (*document, error) {
	if len(s.groups[gv]) == 0 || s.v3[gv] != nil {
		return s.v3[gv], nil
	}
	b, err := newBuilder(s.version)
	if err != nil {
		return nil, err
	}
	if s.custom(gv) {
		return s.buildV3(b, gv)
	}
	// All built-in ones at once: to load the definitions takes longer than to build the documents.
	for _, other := range s.groupVersions() {
		if s.v3[other] == nil && !s.custom(other) {
			if _, broken := s.buildV3(b, other); other == gv {
				err = broken
			} else if broken != nil {
				logBroken(other, broken)
			}
		}
	}
	return s.v3[gv], err
}

func (s *Service) buildV3(b *builder, gv schema.GroupVersion) (*document, error) {
	p, err := b.part(gv, s.groups[gv])
	if err != nil {
		return nil, err
	}
	text, err := b.openapi(p).MarshalJSON() // json.Marshal would copy it twice
	if err != nil {
		return nil, fmt.Errorf("encode the document of %s: %w", gv, err)
	}
	d, err := newDocument("/openapi/v3/"+documentPath(gv), text, handler3.ToV3ProtoBinary)
	if err != nil {
		return nil, err
	}
	if d.etag, err = s.fingerprint(gv); err != nil {
		return nil, err
	}
	if s.custom(gv) {
		s.forgetSome()
	}
	s.v3[gv] = d
	return d, nil
}

// customKept is how many documents of custom kinds are kept.
const customKept = 64

// forgetSome drops documents of custom kinds until there is room for one.
func (s *Service) forgetSome() {
	kept := 0
	for gv := range s.v3 {
		if !s.custom(gv) {
			continue
		}
		if kept++; kept >= customKept {
			delete(s.v3, gv)
		}
	}
}

// custom reports whether clients have defined all kinds of a group version.
func (s *Service) custom(gv schema.GroupVersion) bool {
	return !slices.ContainsFunc(s.groups[gv], func(v *kind.Version) bool { return v.Kind.Definition == "" })
}

// fingerprint is the hash of a document, without the document: it is made from the kinds and this
// program.
func (s *Service) fingerprint(gv schema.GroupVersion) (string, error) {
	text := []byte(s.version + packedHash())
	for _, v := range s.groups[gv] {
		text = append(append(text, 0), v.Kind.Storage+v.Kind.Fingerprint...)
		if v.Kind.Fingerprint == "" && v.Schema != nil {
			described, err := v.Schema().MarshalJSON()
			if err != nil {
				return "", fmt.Errorf("encode the schema of %s: %w", v.GVK, err)
			}
			text = append(text, described...)
		}
	}
	return hashOf(text), nil
}

var packedHash = sync.OnceValue(func() string { return hashOf(packed) })

// documentIndex lists the v3 documents with their hashes. It builds none of them.
func (s *Service) documentIndex() (*document, error) {
	if s.index != nil {
		return s.index, nil
	}
	index := handler3.OpenAPIV3Discovery{Paths: map[string]handler3.OpenAPIV3DiscoveryGroupVersion{}}
	for _, gv := range s.groupVersions() {
		hash, err := s.fingerprint(gv)
		if err != nil {
			return nil, err
		}
		d := &document{url: "/openapi/v3/" + documentPath(gv), etag: hash}
		index.Paths[documentPath(gv)] = handler3.OpenAPIV3DiscoveryGroupVersion{ServerRelativeURL: d.hashed()}
	}
	text, err := json.Marshal(index)
	if err != nil {
		return nil, err
	}
	s.index, err = newDocument("/openapi/v3", text, nil)
	return s.index, err
}

// documentV2 returns the single document of all group versions.
func (s *Service) documentV2() (*document, error) {
	if s.v2 != nil {
		return s.v2, nil
	}
	b, err := newBuilder(s.version)
	if err != nil {
		return nil, err
	}
	head, err := b.headV2()
	if err != nil {
		return nil, err
	}
	all, paths, definitions := newWriterV2(), newWriterV2(), newWriterV2()
	s.eachV2(b, func(p *partV2) {
		for _, e := range p.paths {
			paths.entry(e)
		}
		for _, e := range p.definitions {
			definitions.entry(e)
		}
	})
	all.write([]byte{'{'})
	for _, name := range slices.Sorted(maps.Keys(head)) {
		all.entry(entryV2{name, head[name]})
	}
	all.write([]byte(`,"paths":{`))
	err = all.copy(paths)
	all.write([]byte(`},"definitions":{`))
	err = errors.Join(err, all.copy(definitions))
	all.write([]byte(`}}`))
	if err := errors.Join(err, all.gz.Close()); err != nil {
		return nil, fmt.Errorf("encode the v2 document: %w", err)
	}
	s.v2 = &document{
		url: "/openapi/v2", etag: fmt.Sprintf("%X", all.hash.Sum(nil)), json: all.packed.Bytes(),
		toProto: func([]byte) ([]byte, error) { return s.protoV2(head) },
	}
	return s.v2, nil
}

// logBroken logs a group version that is left out. A kind whose schema cannot be
// published must not prevent the documents of the others.
func logBroken(gv schema.GroupVersion, err error) {
	slog.Error("group version has no OpenAPI", "groupVersion", gv.String(), "error", err)
}

// groupVersions lists the group versions in a fixed order.
func (s *Service) groupVersions() []schema.GroupVersion {
	list := slices.Collect(maps.Keys(s.groups))
	sort.Slice(list, func(i, j int) bool { return list[i].String() < list[j].String() })
	return list
}

// openapi builds the v3 document of one group version.
func (b *builder) openapi(p *part) *spec3.OpenAPI {
	schemas := make(map[string]*spec.Schema, len(p.schemas))
	for name, s := range p.schemas {
		schemas[name] = schemaV3(s, p.gv)
	}
	paths := openapiconv.ConvertPaths(&spec.Paths{Paths: p.paths})
	for _, path := range paths.Paths {
		// The conversion drops that a body is required.
		for _, op := range []*spec3.Operation{path.Post, path.Put, path.Patch} {
			if op != nil && op.RequestBody != nil {
				op.RequestBody.Required = true
			}
		}
	}
	return &spec3.OpenAPI{
		Version: "3.0.0",
		Info:    b.info(),
		Paths:   paths,
		Components: &spec3.Components{
			Schemas: schemas,
			SecuritySchemes: spec3.SecuritySchemes{
				bearer: openapiconv.ConvertSecurityScheme(bearerScheme()),
			},
		},
	}
}

// schemaV3 converts a definition to v3. There a reference must stand alone, so one with
// a description or a default moves into an allOf.
func schemaV3(s *spec.Schema, gv schema.GroupVersion) *spec.Schema {
	out := *builderutil.WrapRefs(s)
	out.Extensions = without(out.Extensions, extV2Schema)
	if kinds := kindsOf(s); len(kinds) > 1 && registeredEverywhere(kinds[0].Kind) {
		var own []any
		for _, gvk := range kinds {
			if gvk.GroupVersion() == gv || gvk.GroupVersion() == (schema.GroupVersion{Version: "v1"}) {
				own = append(own, describeKind(gvk))
			}
		}
		out.Extensions[extGVK] = own
	}
	return &out
}

// registeredEverywhere reports whether a kind exists in every group. As in Kubernetes, each
// document names only its own group's and the core group's.
func registeredEverywhere(kind string) bool {
	return slices.Contains([]string{"DeleteOptions", "WatchEvent"}, kind)
}
