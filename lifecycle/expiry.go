package lifecycle

import (
	"errors"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Annotations of any object that say when the server deletes it. An object with ExpiresAt and
// TTL expires at the earlier of the two times. KeepUntil exempts it: it does not expire before.
const (
	ExpiresAt = "lifecycle.exeunt.dev/expires-at" // a time: "2027-01-31T12:00:00Z"
	TTL       = "lifecycle.exeunt.dev/ttl"        // the age at which it expires: "36h", "7d"
	KeepUntil = "lifecycle.exeunt.dev/keep-until" // a time, or "forever"
	// KeepReason says why, for people.
	KeepReason = "lifecycle.exeunt.dev/keep-reason"
	forever    = "forever"

	// AnnounceExpiry is the label of objects that get an Event a day before they expire. Its value is "true"; "false" is as no label.
	AnnounceExpiry = "lifecycle.exeunt.dev/announce-expiry"

	// StartExpiry is the annotation of an ExpiryPolicy or ClusterExpiryPolicy that starts it: its value is the generation
	// whose preview a person has seen, and how many objects it may take in a day, if that is more than
	// the policy says: "2", "2/1500".
	StartExpiry = "lifecycle.exeunt.dev/start-expiry"
)

// MostPolicies is how many ExpiryPolicies a namespace may have, because each write asks them, and MostRetentionPolicies how many
// RetentionPolicies: each keeps its newest tags in memory.
const (
	MostPolicies          = 100
	MostRetentionPolicies = 20
)

// Start is what StartExpiry says.
type Start struct {
	Generation, Objects int64 // Objects is 0 if the annotation has no number
}

// ParseStart reads a value of StartExpiry.
func ParseStart(text string) (s Start, err error) {
	generation, objects, numbered := strings.Cut(text, "/")
	if s.Generation, err = parseGeneration(generation); err == nil && numbered {
		s.Objects, err = parseConfirmed(objects)
	}
	if err != nil {
		err = errors.New(`must be the metadata.generation of the policy that may begin, such as "1", and how many objects it may take in a day, as in "1/1500"`)
	}
	return s, err
}

// Expires returns the resources of a policy of expiry whose spec or start a write changes: it lets their objects expire. old is nil for
// a create.
func Expires(of schema.GroupResource, obj, old runtime.Object) (resources []schema.GroupResource) {
	now, ok := obj.(*unstructured.Unstructured)
	if !ok || of.Group != "lifecycle.exeunt.dev" || of.Resource != "expirypolicies" && of.Resource != "clusterexpirypolicies" {
		return nil
	}
	if was, ok := old.(*unstructured.Unstructured); ok && equality.Semantic.DeepEqual(now.Object["spec"], was.Object["spec"]) &&
		now.GetAnnotations()[StartExpiry] == was.GetAnnotations()[StartExpiry] {
		return nil
	}
	list, _, _ := unstructured.NestedStringSlice(now.Object, "spec", "resources")
	for _, r := range list {
		resources = append(resources, schema.ParseGroupResource(r))
	}
	return resources
}

// Forever is later than any time that an object expires at.
var Forever = time.Date(9999, 12, 31, 0, 0, 0, 0, time.UTC)

// Expiry is when an object expires by its annotations, and the annotation that says so. The name is empty if
// it does not expire. Values that are refused today are ignored.
func Expiry(m metav1.Object) (at time.Time, by string) {
	all := m.GetAnnotations()
	if t, ok := read(all, ExpiresAt, parseTime); ok {
		at, by = t, ExpiresAt
	}
	if age, ok := read(all, TTL, parseAge); ok {
		if t := m.GetCreationTimestamp().Add(age); by == "" || t.Before(at) {
			at, by = t, TTL
		}
	}
	if by == "" {
		return time.Time{}, ""
	}
	return Kept(m, at, by)
}

// Kept moves the time at which an object expires behind that until which it is kept.
func Kept(m metav1.Object, at time.Time, by string) (time.Time, string) {
	until, ok := read(m.GetAnnotations(), KeepUntil, parseKeep)
	switch {
	case !ok || !until.After(at):
		return at, by
	case until.Equal(Forever):
		return time.Time{}, ""
	}
	return until, by
}

// Hastens reports whether a write makes an object expire that did not, or earlier: it deletes, only later.
// old is nil for a create.
func Hastens(m, old metav1.Object) bool {
	if old == nil {
		return false // the object is the client's own
	}
	at, by := Expiry(m)
	was, had := Expiry(old)
	return by != "" && (had == "" || at.Before(was))
}

func parseTime(text string) (time.Time, error) {
	t, err := time.Parse(time.RFC3339, text)
	if err != nil || t.After(Forever) || t.Year() < 1970 {
		return time.Time{}, errors.New(`must be a time such as "2027-01-31T12:00:00Z"`)
	}
	return t, nil
}

func parseKeep(text string) (time.Time, error) {
	if text == forever {
		return Forever, nil
	}
	t, err := parseTime(text)
	if err != nil {
		return t, errors.New(`must be "forever", or a time such as "2027-01-31T12:00:00Z"`)
	}
	return t, nil
}

// KeepFor returns the value of KeepUntil that keeps an object for an age from now on.
func KeepFor(age string, now time.Time) (string, error) {
	if age == forever {
		return forever, nil
	}
	d, err := parseAge(age)
	return now.Add(d).UTC().Format(time.RFC3339), err
}

func parseAge(text string) (time.Duration, error) {
	d, err := ParseDuration(text)
	if err != nil || d <= 0 {
		return 0, errors.New(`must be a duration such as "90m", "36h" or "7d"`)
	}
	return d, nil
}
