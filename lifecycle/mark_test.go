package lifecycle

import (
	"errors"
	"fmt"
	"io"
	"maps"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

// TestMarks: only the server changes what holds a deletion; a client may ask for a confirmation before it begins, and who
// takes that back confirms.
func TestMarks(t *testing.T) {
	t.Parallel()
	const other = "a/b"
	meta := func(deleting bool, annotations map[string]string, finalizers ...string) *metav1.ObjectMeta {
		m := &metav1.ObjectMeta{Finalizers: finalizers, Annotations: annotations}
		if deleting {
			m.DeletionTimestamp = &metav1.Time{Time: time.Unix(1000, 0)}
		}
		return m
	}
	confirm := func(n string) map[string]string { return map[string]string{ConfirmCascade: n} }
	held := func(n string) map[string]string { return map[string]string{HeldAbove: n} }
	for _, c := range []struct {
		what     string
		was, is  *metav1.ObjectMeta // was is nil for a create
		refused  string             // "" is allowed
		confirms bool
	}{
		{"create", nil, meta(false, nil, other), "", false},
		{"create with a request for confirmation", nil, meta(false, nil, ConfirmCascade), "", false},
		{"create with a confirmation", nil, meta(false, confirm("3")), "", true},
		{"create with a mark", nil, meta(false, held("3")), "set by the server alone", false},
		{"create with the finalizer of grace", nil, meta(false, nil, PropagateGrace), "set by the server alone", false},
		{"ask for a confirmation", meta(false, nil), meta(false, nil, ConfirmCascade), "", false},
		{"take that back", meta(false, nil, ConfirmCascade), meta(false, nil), "", true},
		{"let a held deletion go", meta(true, nil, ConfirmCascade, other), meta(true, nil, other), "holds the deletion until it is confirmed", true},
		{"confirm a held deletion", meta(true, nil, ConfirmCascade), meta(true, confirm("3"), ConfirmCascade), "", true},
		{"confirm more", meta(true, confirm("3"), ConfirmCascade), meta(true, confirm("4"), ConfirmCascade), "", true},
		{"leave a confirmation", meta(true, confirm("3"), ConfirmCascade), meta(true, confirm("3"), ConfirmCascade), "", false},
		{"withdraw a confirmation", meta(true, confirm("3"), ConfirmCascade), meta(true, nil, ConfirmCascade), "", false},
		{"change a mark", meta(true, held("3"), ConfirmCascade), meta(true, held("9"), ConfirmCascade), "set by the server alone", false},
		{"remove a mark", meta(true, held("3"), ConfirmCascade), meta(true, nil, ConfirmCascade), "set by the server alone", false},
		{"add the finalizer of grace", meta(false, nil), meta(false, nil, PropagateGrace), "set by the server alone", false},
		{"remove it while it holds", meta(true, nil, PropagateGrace), meta(true, nil), "set by the server alone", false},
		{"remove it from an object that lives", meta(false, nil, PropagateGrace), meta(false, nil), "", false},
		{"leave it", meta(true, nil, PropagateGrace, other), meta(true, nil, PropagateGrace), "", false},
		{"remove another finalizer", meta(true, nil, ConfirmCascade, other), meta(true, nil, ConfirmCascade), "", false},
	} {
		var was metav1.Object
		if c.was != nil {
			was = c.was
		}
		errs := checkMarks(c.is, was, false)
		if text := fmt.Sprint(errs); len(errs) > 1 || (len(errs) == 0) != (c.refused == "") || !strings.Contains(text, c.refused) {
			t.Errorf("%s: %s, want %q", c.what, text, c.refused)
		}
		if got := Confirms(c.is, was); got != c.confirms {
			t.Errorf("%s confirms: %v", c.what, got)
		}
	}
}

// TestKeepMarks: whatever a webhook made of the annotations, marks are as before, and the rest as it says.
func TestKeepMarks(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		now, before, want map[string]string
		changed           bool
	}{
		{map[string]string{"a": "b"}, map[string]string{"c": "d"}, map[string]string{"a": "b"}, false},
		{map[string]string{"a": "b", HeldAbove: "3"}, map[string]string{HeldAbove: "3"}, map[string]string{"a": "b", HeldAbove: "3"}, false},
		{map[string]string{HeldAbove: "9"}, map[string]string{HeldAbove: "3"}, map[string]string{HeldAbove: "3"}, true},
		{map[string]string{"a": "b", HeldAbove: "9"}, nil, map[string]string{"a": "b"}, true},
		{nil, map[string]string{HeldAbove: "3"}, map[string]string{HeldAbove: "3"}, true},
		{map[string]string{HeldAbove: ""}, nil, map[string]string{}, true},
		{map[string]string{MaxCascade: "9"}, map[string]string{MaxCascade: "3"}, map[string]string{MaxCascade: "9"}, false},
	} {
		now := maps.Clone(c.now)
		if kept, changed := KeepMarks(c.now, c.before); changed != c.changed || !maps.Equal(kept, c.want) || !maps.Equal(now, c.now) {
			t.Errorf("%v after %v: %v, %v", c.now, c.before, kept, changed)
		}
	}
}

