package object

import (
	"bytes"
	"encoding/json"
	"fmt"
	"sort"
	"strconv"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	exactjson "k8s.io/apimachinery/pkg/util/json"
)

// head is the beginning of every stored body.
const head = `{"metadata":{`

// Encode returns the stored form of an object, typed or unstructured. The object
// is not changed.
func Encode(obj runtime.Object) ([]byte, error) {
	if u, ok := obj.(*unstructured.Unstructured); ok {
		return encodeMap(u.Object)
	}
	accessor, err := meta.Accessor(obj)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	// Typed objects marshal in field order, with metadata first if the type is
	// blank: that makes the stored form cheap to produce.
	gvk, version := obj.GetObjectKind().GroupVersionKind(), accessor.GetResourceVersion()
	obj.GetObjectKind().SetGroupVersionKind(schema.GroupVersionKind{})
	accessor.SetResourceVersion("")
	body, err := json.Marshal(obj)
	obj.GetObjectKind().SetGroupVersionKind(gvk)
	accessor.SetResourceVersion(version)
	if err != nil {
		return nil, fmt.Errorf("encode %T: %w", obj, err)
	}
	return check(body)
}

func encodeMap(content map[string]any) ([]byte, error) {
	var buf bytes.Buffer
	metadata, _ := content["metadata"].(map[string]any)
	kept := make(map[string]any, len(metadata))
	for k, v := range metadata {
		if k != "resourceVersion" {
			kept[k] = v
		}
	}
	if err := appendField(&buf, '{', "metadata", kept); err != nil {
		return nil, err
	}
	names := make([]string, 0, len(content))
	for name := range content {
		if name != "metadata" && name != "apiVersion" && name != "kind" {
			names = append(names, name)
		}
	}
	sort.Strings(names)
	for _, name := range names {
		if err := appendField(&buf, ',', name, content[name]); err != nil {
			return nil, err
		}
	}
	buf.WriteByte('}')
	return check(buf.Bytes())
}

func appendField(buf *bytes.Buffer, before byte, name string, value any) error {
	quoted, err := json.Marshal(name)
	if err != nil {
		return fmt.Errorf("encode field %q: %w", name, err)
	}
	data, err := json.Marshal(value)
	if err != nil {
		return fmt.Errorf("encode field %q: %w", name, err)
	}
	buf.WriteByte(before)
	buf.Write(quoted)
	buf.WriteByte(':')
	buf.Write(data)
	return nil
}

// check refuses a body that AppendWire and Split cannot work on.
func check(body []byte) ([]byte, error) {
	if len(body) <= len(head) || string(body[:len(head)]) != head || body[len(head)] != '"' {
		return nil, fmt.Errorf("encode: body has no metadata at its head: %.40q", body)
	}
	return body, nil
}

// WirePrefix is the JSON before the revision, for all objects of a version.
func WirePrefix(gvk schema.GroupVersionKind) []byte {
	return append(typeHead(gvk), `"metadata":{"resourceVersion":"`...)
}

// ItemPrefix is WirePrefix for the items of a list of a built-in kind: as in Kubernetes,
// only the list itself has apiVersion and kind.
func ItemPrefix() []byte { return []byte(`{"metadata":{"resourceVersion":"`) }

func typeHead(gvk schema.GroupVersionKind) []byte {
	kind, _ := json.Marshal(gvk.Kind) // a string always marshals
	apiVersion, _ := json.Marshal(gvk.GroupVersion().String())
	return fmt.Appendf(nil, `{"kind":%s,"apiVersion":%s,`, kind, apiVersion)
}

// AppendWire appends the object's JSON as clients see it. prefix is a result of
// WirePrefix.
func AppendWire(dst, prefix, body []byte, revision int64) []byte {
	dst = append(dst, prefix...)
	dst = strconv.AppendInt(dst, revision, 10)
	dst = append(dst, '"', ',')
	return append(dst, body[len(head):]...)
}

// Split divides a stored body into the JSON of its metadata and the rest: "}", or
// "," and the other fields.
func Split(body []byte) (metadata, rest []byte, err error) {
	if _, err := check(body); err != nil {
		return nil, nil, err
	}
	start := len(head) - 1
	depth, inString := 0, false
	for i := start; i < len(body); i++ {
		switch c := body[i]; {
		case inString:
			if c == '\\' {
				i++
			} else if c == '"' {
				inString = false
			}
		case c == '"':
			inString = true
		case c == '{', c == '[':
			depth++
		case c == '}', c == ']':
			depth--
			if depth == 0 {
				if i+1 >= len(body) {
					return nil, nil, fmt.Errorf("split: body ends after its metadata")
				}
				return body[start : i+1], body[i+1:], nil
			}
		}
	}
	return nil, nil, fmt.Errorf("split: metadata does not end")
}

// ParseMeta reads the metadata of a stored body. The standard library would take "Finalizers" for "finalizers".
func ParseMeta(body []byte) (metav1.ObjectMeta, error) {
	var m metav1.ObjectMeta
	metadata, _, err := Split(body)
	if err != nil {
		return m, err
	}
	if err := exactjson.Unmarshal(metadata, &m); err != nil {
		return m, fmt.Errorf("parse metadata: %w", err)
	}
	return m, nil
}

