package openapi

import (
	"slices"

	"k8s.io/apimachinery/pkg/runtime/schema"
	builderutil "k8s.io/kube-openapi/pkg/builder3/util"
	"k8s.io/kube-openapi/pkg/openapiconv"
	"k8s.io/kube-openapi/pkg/spec3"
	"k8s.io/kube-openapi/pkg/validation/spec"
)

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
