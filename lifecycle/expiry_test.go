package lifecycle_test

import (
	"slices"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"github.com/exeunt/exeunt/lifecycle"
)

func TestExpiry(t *testing.T) {
	born := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	day := 24 * time.Hour
	tests := []struct {
		expires, ttl, keep string
		at                 time.Duration // after birth; 0 if it does not expire
		by                 string
	}{
		{},
		{expires: "2027-01-03T00:00:00Z", at: 2 * day, by: lifecycle.ExpiresAt},
		{expires: "2027-01-03T02:00:00+02:00", at: 2 * day, by: lifecycle.ExpiresAt},
		{ttl: "7d", at: 7 * day, by: lifecycle.TTL},
		{ttl: "1d12h", at: 36 * time.Hour, by: lifecycle.TTL},
		{ttl: "90m", at: 90 * time.Minute, by: lifecycle.TTL},
		{expires: "2027-01-03T00:00:00Z", ttl: "1d", at: day, by: lifecycle.TTL},
		{expires: "2027-01-03T00:00:00Z", ttl: "3d", at: 2 * day, by: lifecycle.ExpiresAt},
		{ttl: "1d", keep: "forever"},
		{ttl: "1d", keep: "2027-01-01T12:00:00Z", at: day, by: lifecycle.TTL},
		{ttl: "1d", keep: "2027-01-05T00:00:00Z", at: 4 * day, by: lifecycle.TTL},
		{keep: "2027-01-05T00:00:00Z"},
		{ttl: "soon"}, {ttl: "-1h"}, {ttl: "0d"}, {ttl: "d"}, {ttl: "99999d"}, {expires: "tomorrow"}, // stored before they were refused
		{ttl: "1d", keep: "always", at: day, by: lifecycle.TTL},
	}
	for _, tt := range tests {
		m := expiring(born, tt.expires, tt.ttl, tt.keep)
		at, by := lifecycle.Expiry(m)
		if by != tt.by || by != "" && !at.Equal(born.Add(tt.at)) || by == "" && !at.IsZero() {
			t.Errorf("%+v: it expires at %s by %q", tt, at, by)
		}
	}
}

func expiring(born time.Time, expires, ttl, keep string) *metav1.ObjectMeta {
	m := &metav1.ObjectMeta{CreationTimestamp: metav1.NewTime(born), Annotations: map[string]string{}}
	for name, value := range map[string]string{lifecycle.ExpiresAt: expires, lifecycle.TTL: ttl, lifecycle.KeepUntil: keep} {
		if value != "" {
			m.Annotations[name] = value
		}
	}
	return m
}

// TestHastens: what makes an object go earlier needs the right to delete it.
func TestHastens(t *testing.T) {
	born := time.Date(2027, 1, 1, 0, 0, 0, 0, time.UTC)
	of := func(ttl, keep string) *metav1.ObjectMeta { return expiring(born, "", ttl, keep) }
	tests := []struct {
		name     string
		now, was *metav1.ObjectMeta
		want     bool
	}{
		{"none", of("", ""), of("", ""), false},
		{"it expires now", of("1d", ""), of("", ""), true},
		{"earlier", of("1h", ""), of("1d", ""), true},
		{"later", of("2d", ""), of("1d", ""), false},
		{"not any more", of("", ""), of("1d", ""), false},
		{"kept", of("1d", "forever"), of("1d", ""), false},
		{"no longer kept", of("1d", ""), of("1d", "forever"), true},
		{"kept less long", of("1d", "2027-02-01T00:00:00Z"), of("1d", "2027-03-01T00:00:00Z"), true},
		{"the same", of("1d", ""), of("1d", ""), false},
	}
	for _, tt := range tests {
		if got := lifecycle.Hastens(tt.now, tt.was); got != tt.want {
			t.Errorf("%s: %v", tt.name, got)
		}
	}
	if lifecycle.Hastens(of("1h", ""), nil) {
		t.Error("a create needs no right to delete: the object is the client's own")
	}
}

func TestKeepFor(t *testing.T) {
	now := time.Date(2027, 1, 1, 0, 0, 0, 0, time.FixedZone("", 3600))
	for age, want := range map[string]string{"forever": "forever", "30d": "2027-01-30T23:00:00Z"} {
		if got, err := lifecycle.KeepFor(age, now); got != want || err != nil {
			t.Errorf("%s: %q, %v", age, got, err)
		}
	}
	if _, err := lifecycle.KeepFor("always", now); err == nil {
		t.Error("always is accepted")
	}
}

// TestExpires: a policy of expiry acts on its resources when a write makes it, or changes its spec or its start.
func TestExpires(t *testing.T) {
	policy := func(age, start string) *unstructured.Unstructured {
		return &unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"annotations": map[string]any{lifecycle.StartExpiry: start}},
			"spec":     map[string]any{"age": age, "resources": []any{"pods", "jobs.batch"}},
		}}
	}
	of := func(group, resource string) schema.GroupResource {
		return schema.GroupResource{Group: group, Resource: resource}
	}
	namespaced, all := of("lifecycle.exeunt.dev", "expirypolicies"), of("lifecycle.exeunt.dev", "clusterexpirypolicies")
	for name, tt := range map[string]struct {
		of       schema.GroupResource
		now, was runtime.Object
		want     bool
	}{
		"create":                   {namespaced, policy("1d", "1"), nil, true},
		"create, of the cluster":   {all, policy("1d", "1"), nil, true},
		"another spec":             {namespaced, policy("1h", "1"), policy("1d", "1"), true},
		"another start":            {namespaced, policy("1d", "2"), policy("1d", "1"), true},
		"the same":                 {namespaced, policy("1d", "1"), policy("1d", "1"), false},
		"another resource":         {of("lifecycle.exeunt.dev", "restores"), policy("1d", "1"), nil, false},
		"another group":            {of("example.com", "expirypolicies"), policy("1d", "1"), nil, false},
		"another group, all":       {of("example.com", "clusterexpirypolicies"), policy("1d", "1"), nil, false},
		"no object of this server": {namespaced, &corev1.ConfigMap{}, nil, false},
	} {
		got := lifecycle.Expires(tt.of, tt.now, tt.was)
		if tt.want != slices.Equal(got, []schema.GroupResource{of("", "pods"), of("batch", "jobs")}) || !tt.want && got != nil {
			t.Errorf("%s: %v", name, got)
		}
	}
	if s, err := lifecycle.ParseStart("2/1500"); err != nil || s != (lifecycle.Start{Generation: 2, Objects: 1500}) {
		t.Errorf("a start of generation 2 with 1500 objects is %+v, %v", s, err)
	}
	if s, err := lifecycle.ParseStart("2"); err != nil || s != (lifecycle.Start{Generation: 2}) {
		t.Errorf("a start of generation 2 is %+v, %v", s, err)
	}
}
