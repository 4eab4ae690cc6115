package server

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	discoveryv1 "k8s.io/api/discovery/v1"
)

// TestReplicasGone: an address leaves the slice when no process that is alive is at it: after two
// rounds, so that a replica that has just started stays.
func TestReplicasGone(t *testing.T) {
	t.Parallel()
	alive := func(ids ...string) map[string]bool {
		all := map[string]bool{}
		for _, id := range ids {
			all[id] = true
		}
		return all
	}
	for name, c := range map[string]struct {
		annotation    string
		addresses     []string
		alone         bool
		alive, missed map[string]bool
		want, gone    []string
	}{
		"first start":              {alive: alive("1"), want: []string{"a"}},
		"another one":              {annotation: `{"b":["2"]}`, addresses: []string{"b"}, alive: alive("1", "2"), want: []string{"b", "a"}},
		"missing once":             {annotation: `{"b":["2"]}`, addresses: []string{"b"}, alive: alive("1"), want: []string{"b", "a"}},
		"missing twice":            {annotation: `{"b":["2"]}`, addresses: []string{"b"}, alive: alive("1"), missed: alive("2"), want: []string{"a"}, gone: []string{"b"}},
		"two at one address":       {annotation: `{"b":["2","3"]}`, addresses: []string{"b"}, alive: alive("1", "3"), missed: alive("2"), want: []string{"b", "a"}},
		"our own last process":     {annotation: `{"a":["2"]}`, addresses: []string{"a"}, alive: alive("1"), missed: alive("2"), want: []string{"a"}},
		"an older version, alive":  {addresses: []string{"b"}, alive: alive("1", "2"), want: []string{"b", "a"}},
		"an older version, gone":   {addresses: []string{"b"}, alive: alive("1"), want: []string{"a"}, gone: []string{"b"}},
		"SQLite, after a restart":  {annotation: `{"a":["2"],"b":["3"]}`, addresses: []string{"a", "b"}, alone: true, alive: alive("1"), want: []string{"a"}, gone: []string{"b"}},
		"the database shows none":  {annotation: `{"b":["2"]}`, addresses: []string{"b"}, missed: alive("2"), want: []string{"b", "a"}},
		"we are not shown yet":     {annotation: `{"b":["2"]}`, addresses: []string{"b"}, alive: alive("2"), want: []string{"b", "a"}},
		"a person broke the value": {annotation: `{`, addresses: []string{"b"}, alive: alive("1", "2"), want: []string{"b", "a"}},
	} {
		slice := &discoveryv1.EndpointSlice{}
		if c.annotation != "" {
			slice.Annotations = map[string]string{replicasAnnotation: c.annotation}
		}
		for _, address := range c.addresses {
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{address}})
		}
		r := &roll{own: "1", host: "a", alone: c.alone, alive: c.alive, missed: c.missed}
		gone := r.mend(slice, discoveryv1.Endpoint{Addresses: []string{"a"}})
		if diff := cmp.Diff(c.want, addressesOf(slice)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if diff := cmp.Diff(c.gone, gone); diff != "" {
			t.Errorf("%s: gone: %s", name, diff)
		}
	}
}

// TestTwoServersAtOneAddress: the status counts processes, not addresses.
func TestTwoServersAtOneAddress(t *testing.T) {
	slice := &discoveryv1.EndpointSlice{Endpoints: []discoveryv1.Endpoint{{Addresses: []string{"a", "b"}}}}
	for annotation, want := range map[string][]string{`{"a":["1","2"],"b":["3"]}`: {"a", "a", "b"}, `{"a":["1"]}`: {"a", "b"}, `{`: {"a", "b"}} {
		slice.Annotations = map[string]string{replicasAnnotation: annotation}
		if diff := cmp.Diff(want, processesOf(slice)); diff != "" {
			t.Errorf("%s: %s", annotation, diff)
		}
	}
}
