// Package selector applies the label and field selectors of a request to stored bodies, most
// without decoding them.
package selector

import (
	"strings"

	"github.com/tidwall/gjson"
	metainternal "k8s.io/apimachinery/pkg/apis/meta/internalversion"
	"k8s.io/apimachinery/pkg/fields"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
)

// Matcher applies selectors to stored bodies without decoding them. The zero value
// matches all objects.
type Matcher struct {
	labels labels.Selector // nil if any labels match
	fields fields.Selector // nil if any fields match

	// attributes decodes a body, for custom kinds whose stored body may differ from the
	// object that the client sees. Nil if the body decides.
	attributes func(body []byte) (labels.Set, fields.Set, error)
	custom     bool // absentFields and renamedFields do not apply
	repeats    bool // fields has several terms: each field is read once
}

// TermsPerSlot is how many terms a selector of a watch has for each slot that it takes. With
// fewer, an event costs less to select than to send.
const TermsPerSlot = 100

// Cost is how many slots a watch with these selectors takes. Each event is compared with
// each value of the selectors of each watch.
func Cost(label, field string) int {
	return (strings.Count(label, ",") + strings.Count(field, ",")) / TermsPerSlot
}

// New builds the matcher of a request for objects of a version. A field selector for an exact
// metadata.name is returned as name instead, since the store looks it up. Decode decodes a body.
func New(v *kind.Version, options *metainternal.ListOptions, decode func(body []byte) (runtime.Object, error)) (m Matcher, name string) {
	m, name = newMatcher(options)
	if m.custom = v.Attributes != nil; !m.custom || m.All() || !seesOther(v, m) {
		return m, name
	}
	m.attributes = func(body []byte) (labels.Set, fields.Set, error) {
		obj, err := decode(body)
		if err != nil {
			return nil, nil, err
		}
		return v.Attributes(obj)
	}
	return m, name
}

// seesOther reports whether a selector of a custom kind may see other values in the decoded
// object than in the stored body: defaults and pruned fields, and what a conversion
// webhook changes, which may be labels too.
func seesOther(v *kind.Version, m Matcher) bool {
	if v.Raw {
		return m.fields != nil && !plainLabels(m.fields)
	}
	return m.fields != nil || v.DecodeAll != nil
}

// plainLabels reports whether all labels of a selector are paths without the special
// characters of gjson.
func plainLabels(s fields.Selector) bool {
	for _, r := range s.Requirements() {
		if strings.ContainsAny(r.Field, `*?|#@\!{}[]()=<>%~:"`) {
			return false
		}
	}
	return true
}

func newMatcher(options *metainternal.ListOptions) (m Matcher, name string) {
	if options.LabelSelector != nil && !options.LabelSelector.Empty() {
		m.labels = options.LabelSelector
	}
	if options.FieldSelector != nil && !options.FieldSelector.Empty() {
		m.fields, m.repeats = options.FieldSelector, len(options.FieldSelector.Requirements()) > 1
		if pinned, ok := options.FieldSelector.RequiresExactMatch("metadata.name"); ok {
			name = pinned
			if len(options.FieldSelector.Requirements()) == 1 {
				m.fields = nil
			}
		}
	}
	return m, name
}

// All reports whether all objects match.
func (m Matcher) All() bool { return m.labels == nil && m.fields == nil }

// Slow reports whether Match takes longer than it takes to send an event.
func (m Matcher) Slow() bool {
	var l, f string
	if m.labels != nil {
		l = m.labels.String()
	}
	if m.fields != nil {
		f = m.fields.String()
	}
	return m.attributes != nil || Cost(l, f) > 0
}

// Match reports whether one version of an object matches.
func (m Matcher) Match(key object.Key, body []byte) (bool, error) {
	if m.attributes != nil {
		labelSet, fieldSet, err := m.attributes(body)
		return err == nil && (m.labels == nil || m.labels.Matches(labelSet)) && (m.fields == nil || m.fields.Matches(fieldSet)), err
	}
	if m.labels != nil && !m.labels.Matches(bodyLabels(body)) {
		return false, nil
	}
	f := bodyFields{key: key, body: body, custom: m.custom}
	if m.repeats {
		f.read = map[string]string{}
	}
	return m.fields == nil || m.fields.Matches(f), nil
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
	key    object.Key
	body   []byte
	custom bool
	read   map[string]string // values that were read before; nil if they are not kept
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
	value, known := f.read[field]
	if !known {
		value = f.find(field)
		if f.read != nil {
			f.read[field] = value
		}
	}
	return value
}

// find reads a field from the body, which may be large.
func (f bodyFields) find(field string) string {
	if f.custom {
		return gjson.GetBytes(f.body, field).String()
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
