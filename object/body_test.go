package object

import (
	"bytes"
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

var (
	configMapKind = corev1.SchemeGroupVersion.WithKind("ConfigMap")
	widgetKind    = schema.GroupVersionKind{Group: "example.com", Version: "v1", Kind: "Widget"}
)

func configMap() *corev1.ConfigMap {
	return &corev1.ConfigMap{
		TypeMeta:   metav1.TypeMeta{Kind: "ConfigMap", APIVersion: "v1"},
		ObjectMeta: metav1.ObjectMeta{Name: "a", Namespace: "n", ResourceVersion: "7"},
		Data:       map[string]string{"brace": `}"{\`, "html": "<&>"},
	}
}

func widget() *unstructured.Unstructured {
	return &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "example.com/v1",
		"kind":       "Widget",
		"metadata":   map[string]any{"name": "w", "resourceVersion": "9", "generation": int64(2)},
		"spec":       map[string]any{"size": int64(3), "ratio": 0.5},
		"extra":      []any{"x", nil, true},
	}}
}

func TestEncode(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		obj  runtime.Object
		want string
	}{
		"typed": {configMap(),
			`{"metadata":{"name":"a","namespace":"n"},"data":{"brace":"}\"{\\","html":"\u003c\u0026\u003e"}}`},
		"typed without anything but a name": {&corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a"}},
			`{"metadata":{"name":"a"}}`},
		"unstructured, metadata first and the rest sorted": {widget(),
			`{"metadata":{"generation":2,"name":"w"},"extra":["x",null,true],"spec":{"ratio":0.5,"size":3}}`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			before := test.obj.DeepCopyObject()
			got, err := Encode(test.obj)
			if err != nil {
				t.Fatal(err)
			}
			if string(got) != test.want {
				t.Errorf("got  %s\nwant %s", got, test.want)
			}
			if !reflect.DeepEqual(test.obj, before) {
				t.Errorf("the object changed: %+v, was %+v", test.obj, before)
			}
		})
	}
}

func TestEncodeRefuses(t *testing.T) {
	t.Parallel()
	for name, obj := range map[string]runtime.Object{
		"a list":                        &corev1.ConfigMapList{},
		"typed without metadata":        &appsv1.Deployment{},
		"unstructured without metadata": &unstructured.Unstructured{Object: map[string]any{"spec": "x"}},
		"metadata that is no object":    &unstructured.Unstructured{Object: map[string]any{"metadata": "x"}},
		"only a resourceVersion":        &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"resourceVersion": "1"}}},
		"a value JSON does not have":    &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": "x"}, "f": func() {}}},
		"a metadata value JSON lacks":   &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{"name": make(chan int)}}},
	} {
		if body, err := Encode(obj); err == nil {
			t.Errorf("%s: encoded as %s, want an error", name, body)
		}
	}
}

func TestDecodeInvertsEncode(t *testing.T) {
	t.Parallel()
	typed := configMap()
	body, err := Encode(typed)
	if err != nil {
		t.Fatal(err)
	}
	got := &corev1.ConfigMap{}
	if err := DecodeInto(body, "7", configMapKind, got); err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(got, typed) {
		t.Errorf("typed: got %+v, want %+v", got, typed)
	}

	generic := widget()
	if body, err = Encode(generic); err != nil {
		t.Fatal(err)
	}
	back, err := DecodeUnstructured(body, "9", widgetKind)
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(back, generic) {
		t.Errorf("unstructured: got %#v, want %#v", back, generic)
	}
}

func TestDecodeRefusesBrokenBodies(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{", "null", `{"metadata":{}}`, `{"metadata":{"name":"a"`, `{"metadata":{"name":7}}`} {
		if err := DecodeInto([]byte(body), "1", configMapKind, &corev1.ConfigMap{}); err == nil && !json.Valid([]byte(body)) {
			t.Errorf("DecodeInto(%q): no error", body)
		}
		if _, err := ParseMeta([]byte(body)); err == nil {
			t.Errorf("ParseMeta(%q): no error", body)
		}
	}
	for _, body := range []string{"", "{", "null", `{"metadata":{}}`, `{"metadata":{"name":"a"`} {
		if _, err := DecodeUnstructured([]byte(body), "1", widgetKind); err == nil {
			t.Errorf("DecodeUnstructured(%q): no error", body)
		}
	}
	if err := DecodeInto([]byte(`{}`), "1", configMapKind, &corev1.ConfigMapList{}); err == nil {
		t.Error("DecodeInto a list: no error")
	}
}

func TestParseMetaMindsCase(t *testing.T) {
	t.Parallel()
	m, err := ParseMeta([]byte(`{"metadata":{"name":"a","Name":"b","FINALIZERS":["x"]}}`))
	if err != nil {
		t.Fatal(err)
	}
	if m.Name != "a" || len(m.Finalizers) != 0 {
		t.Errorf("got name %q and finalizers %q, want a and none", m.Name, m.Finalizers)
	}
}

func TestAppendWire(t *testing.T) {
	t.Parallel()
	body, err := Encode(widget())
	if err != nil {
		t.Fatal(err)
	}
	got := AppendWire([]byte("before:"), WirePrefix(widgetKind), body, 12)
	want := `before:{"kind":"Widget","apiVersion":"example.com/v1","metadata":{"resourceVersion":"12","generation":2,"name":"w"},"extra":["x",null,true],"spec":{"ratio":0.5,"size":3}}`
	if string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if got := string(WirePrefix(configMapKind)); !strings.HasPrefix(got, `{"kind":"ConfigMap","apiVersion":"v1",`) {
		t.Errorf("core group: %s", got)
	}
}

func TestWithMeta(t *testing.T) {
	t.Parallel()
	body := []byte(`{"metadata":{"name":"a","uid":"1"},"spec":{ "odd" : [1 , 2] }}`)
	kept := bytes.Clone(body)
	got, err := WithMeta(body, metav1.ObjectMeta{Name: "b", ResourceVersion: "5"})
	if err != nil {
		t.Fatal(err)
	}
	if want := `{"metadata":{"name":"b"},"spec":{ "odd" : [1 , 2] }}`; string(got) != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	if !bytes.Equal(body, kept) {
		t.Errorf("the body changed: %s", body)
	}
	if out, err := WithMeta(body, metav1.ObjectMeta{}); err == nil {
		t.Errorf("empty metadata: got %s, want an error", out)
	}
}

func TestSplitRefuses(t *testing.T) {
	t.Parallel()
	for _, body := range []string{"", "{}", `{"metadata":{}}`, `{"metadata":{"a":1}`, `{"metadata":{"a":{}`, `{"metadata":{"a":"}}`, `{"metadata":{"a\`, ` {"metadata":{"a":1}}`} {
		if metadata, rest, err := Split([]byte(body)); err == nil {
			t.Errorf("Split(%q) = %q, %q; want an error", body, metadata, rest)
		}
	}
}
