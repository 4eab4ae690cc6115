package lifecycle

import (
	"maps"
	"reflect"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

// TestCascadeLimit: the annotation of a namespace overrides the server's limit, if it is a
// valid number.
func TestCascadeLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		server    int64
		namespace map[string]string
		want      int64
	}{
		{10, nil, 10},
		{-1, nil, 0},
		{10, map[string]string{MaxCascade: "3"}, 3},
		{10, map[string]string{MaxCascade: "0"}, 0}, // off
		{10, map[string]string{MaxCascade: "-3"}, 10},
		{10, map[string]string{MaxCascade: "many"}, 10},
	} {
		if got := CascadeLimit(c.server, c.namespace); got != c.want {
			t.Errorf("limit %d with %v: %d, want %d", c.server, c.namespace, got, c.want)
		}
	}
}

// TestGuardOf: the confirmation annotation counts if it is a number, and only raises
// the limit.
func TestGuardOf(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		confirm string
		allowed int64
	}{
		{"", 5}, {"7", 7}, {"3", 5}, {"-1", 5}, {"all", 5},
	} {
		m := metav1.ObjectMeta{
			DeletionTimestamp: &metav1.Time{Time: time.Unix(1000, 0)}, Finalizers: []string{ConfirmCascade},
			Annotations: map[string]string{HeldAbove: "5"},
		}
		if c.confirm != "" {
			m.Annotations[ConfirmCascade] = c.confirm
		}
		g := GuardOf(&m)
		if !g.Held || g.Limit != 5 || g.Allowed() != c.allowed {
			t.Errorf("confirmed %q: %+v, allows %d", c.confirm, g, g.Allowed())
		}
	}
}

// TestDeleteAgainIsNotHeld: the guard holds the first delete. Once it has let a deletion
// pass, a second delete is not held: the cascade may have begun.
func TestDeleteAgainIsNotHeld(t *testing.T) {
	t.Parallel()
	d := Deletion{
		Body: []byte(`{"metadata":{"name":"a"}}`), Meta: metav1.ObjectMeta{Name: "a", Finalizers: []string{"a.example/x"}},
		Now: time.Unix(1000, 0), MaxCascade: 3,
	}
	d.MaxCascade, d.NamespaceLimits = 0, true
	if limited, err := BeforeDelete(d); err != nil || !GuardOf(&limited.Meta).Held || !GuardOf(&limited.Meta).Unlimited {
		t.Fatalf("with limits of namespaces only: %+v, %v", limited, err)
	}
	d.MaxCascade, d.NamespaceLimits = 3, false
	first, err := BeforeDelete(d)
	if err != nil || first.Outcome != Mark || !GuardOf(&first.Meta).Held {
		t.Fatalf("the first delete: %+v, %v", first, err)
	}
	passed := first.Meta
	LetPass(&passed)
	d.Meta, d.Now = passed, time.Unix(2000, 0)
	again, err := BeforeDelete(d)
	if err != nil || again.Outcome != Unchanged || GuardOf(&again.Meta).Held || slices.Contains(again.Meta.Finalizers, ConfirmCascade) {
		t.Errorf("the second delete: %+v, %v", again, err)
	}
}

// TestCallOffKeeps: what the object had before its deletion was asked for it has again, also a confirmation and a finalizer
// of the guard; what a client removed since stays removed.
func TestCallOffKeeps(t *testing.T) {
	t.Parallel()
	asked := metav1.ObjectMeta{Name: "a", Finalizers: []string{"a/kept", ConfirmCascade, "a/gone"}, Annotations: map[string]string{ConfirmCascade: "7"}}
	for _, c := range []struct {
		asked       metav1.ObjectMeta
		finalizers  []string
		annotations map[string]string
	}{
		{asked, []string{"a/kept", ConfirmCascade, "a/new"}, map[string]string{ConfirmCascade: "7"}},
		{metav1.ObjectMeta{Name: "a"}, []string{"a/kept", "a/new"}, map[string]string{}},
	} {
		held := metav1.ObjectMeta{
			Name: "a", DeletionTimestamp: &metav1.Time{Time: time.Unix(1000, 0)},
			Finalizers:  []string{"a/kept", "a/new", ConfirmCascade, metav1.FinalizerDeleteDependents, PropagateGrace, "kind/cleanup"},
			Annotations: map[string]string{HeldAbove: "5", ConfirmCascade: "9"},
		}
		before := held.DeepCopy()
		m, body, err := CallOff([]byte(`{"metadata":{"name":"a","deletionTimestamp":"2027-01-01T00:00:00Z"}}`), held, c.asked, Rules{DeleteFinalizers: []string{"kind/cleanup"}})
		if stored, err := object.ParseMeta(body); err != nil || stored.DeletionTimestamp != nil || !slices.Equal(stored.Finalizers, m.Finalizers) {
			t.Errorf("the body is %s, %v", body, err)
		}
		if !reflect.DeepEqual(&held, before) {
			t.Errorf("it changes what the metadata shares with others: %+v", held)
		}
		if err != nil || m.DeletionTimestamp != nil || !slices.Equal(m.Finalizers, c.finalizers) || !maps.Equal(m.Annotations, c.annotations) {
			t.Errorf("asked as %+v: %+v, %v", c.asked, m, err)
		}
	}
}

// TestWeakens: a higher limit, or none, and the end of the second user.
func TestWeakens(t *testing.T) {
	t.Parallel()
	with := func(pairs ...string) map[string]string {
		m := map[string]string{}
		for i := 0; i < len(pairs); i += 2 {
			m[pairs[i]] = pairs[i+1]
		}
		return m
	}
	for _, c := range []struct {
		server      int64
		before, now map[string]string
		want        bool
	}{
		{0, with(MaxCascade, "5"), with(MaxCascade, "6"), true},
		{0, with(MaxCascade, "5"), with(MaxCascade, "0"), true},
		{0, with(MaxCascade, "5"), nil, true},
		{0, with(MaxCascade, "5"), with(MaxCascade, "5", "a", "b"), false},
		{0, with(MaxCascade, "5"), with(MaxCascade, "4"), false},
		{0, nil, with(MaxCascade, "4"), false},
		{0, with(MaxCascade, "0"), with(MaxCascade, "4"), false},
		{10, nil, with(MaxCascade, "11"), true},
		{10, nil, with(MaxCascade, "0"), true},
		{10, nil, with(MaxCascade, "9"), false},
		{10, with(MaxCascade, "20"), nil, false},
		{10, with(MaxCascade, "5"), nil, true},
		{0, with(ConfirmBy, "another-user"), nil, true},
		{0, nil, with(ConfirmBy, "another-user"), false},
		{0, with(ConfirmBy, "another-user"), with(ConfirmBy, "another-user", "a", "b"), false},
		{0, with(MaxCascade, "5", ConfirmBy, "another-user"), with(MaxCascade, "4"), true},
		{0, with(MaxCascade, "abc"), nil, false},
	} {
		if got := Weakens(c.server, c.now, c.before); got != c.want {
			t.Errorf("server %d, %v to %v: %v", c.server, c.before, c.now, got)
		}
	}
}
