package object

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

var bodies = []string{
	`{"metadata":{"name":"a"}}`,
	`{"metadata":{"name":"a\"}{","labels":{"x":"\\"}},"data":{"}":"{"}}`,
	`{"metadata":{"name":"a","finalizers":["x/y"],"deletionTimestamp":"2024-01-02T03:04:05Z","deletionGracePeriodSeconds":0},"spec":{}}`,
	`{"metadata":{"name":"a","managedFields":[{"fieldsV1":{"f:a":{}}}]},"status":null}`,
	`{"metadata":{"a":1}`, `{"metadata":{"`, `{"metadata":{"a":"\`, `{"metadata":{"a":[}]}`, ``,
}

// FuzzSplit: the parts joined are the body; for a JSON body, both parts are JSON.
func FuzzSplit(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body))
	}
	f.Fuzz(func(t *testing.T, body []byte) {
		metadata, rest, err := Split(body)
		if err != nil {
			if json.Valid(body) && bytes.HasPrefix(body, []byte(head+`"`)) {
				t.Fatalf("Split(%q): %v", body, err)
			}
			return
		}
		if joined := head[:len(head)-1] + string(metadata) + string(rest); joined != string(body) {
			t.Fatalf("Split(%q) = %q, %q", body, metadata, rest)
		}
		if json.Valid(body) && (!json.Valid(metadata) || (rest[0] != '}' && rest[0] != ',') && !space(rest[0])) {
			t.Fatalf("Split(%q) = %q, %q", body, metadata, rest)
		}
	})
}

func space(c byte) bool { return c == ' ' || c == '\t' || c == '\n' || c == '\r' }

// FuzzWithMeta: the new metadata reads back as written, and the rest of the body is
// unchanged.
func FuzzWithMeta(f *testing.F) {
	for _, body := range bodies {
		f.Add([]byte(body), "name", "example.com/f", int64(3))
	}
	f.Fuzz(func(t *testing.T, body []byte, name, finalizer string, generation int64) {
		m, err := ParseMeta(body)
		if err != nil || !json.Valid(body) {
			return
		}
		m.Name, m.Generation, m.Finalizers = printable(name), generation, []string{printable(finalizer)}
		m.ResourceVersion = "17"
		kept := bytes.Clone(body)
		out, err := WithMeta(body, m)
		if err != nil {
			t.Fatalf("WithMeta(%q): %v", body, err)
		}
		if !bytes.Equal(body, kept) || !json.Valid(out) {
			t.Fatalf("WithMeta(%q) = %q, input now %q", kept, out, body)
		}
		_, rest, _ := Split(body)
		if _, restOut, err := Split(out); err != nil || !bytes.Equal(rest, restOut) {
			t.Fatalf("rest %q became %q (%v)", rest, restOut, err)
		}
		checkMeta(t, out, m)
	})
}

// printable makes a string that JSON can carry.
func printable(s string) string { return strings.ToValidUTF8(s, "?") }

// checkMeta compares metadata as JSON, as clients see it.
func checkMeta(t *testing.T, body []byte, want metav1.ObjectMeta) {
	t.Helper()
	got, err := ParseMeta(body)
	if err != nil {
		t.Fatalf("ParseMeta(%q): %v", body, err)
	}
	want.ResourceVersion = ""
	a, _ := json.Marshal(got)
	b, _ := json.Marshal(want)
	if !bytes.Equal(a, b) {
		t.Fatalf("metadata %s, want %s", a, b)
	}
}

// FuzzAppendWire: an object read from its wire form and encoded again is the original
// body.
func FuzzAppendWire(f *testing.F) {
	f.Add("a", "key", "value", int64(1))
	f.Add("}{", `"`, `\`, int64(1)<<62)
	f.Fuzz(func(t *testing.T, name, key, value string, revision int64) {
		body, err := Encode(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"name": printable(name)}, "data": map[string]any{printable(key): printable(value)},
		}})
		if err != nil {
			t.Fatal(err)
		}
		wire := AppendWire(nil, WirePrefix(widgetKind), body, revision)
		u := &unstructured.Unstructured{}
		if err := u.UnmarshalJSON(wire); err != nil {
			t.Fatalf("%s: %v", wire, err)
		}
		version := Object{Revision: revision}.ResourceVersion()
		if u.GetResourceVersion() != version || u.GroupVersionKind() != widgetKind {
			t.Fatalf("read back version %q of %v", u.GetResourceVersion(), u.GroupVersionKind())
		}
		back, err := Encode(u)
		if err != nil || !bytes.Equal(back, body) {
			t.Fatalf("encoded again: %s (%v), was %s", back, err, body)
		}
		again, err := DecodeUnstructured(body, version, widgetKind)
		if err != nil || !reflect.DeepEqual(again, u) {
			t.Fatalf("decoded: %v (%v), want %v", again, err, u)
		}
	})
}

// FuzzParseResourceVersion: formatting an accepted version returns the input.
func FuzzParseResourceVersion(f *testing.F) {
	for _, s := range []string{"", "0", "1", "-0", "+1", "01", "9223372036854775807", "9223372036854775808", "1_0", "٣"} {
		f.Add(s)
	}
	f.Fuzz(func(t *testing.T, s string) {
		n, err := ParseResourceVersion(s)
		if err == nil && s != "" && (Object{Revision: n}).ResourceVersion() != s {
			t.Fatalf("ParseResourceVersion(%q) = %d", s, n)
		}
		if err != nil && !Is(err, BadRequest) {
			t.Fatalf("ParseResourceVersion(%q): %v is not a BadRequest", s, err)
		}
	})
}
