package api

import (
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"

	"github.com/tidwall/gjson"

	"github.com/exeunt/exeunt/object"
)

// matcher applies selectors to stored bodies without decoding them. The zero value
// matches all objects.
type matcher struct {
	labels labels.Selector // nil: any
	fields fields.Selector // nil: any
}

// newMatcher builds a matcher from the selectors of a request. A field selector for
// an exact metadata.name is returned as name instead, since the store looks it up.
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

// match says whether one version of an object matches.
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

// bodyFields reads field labels from a stored body. A label is the path of the
// field, except for those in renamedFields.
type bodyFields struct {
	key  object.Key
	body []byte
}

// absentFields are the default values of fields that the JSON omits, where the
// default is not the empty string.
var absentFields = map[string]string{
	"spec.hostNetwork":   "false",
	"spec.unschedulable": "false",
	"status.replicas":    "0",
	"status.successful":  "0",
}

// renamedFields maps labels to the path of their field, where the two differ.
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
		if field == "source" { // the event was written through events.k8s.io
			return gjson.GetBytes(f.body, "reportingComponent").String()
		}
		return absentFields[field]
	}
	return value.String()
}

func (f bodyFields) Has(field string) bool { return true }
