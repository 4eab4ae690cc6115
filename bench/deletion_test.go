package bench

import (
	"net/http"
	"strings"
	"testing"
)

func TestPage(t *testing.T) {
	s, config := startFake(t, faults{})
	c := small(config)
	c.Objects, c.Rounds = 3*pageSize+1, 2
	r := run(t, c, RunPage)
	if m := r.Measures[0]; r.Err() != nil || m.Operations != 2 || s.requests[http.MethodGet] < 8 {
		t.Errorf("%d lists with %d requests, want 2 and at least 8; %v", m.Operations, s.requests[http.MethodGet], r.Err())
	}
}

// TestPageMissing: a server that ends the list early does not pass.
func TestPageMissing(t *testing.T) {
	_, config := startFake(t, faults{list: func(map[string]string) []string { return nil }})
	c := small(config)
	c.Objects = pageSize + 1
	if r := run(t, c, RunPage); r.Err() == nil || !strings.Contains(r.Err().Error(), "list has 1 pages, want 2") {
		t.Errorf("Err: %v", r.Err())
	}
}

func TestFinalize(t *testing.T) {
	s, config := startFake(t, faults{})
	r := run(t, small(config), RunFinalize)
	if m := r.Measures[0]; r.Err() != nil || m.Operations != 40 || len(s.objects) != 0 || s.requests[http.MethodPatch] != 40 {
		t.Errorf("%d lives, %d objects are left, %d finalizers removed; %v", m.Operations, len(s.objects), s.requests[http.MethodPatch], r.Err())
	}
}

func TestCollection(t *testing.T) {
	s, config := startFake(t, faults{})
	r := run(t, small(config), RunCollection)
	if m := r.Measures[0]; r.Err() != nil || m.Operations != 40 || len(s.objects) != 0 || s.requests[http.MethodDelete] != 1 {
		t.Errorf("%d deleted with %d requests, %d are left; %v", m.Operations, s.requests[http.MethodDelete], len(s.objects), r.Err())
	}
}

func TestCascade(t *testing.T) {
	s, config := startFake(t, faults{})
	c := small(config)
	r := run(t, c, RunCascade)
	var names []string
	for _, m := range r.Measures {
		names = append(names, m.Name)
		if want := int64(40); m.Operations != want && m.Operations != chainLength || m.PerSecond <= 0 {
			t.Errorf("implausible measure: %+v", m)
		}
	}
	want := "cascade, Background|cascade, Foreground|cascade, Orphan|chain of 200, Foreground"
	if got := strings.Join(names, "|"); got != want || r.Err() != nil || len(s.objects) != 0 {
		t.Errorf("measured %s, want %s; %d objects are left; %v", got, want, len(s.objects), r.Err())
	}
	if err := Cleanup(t.Context(), c); err != nil || len(s.namespaces) != 0 {
		t.Errorf("the namespaces %v are left; %v", s.namespaces, err)
	}
}