// ParseOwners reads only the owner references of a stored body.
func ParseOwners(body []byte) ([]metav1.OwnerReference, error) {
	metadata, _, err := Split(body)
	if err != nil {
		return nil, err
	}
	var m struct {
		OwnerReferences []metav1.OwnerReference `json:"ownerReferences"`
	}
	if err := exactjson.Unmarshal(metadata, &m); err != nil {
		return nil, fmt.Errorf("parse metadata: %w", err)
	}
	return m.OwnerReferences, nil
}

// WithMeta returns the body with other metadata. The rest is kept byte by byte.
func WithMeta(body []byte, m metav1.ObjectMeta) ([]byte, error) {
	_, rest, err := Split(body)
	if err != nil {
		return nil, err
	}
	m.ResourceVersion = ""
	metadata, err := json.Marshal(m)
	if err != nil {
		return nil, fmt.Errorf("encode metadata: %w", err)
	}
	out := make([]byte, 0, len(head)+len(metadata)+len(rest))
	out = append(out, head[:len(head)-1]...)
	out = append(out, metadata...)
	return check(append(out, rest...))
}

// DecodeInto reads a stored body into a typed object.
func DecodeInto(body []byte, resourceVersion string, gvk schema.GroupVersionKind, into runtime.Object) error {
	if err := exactjson.Unmarshal(body, into); err != nil {
		return fmt.Errorf("decode %s: %w", gvk.Kind, err)
	}
	accessor, err := meta.Accessor(into)
	if err != nil {
		return fmt.Errorf("decode %s: %w", gvk.Kind, err)
	}
	accessor.SetResourceVersion(resourceVersion)
	into.GetObjectKind().SetGroupVersionKind(gvk)
	return nil
}

// DecodeUnstructured reads a stored body into a generic object, with integers
// as int64 as the Kubernetes libraries expect them.
func DecodeUnstructured(body []byte, resourceVersion string, gvk schema.GroupVersionKind) (*unstructured.Unstructured, error) {
	if _, err := check(body); err != nil {
		return nil, fmt.Errorf("decode %s: %w", gvk.Kind, err)
	}
	wire := append(typeHead(gvk), body[1:]...)
	u := &unstructured.Unstructured{}
	if err := u.UnmarshalJSON(wire); err != nil {
		return nil, fmt.Errorf("decode %s: %w", gvk.Kind, err)
	}
	u.SetResourceVersion(resourceVersion)
	return u, nil
}

// MaxDepth is how deep arrays and objects of a document may be nested. The deepest
// real documents are definitions with nested schemas: each level of a schema
// takes two levels of JSON, and 40 levels of schema are rare. Libraries that
// merge, patch and compare documents take time and memory proportional to depth
// times size, so a limit on the depth limits both.
const MaxDepth = 256

// Shape is what the cost of walking through a JSON document depends on.
type Shape struct {
	Depth    int // of nested arrays and objects
	Elements int // of all arrays
}

// Measure reads the shape of a JSON document in one pass, without decoding it.
// It stops where the document is deeper than MaxDepth, with Depth MaxDepth+1. For
// a document that is not valid JSON the shape is at least that of the part before
// the first error.
func Measure(doc []byte) Shape {
	var s Shape
	var arrays [MaxDepth + 1]bool // true: the open value at this depth is an array
	depth := 0
	for i := 0; i < len(doc); i++ {
		switch doc[i] {
		case '"':
			i = stringEnd(doc, i)
		case '{', '[':
			if depth == MaxDepth {
				s.Depth = MaxDepth + 1
				return s
			}
			depth++
			arrays[depth] = doc[i] == '['
			if arrays[depth] {
				s.Elements++
			}
			s.Depth = max(s.Depth, depth)
		case '}', ']':
			depth = max(0, depth-1)
		case ',':
			if arrays[depth] {
				s.Elements++
			}
		}
	}
	return s
}

// stringEnd is the position of the quote that ends the string at start.
func stringEnd(doc []byte, start int) int {
	for i := start + 1; ; i++ {
		next := bytes.IndexAny(doc[i:], `"\`)
		if next < 0 {
			return len(doc)
		}
		i += next
		if doc[i] == '"' {
			return i
		}
		if i++; i >= len(doc) {
			return len(doc)
		}
	}
}

// CheckDepth refuses a JSON document that is deeper than MaxDepth, without
// decoding it. It does not check the syntax.
func CheckDepth(doc []byte) error {
	if Measure(doc).Depth > MaxDepth {
		return TooDeep()
	}
	return nil
}

// TooDeep is the error for a document that is deeper than MaxDepth.
func TooDeep() error {
	return BadRequestf("the document is nested too deeply: at most %d arrays and objects may stand inside each other", MaxDepth)
}

// SpecFinalizers returns spec.finalizers of a Namespace.
func SpecFinalizers(body []byte) ([]string, error) {
	var ns struct{ Spec struct{ Finalizers []string } }
	err := json.Unmarshal(body, &ns)
	return ns.Spec.Finalizers, err
}
