package lifecycle_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

func create(s lifecycle.Strategy, m metav1.ObjectMeta, data ...string) (*corev1.ConfigMap, []string, error) {
	obj := &corev1.ConfigMap{ObjectMeta: m, Data: map[string]string{}}
	for _, key := range data {
		obj.Data[key] = "x"
	}
	c := lifecycle.Creation{Namespace: "here", Now: start, UID: "new-uid", Suffix: "abcde"}
	warnings, err := lifecycle.BeforeCreate(context.Background(), s, obj, c)
	return obj, warnings, err
}

func TestBeforeCreateNamespace(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		strategy  strategy
		namespace string
		want      string
		refused   bool
	}{
		"same":                               {strategy{}, "here", "here", false},
		"left out is the request's":          {strategy{}, "", "here", false},
		"another is refused":                 {strategy{}, "there", "", true},
		"of a cluster-scoped kind, cleared":  {strategy{clusterScoped: true}, "there", "", false},
		"of a cluster-scoped kind, none set": {strategy{clusterScoped: true}, "", "", false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj, _, err := create(test.strategy, metav1.ObjectMeta{Name: "a", Namespace: test.namespace})
			if test.refused {
				wantError(t, err, object.BadRequest, "the namespace of the provided object does not match the namespace sent on the request")
				return
			}
			if err != nil || obj.Namespace != test.want {
				t.Errorf("got %q, %v; want %q", obj.Namespace, err, test.want)
			}
		})
	}
}

func TestBeforeCreateName(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 57)
	for name, test := range map[string]struct{ name, generate, want, refused string }{
		"given":                               {"a", "", "a", ""},
		"given wins over generateName":        {"a", "b-", "a", ""},
		"generated":                           {"", "b-", "b-abcde", ""},
		"58 characters are kept":              {"", long + "y", long + "yabcde", ""},
		"the 59th is cut":                     {"", long + "yz", long + "yabcde", ""},
		"no character is cut in two":          {"", long + "éz", long + "abcde", ""},
		"none at all":                         {"", "", "", "metadata.name: Required value: name or generateName is required"},
		"no path segment":                     {"a/b", "", "", `metadata.name: Invalid value: "a/b": may not contain '/'`},
		"no path segment prefix":              {"", "a%", "", ""},
		"the directory above":                 {"..", "", "", `metadata.name: Invalid value: "..": may not be '..'`},
		"with a NUL, which no database keeps": {"a\x00", "", "", `metadata.name: Invalid value: "a\x00": must be valid UTF-8 without NUL`},
		"broken UTF-8":                        {"a\xff", "", "", `metadata.name: Invalid value: "a\xff": must be valid UTF-8 without NUL`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			obj, _, err := create(strategy{}, metav1.ObjectMeta{Name: test.name, GenerateName: test.generate})
			switch {
			case test.refused != "":
				wantError(t, err, object.Invalid, test.refused)
			case test.want == "":
				if !object.Is(err, object.Invalid) {
					t.Errorf("got name %q, %v; want an Invalid", obj.Name, err)
				}
			case err != nil || obj.Name != test.want:
				t.Errorf("got %q, %v; want %q", obj.Name, err, test.want)
			}
		})
	}
}

func TestBeforeCreateResourceVersion(t *testing.T) {
	t.Parallel()
	for _, version := range []string{"", "0"} {
		obj, _, err := create(strategy{}, metav1.ObjectMeta{Name: "a", ResourceVersion: version})
		if err != nil || obj.ResourceVersion != "" {
			t.Errorf("%q: got %q, %v; want it cleared", version, obj.ResourceVersion, err)
		}
	}
	for _, version := range []string{"1", "abc"} {
		_, _, err := create(strategy{}, metav1.ObjectMeta{Name: "a", ResourceVersion: version})
		wantError(t, err, object.Versioned, "resourceVersion should not be set on objects to be created")
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", ResourceVersion: version}}
		_, err = lifecycle.BeforeCreate(context.Background(), strategy{}, obj, lifecycle.Creation{Namespace: "here", Now: start, UID: "u", DryRun: true})
		if err != nil || obj.ResourceVersion != "" {
			t.Errorf("a dry run with %q: got %q, %v", version, obj.ResourceVersion, err)
		}
	}
}

