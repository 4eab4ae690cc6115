package custom

import (
	"errors"
	"strings"
	"testing"
	"time"

	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

var now = time.Date(2026, 9, 1, 12, 0, 0, 0, time.UTC)

// widgets uses every feature: two different versions, defaults, an enum, a rule, an embedded
// object, columns, status, scale, a selectable field.
const widgets = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: widgets.example.com
spec:
  group: example.com
  scope: Namespaced
  names: {plural: widgets, kind: Widget, shortNames: [wd], categories: [all]}
  versions:
  - name: v1beta1
    served: true
    storage: false
    deprecated: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec:
            type: object
            properties:
              color: {type: string}
              size: {type: integer}
              legacy: {type: string}
  - name: v1
    served: true
    storage: true
    subresources:
      status: {}
      scale: {specReplicasPath: .spec.replicas, statusReplicasPath: .status.replicas, labelSelectorPath: .status.selector}
    selectableFields: [{jsonPath: .spec.color}]
    additionalPrinterColumns:
    - {name: Color, type: string, jsonPath: .spec.color}
    - {name: Size, type: integer, jsonPath: .spec.size, priority: 1}
    schema:
      openAPIV3Schema:
        type: object
        required: [spec]
        properties:
          spec:
            type: object
            required: [size]
            x-kubernetes-validations:
            - {rule: "self.size <= self.limit", message: "size is over the limit", fieldPath: .size}
            properties:
              color: {type: string, enum: [red, green], default: red}
              size: {type: integer, minimum: 1}
              limit: {type: integer, default: 10}
              replicas: {type: integer}
              free: {type: object, x-kubernetes-preserve-unknown-fields: true}
              template: {type: object, x-kubernetes-embedded-resource: true, x-kubernetes-preserve-unknown-fields: true}
              ports:
                type: array
                x-kubernetes-list-type: map
                x-kubernetes-list-map-keys: [name]
                items: {type: object, required: [name], properties: {name: {type: string}, port: {type: integer, default: 80}}}
          status:
            type: object
            properties:
              replicas: {type: integer}
              selector: {type: string}
              phase: {type: string, enum: [Ready, Waiting]}
`

// plain has one version, no defaults, cluster scope.
const plain = `
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: gears.example.com
spec:
  group: example.com
  scope: Cluster
  names: {plural: gears, kind: Gear}
  versions:
  - name: v1
    served: true
    storage: true
    schema:
      openAPIV3Schema:
        type: object
        properties:
          spec: {type: object, properties: {teeth: {type: integer}}}
`

// parse decodes a definition as in a client's request.
func parse(t *testing.T, text string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	v := Definition().Versions[0]
	obj, err := decodeRequest(v, text, false)
	if err != nil {
		t.Fatalf("read definition: %v", err)
	}
	return obj.(*apiextensionsv1.CustomResourceDefinition)
}

// edit replaces text in a definition, and fails if the text is missing.
func edit(t *testing.T, text string, pairs ...string) string {
	t.Helper()
	for i := 0; i < len(pairs); i += 2 {
		if !strings.Contains(text, pairs[i]) {
			t.Fatalf("no %q to replace", pairs[i])
		}
		text = strings.Replace(text, pairs[i], pairs[i+1], 1)
	}
	return text
}

// create takes a definition through creation and acceptance.
func create(t *testing.T, text string) *apiextensionsv1.CustomResourceDefinition {
	t.Helper()
	crd := parse(t, text)
	s := Definition().Versions[0].Strategy
	if _, errs := s.Create(t.Context(), crd); len(errs) > 0 {
		t.Fatalf("definition is not valid: %v", errs)
	}
	status, changed := Accept(crd, nil, now)
	if !changed {
		t.Fatal("nothing to accept")
	}
	crd.Status = status
	return crd
}

// serve makes the kind of a stored definition.
func serve(t *testing.T, text string) *kind.Kind {
	t.Helper()
	return serveIn(t, NewCache(1<<20), create(t, text))
}

func serveIn(t *testing.T, cache *Cache, crd *apiextensionsv1.CustomResourceDefinition) *kind.Kind {
	t.Helper()
	body, err := object.Encode(crd)
	if err != nil {
		t.Fatal(err)
	}
	header, err := Header(body, "7")
	if err != nil {
		t.Fatal(err)
	}
	k, err := Stored(header, body, cache, nil)
	if err != nil {
		t.Fatal(err)
	}
	return k
}

func pick(t *testing.T, k *kind.Kind, name string) *kind.Version {
	t.Helper()
	for _, v := range k.Versions {
		if v.GVK.Version == name {
			return v
		}
	}
	t.Fatalf("%s has no version %s", k.Name, name)
	return nil
}

// decodeRequest reads YAML as the handlers do.
func decodeRequest(v *kind.Version, text string, strict bool) (runtime.Object, error) {
	for _, info := range v.Wire.Serializer.SupportedMediaTypes() {
		if info.MediaType != runtime.ContentTypeYAML {
			continue
		}
		s := info.Serializer
		if strict {
			s = info.StrictSerializer
		}
		gvk := v.GVK
		obj, _, err := v.Wire.Serializer.DecoderToVersion(s, gvk.GroupVersion()).Decode([]byte(text), &gvk, v.New())
		return obj, err
	}
	return nil, errors.New("no YAML")
}

// request reads an object that must be well formed.
func request(t *testing.T, v *kind.Version, text string) *unstructured.Unstructured {
	t.Helper()
	obj, err := decodeRequest(v, text, false)
	if err != nil {
		t.Fatal(err)
	}
	return obj.(*unstructured.Unstructured)
}

// widget is a request body with this spec and what else follows.
func widget(version, rest string) string {
	return "apiVersion: example.com/" + version + "\nkind: Widget\nmetadata: {name: w, namespace: default}\n" + rest
}

// paths are the fields that errors are about, with their types.
func paths(errs field.ErrorList) []string {
	var out []string
	for _, e := range errs {
		out = append(out, e.Field+": "+e.Type.String())
	}
	return out
}

func has(errs field.ErrorList, fieldName, detail string) bool {
	for _, e := range errs {
		if e.Field == fieldName && strings.Contains(e.Error(), detail) {
			return true
		}
	}
	return false
}

func at(d time.Duration) metav1.Time { return metav1.NewTime(now.Add(d)) }
