package selector

import (
	"testing"

	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/exeunt/exeunt/object"
)

func TestMatcher(t *testing.T) {
	key := object.Key{Kind: "pods", Namespace: "shop", Name: "web"}
	body := []byte(`{"metadata":{"name":"web","labels":{"app":"web","tier.example/x":"a\"b"}},"spec":{"nodeName":"n1"},"status":{"phase":"Running"}}`)
	for _, test := range []struct {
		name, labels, fields string
		want                 bool
	}{
		{"everything", "", "", true},
		{"label equals", "app=web", "", true},
		{"label differs", "app=db", "", false},
		{"label absent", "!missing", "", true},
		{"label in set", "app in (web,db)", "", true},
		{"label with a slash and a dot", "tier.example/x", "", true},
		{"field equals", "", "status.phase=Running", true},
		{"field differs", "", "status.phase!=Running", false},
		{"field by path", "", "spec.nodeName=n1", true},
		{"field that is left out", "", "status.podIP=", true},
		{"boolean field that is left out", "", "spec.hostNetwork=false", true},
		{"namespace", "", "metadata.namespace=shop", true},
		{"both must match", "app=web", "spec.nodeName=n2", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			l, err := labels.Parse(test.labels)
			if err != nil {
				t.Fatal(err)
			}
			f, err := fields.ParseSelector(test.fields)
			if err != nil {
				t.Fatal(err)
			}
			m, _ := newMatcher(&metainternal.ListOptions{LabelSelector: l, FieldSelector: f})
			if got, err := m.Match(key, body); got != test.want || err != nil {
				t.Errorf("match = %v, %v, want %v", got, err, test.want)
			}
		})
	}
}

func TestMatcherPinsTheName(t *testing.T) {
	f := fields.ParseSelectorOrDie("metadata.name=web")
	m, name := newMatcher(&metainternal.ListOptions{FieldSelector: f})
	if name != "web" || !m.All() {
		t.Errorf("name = %q, all = %v; want the store to look the name up", name, m.All())
	}
	f = fields.ParseSelectorOrDie("metadata.name=web,status.phase=Running")
	m, name = newMatcher(&metainternal.ListOptions{FieldSelector: f})
	if name != "web" || m.All() {
		t.Errorf("name = %q, all = %v; want the name and the rest of the selector", name, m.All())
	}
}

func FuzzMatcher(f *testing.F) {
	f.Add(`{"metadata":{"name":"a","labels":{"x":"y"}}}`, "x=y", "status.phase=Running")
	f.Add(`{`, "!x", "source=a")
	f.Fuzz(func(t *testing.T, body, labelSelector, fieldSelector string) {
		l, err := labels.Parse(labelSelector)
		if err != nil {
			return
		}
		s, err := fields.ParseSelector(fieldSelector)
		if err != nil {
			return
		}
		m, _ := newMatcher(&metainternal.ListOptions{LabelSelector: l, FieldSelector: s})
		if _, err := m.Match(object.Key{}, []byte(body)); err != nil { // nor panic
			t.Error(err)
		}
	})
}