func TestBeforeCreateSystemFields(t *testing.T) {
	t.Parallel()
	obj, _, err := create(strategy{}, metav1.ObjectMeta{
		Name: "a", UID: "mine", SelfLink: "/x", CreationTimestamp: *after(-9999),
		DeletionTimestamp: after(5), DeletionGracePeriodSeconds: ptr(int64(5)),
		Finalizers: []string{"example.com/f"},
	})
	if err != nil {
		t.Fatal(err)
	}
	if obj.UID != "new-uid" || obj.SelfLink != "" || obj.DeletionTimestamp != nil || obj.DeletionGracePeriodSeconds != nil {
		t.Errorf("a client decided about system fields: %+v", obj.ObjectMeta)
	}
	if got, want := obj.CreationTimestamp.Time, time.Date(2024, 5, 6, 7, 8, 9, 0, time.UTC); got != want {
		t.Errorf("creation time %v, want %v", got, want)
	}
	if len(obj.Finalizers) != 1 {
		t.Errorf("finalizers are the client's, got %q", obj.Finalizers)
	}
}

func TestBeforeCreateGeneration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		strategy   lifecycle.Strategy
		sent, want int64
	}{
		"the kind's prepare decides":         {strategy{}, 7, 1},
		"a kind that keeps none, as sent":    {plainStrategy{}, 7, 7},
		"a kind that keeps none, none added": {plainStrategy{}, 0, 0},
	} {
		obj, _, err := create(test.strategy, metav1.ObjectMeta{Name: "a", Generation: test.sent})
		if err != nil || obj.Generation != test.want {
			t.Errorf("%s: got %d, %v; want %d", name, obj.Generation, err, test.want)
		}
	}
	if _, _, err := create(plainStrategy{}, metav1.ObjectMeta{Name: "a", Generation: -1}); !object.Is(err, object.Invalid) {
		t.Errorf("a negative generation: got %v, want an Invalid", err)
	}
}

func TestBeforeCreateStrategy(t *testing.T) {
	t.Parallel()
	obj, warnings, err := create(strategy{}, metav1.ObjectMeta{Name: "a"}, "old", "drop")
	if err != nil || len(warnings) != 1 || warnings[0] != "data[old] is old" {
		t.Errorf("got warnings %q, %v", warnings, err)
	}
	if _, kept := obj.Data["drop"]; kept {
		t.Error("the object was not canonicalized")
	}
	// The kind's own errors replace the general ones: they are more precise.
	_, warnings, err = create(strategy{}, metav1.ObjectMeta{}, "bad", "old")
	wantError(t, err, object.Invalid, "data[bad]: Forbidden: is bad")
	if warnings != nil {
		t.Errorf("a refused object has warnings: %q", warnings)
	}
}

func TestBeforeCreateMetadata(t *testing.T) {
	t.Parallel()
	for name, m := range map[string]metav1.ObjectMeta{
		"label":                  {Labels: map[string]string{"a b": "c"}},
		"annotation":             {Annotations: map[string]string{"a b": "c"}},
		"finalizer":              {Finalizers: []string{"no slash"}},
		"both policy finalizers": {Finalizers: []string{"orphan", "foregroundDeletion"}},
		"owner without uid":      {OwnerReferences: []metav1.OwnerReference{{APIVersion: "v1", Kind: "Pod", Name: "p"}}},
	} {
		m.Name = "a"
		if _, _, err := create(strategy{}, m); !object.Is(err, object.Invalid) {
			t.Errorf("%s: got %v, want an Invalid", name, err)
		}
	}
	m := metav1.ObjectMeta{Name: "a", Finalizers: []string{"no slash", "no slash"}}
	_, _, err := create(strategy{}, m)
	var refusal *object.Error
	if !errors.As(err, &refusal) || len(refusal.Fields) != 1 {
		t.Errorf("the same error twice is one error, got %+v", err)
	}
}

