package api

import (
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/object"
)

// matcher applies selectors to stored bodies without decoding them. The zero
// value matches everything.
type matcher struct {
	labels labels.Selector // nil: any
	fields fields.Selector // nil: any
}

// newMatcher takes over a request's selectors. A field selector that pins
// metadata.name is returned as a name instead, since the store can look that up.
func newMatcher(options *metainternal.ListOptions) (m matcher, name string) {
	if options.LabelSelector != nil && !options.LabelSelector.Empty() {
		m.labels = options.LabelSelector
	}
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		m.fields = options.FieldSelector
		if pinned, ok := options.FieldSelector.RequiresExactMatch("metadata.name"); ok {
			name = pinned
			if len(options.FieldSelector.Requirements()) == 1 {
				m.fields = nil
			}
		}
	}
	return m, name
}

func (m matcher) all() bool { return m.labels == nil && m.fields == nil }

// match judges one version of an object.
func (m matcher) match(key object.Key, body []byte) bool {
	if m.labels != nil && !m.labels.Matches(bodyLabels(body)) {
		return false
	}
	return m.fields == nil || m.fields.Matches(bodyFields{key, body})
}

func bodyLabels(body []byte) labels.Set {
	var set labels.Set
	gjson.GetBytes(body, "metadata.labels").ForEach(func(k, v gjson.Result) bool {
		if set == nil {
			set = labels.Set{}
		}
		set[k.String()] = v.String()
		return true
	})
	return set
}

// bodyFields reads field labels out of a stored body: a label is the path of
// the field, but for the few that Kubernetes names differently.
type bodyFields struct {
	key  object.Key
	body []byte
}

// absentFields are what a field that is left out of the JSON counts as, where
// that is not the empty string.
var absentFields = map[string]string{
	"spec.hostNetwork":   "false",
	"spec.unschedulable": "false",
	"status.replicas":    "0",
	"status.successful":  "0",
}

// renamedFields are labels that are not the path of what they show.
var renamedFields = map[string]string{
	"source":            "source.component",
	"status.successful": "status.succeeded",
}

func (f bodyFields) Get(field string) string {
	switch field {
	case "metadata.name":
		return f.key.Name
	case "metadata.namespace":
		return f.key.Namespace
	}
	path := field
	if renamed, ok := renamedFields[field]; ok {
		path = renamed
	}
	value := gjson.GetBytes(f.body, path)
	if !value.Exists() {
		if field == "source" { // events.k8s.io wrote it
			return gjson.GetBytes(f.body, "reportingComponent").String()
		}
		return absentFields[field]
	}
	return value.String()
}

func (f bodyFields) Has(field string) bool { return true }