// TestGuardBegins: a limit holds a deletion that exceeds it; a finalizer alone holds every one. What is not held cannot be called
// off; what is called off is marked as active, with a new generation.
func TestGuardBegins(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		finalizers []string
		limit      int64
		want       Guard
	}{
		{nil, 5, Guard{Held: true, Limit: 5}},
		{[]string{ConfirmCascade}, 0, Guard{Held: true}},
		{[]string{ConfirmCascade}, 5, Guard{Held: true, Limit: 5}},
	} {
		m := metav1.ObjectMeta{Finalizers: c.finalizers, DeletionTimestamp: &metav1.Time{Time: time.Unix(1000, 0)}, Generation: 3}
		shared := map[string]string{"a": "b"}
		m.Annotations = shared
		hold(&m, c.limit)
		if g := GuardOf(&m); g != c.want || len(m.Finalizers) != 1 || m.Annotations["a"] != "b" || len(shared) != 1 {
			t.Errorf("%v with the limit %d: %+v, %+v, of shared annotations %v", c.finalizers, c.limit, g, m, shared)
		}
		body := []byte(`{"metadata":{"name":"a"},"x":1}`)
		marked, out, err := CallOff(body, m, metav1.ObjectMeta{}, Rules{MarkActive: func(b []byte) ([]byte, error) {
			return []byte(strings.Replace(string(b), `"x":1`, `"x":2`, 1)), nil
		}})
		if err != nil || marked.DeletionTimestamp != nil || marked.Generation != 4 || !strings.Contains(string(out), `"x":2`) || !strings.Contains(string(body), `"x":1`) {
			t.Errorf("called off: %+v, %s, %v", marked, out, err)
		}
		if same, _, err := CallOff(body, m, metav1.ObjectMeta{}, Rules{NoGrace: true}); err != nil || same.Generation != 3 {
			t.Errorf("called off without grace: %+v, %v", same, err)
		}
		if _, _, err := CallOff(body, m, metav1.ObjectMeta{}, Rules{MarkActive: func([]byte) ([]byte, error) { return nil, io.EOF }}); !errors.Is(err, io.EOF) {
			t.Errorf("a body that cannot be marked: %v", err)
		}
		LetPass(&m)
		if _, _, err := CallOff(body, m, metav1.ObjectMeta{}, Rules{}); !object.Is(err, object.Conflict) {
			t.Errorf("a deletion that has begun is called off: %v", err)
		}
	}
	if g := GuardOf(&metav1.ObjectMeta{Finalizers: []string{ConfirmCascade}, Annotations: map[string]string{HeldAbove: "0"}}); g.Held || !g.Unlimited {
		t.Errorf("an object that lives: %+v", g)
	}
	for text, want := range map[string]time.Duration{"72h": 72 * time.Hour, "0s": 0} {
		if got, ok := ArchiveWindow(map[string]string{ArchiveFor: text}); !ok || got != want {
			t.Errorf("%s is %v, %v", text, got, ok)
		}
	}
	if got, ok := ArchiveWindow(nil); ok {
		t.Errorf("without the annotation the archive keeps for %v", got)
	}
	long := strings.Repeat("a", maxName)
	if a, b, c := newNameRule(long, false), newNameRule(long+"a", false), newNameRule(long+"a", true); a != nil || b == nil || c != nil {
		t.Errorf("long names: %v, %v, %v", a, b, c)
	}
	if a, b, c := newNameRule("..", true), newNameRule("..", false), newNameRule("a/", true); a != nil || b == nil || c == nil {
		t.Errorf("names of a path: %v, %v, %v", a, b, c)
	}
	if got := cutName(strings.Repeat("\x80", maxName)); got != "" {
		t.Errorf("a name without characters is cut to %q", got)
	}
	for _, before := range []map[string]string{nil, {"a": "b"}} {
		m := metav1.ObjectMeta{Annotations: maps.Clone(before)}
		shared := m.Annotations
		WithPropagatedGrace(&m, 7)
		if seconds, ok := PropagatedGrace(&m); !ok || seconds != 7 || m.Annotations["a"] != before["a"] || !maps.Equal(shared, before) {
			t.Errorf("passes %d s on, %v: %v, of shared annotations %v", seconds, ok, m.Annotations, shared)
		}
	}
}