func TestBeforeCreateUnstructured(t *testing.T) {
	t.Parallel()
	obj := &unstructured.Unstructured{Object: map[string]any{"metadata": map[string]any{
		"generateName": "w-", "deletionTimestamp": "2024-01-01T00:00:00Z", "deletionGracePeriodSeconds": int64(3),
	}}}
	c := lifecycle.Creation{Namespace: "here", Now: start, UID: "u", Suffix: "abcde"}
	if _, err := lifecycle.BeforeCreate(context.Background(), plainStrategy{}, obj, c); err != nil {
		t.Fatal(err)
	}
	body, err := object.Encode(obj)
	if err != nil {
		t.Fatal(err)
	}
	want := `{"metadata":{"creationTimestamp":"2024-05-06T07:08:09Z","generateName":"w-","name":"w-abcde","namespace":"here","uid":"u"}}`
	if string(body) != want {
		t.Errorf("got  %s\nwant %s", body, want)
	}
}

func TestBeforeCreateNeedsItsInputs(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]lifecycle.Creation{
		"no uid":    {Namespace: "here", Now: start, Suffix: "abcde"},
		"no time":   {Namespace: "here", UID: "u", Suffix: "abcde"},
		"no suffix": {Namespace: "here", Now: start, UID: "u"},
	} {
		obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{GenerateName: "a-"}}
		_, err := lifecycle.BeforeCreate(context.Background(), strategy{}, obj, c)
		var refusal *object.Error
		if err == nil || errors.As(err, &refusal) {
			t.Errorf("%s: got %v, want an internal error", name, err)
		}
	}
	c := lifecycle.Creation{Namespace: "here", Now: start, UID: "u"}
	if _, err := lifecycle.BeforeCreate(context.Background(), strategy{}, &corev1.ConfigMapList{}, c); err == nil {
		t.Error("a list was taken for an object")
	}
}

// TestMarksOfAWrite: a create and an update refuse what the server alone sets, and what it would ignore. A restore brings back what was
// stored before it was refused; an update leaves it.
func TestMarksOfAWrite(t *testing.T) {
	t.Parallel()
	for text, m := range map[string]metav1.ObjectMeta{
		"is set by the server alone":   {Annotations: map[string]string{lifecycle.HeldAbove: "3"}},
		"in plain digits":              {Annotations: map[string]string{lifecycle.MaxCascade: "many"}},
		lifecycle.PropagateGrace + " ": {Finalizers: []string{lifecycle.PropagateGrace}},
	} {
		m.Name = "a"
		_, _, err := create(strategy{}, m)
		wantRefusal(t, "create", err, text)
		_, _, err = update(t, strategy{}, stored(nil), func(o *corev1.ConfigMap) { o.Annotations, o.Finalizers = m.Annotations, m.Finalizers })
		wantRefusal(t, "update", err, text)
	}
	ignored := map[string]string{lifecycle.MaxCascade: "many"}
	c := lifecycle.Creation{Namespace: "here", Now: start, UID: "u", Restored: true}
	if _, err := lifecycle.BeforeCreate(context.Background(), strategy{}, &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Annotations: ignored}}, c); err != nil {
		t.Errorf("restored: %v", err)
	}
	if _, _, err := update(t, strategy{}, stored(func(o *corev1.ConfigMap) { o.Annotations = ignored }), func(o *corev1.ConfigMap) { o.Data = nil }); err != nil {
		t.Errorf("left as it is: %v", err)
	}
}

func wantRefusal(t *testing.T, what string, err error, text string) {
	t.Helper()
	if !object.Is(err, object.Invalid) || !strings.Contains(err.Error(), text) {
		t.Errorf("%s: %v, want %q", what, err, text)
	}
}
