package lifecycle_test

import (
	"context"
	"reflect"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// stored returns a stored object with a change.
func stored(change func(*corev1.ConfigMap)) *corev1.ConfigMap {
	obj := &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "a", Namespace: "here", UID: "u", ResourceVersion: "5",
			CreationTimestamp: *after(-100), Generation: 4,
		},
		Data: map[string]string{"k": "v"},
	}
	if change != nil {
		change(obj)
	}
	return obj
}

// deleting makes an object DELETING, with these finalizers.
func deleting(grace *int64, finalizers ...string) func(*corev1.ConfigMap) {
	return func(obj *corev1.ConfigMap) {
		obj.DeletionTimestamp, obj.DeletionGracePeriodSeconds, obj.Finalizers = after(0), grace, finalizers
	}
}

// update sends old back with a change.
func update(t *testing.T, s strategy, old *corev1.ConfigMap, change func(*corev1.ConfigMap)) (*corev1.ConfigMap, lifecycle.Updated, error) {
	t.Helper()
	obj, before := old.DeepCopy(), old.DeepCopy()
	change(obj)
	updated, err := lifecycle.BeforeUpdate(context.Background(), s, obj, old, lifecycle.Change{Namespace: "here"})
	if !reflect.DeepEqual(old, before) {
		t.Errorf("the old object changed: %+v", old)
	}
	return obj, updated, err
}

func TestBeforeUpdateNamespace(t *testing.T) {
	t.Parallel()
	_, _, err := update(t, strategy{}, stored(nil), func(o *corev1.ConfigMap) { o.Namespace = "there" })
	wantError(t, err, object.BadRequest, "the namespace of the provided object does not match the namespace sent on the request")

	obj, _, err := update(t, strategy{}, stored(nil), func(o *corev1.ConfigMap) { o.Namespace = "" })
	if err != nil || obj.Namespace != "here" {
		t.Errorf("left out: got %q, %v", obj.Namespace, err)
	}
}

func TestBeforeUpdateGeneration(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		change func(*corev1.ConfigMap)
		want   int64
	}{
		"not the client's to raise": {func(o *corev1.ConfigMap) { o.Generation = 9 }, 4},
		"not the client's to lower": {func(o *corev1.ConfigMap) { o.Generation = 0 }, 4},
		"moved by the kind":         {func(o *corev1.ConfigMap) { o.Generation, o.Data = 9, nil }, 5},
	} {
		obj, _, err := update(t, strategy{}, stored(nil), test.change)
		if err != nil || obj.Generation != test.want {
			t.Errorf("%s: got %d, %v; want %d", name, obj.Generation, err, test.want)
		}
	}
}

func TestBeforeUpdateSystemFields(t *testing.T) {
	t.Parallel()
	gone := func(o *corev1.ConfigMap) {
		o.UID, o.CreationTimestamp = "", metav1.Time{}
		o.DeletionTimestamp, o.DeletionGracePeriodSeconds = nil, nil
	}
	for name, test := range map[string]struct {
		old, change func(*corev1.ConfigMap)
		refused     string
	}{
		"left out are kept":                 {nil, gone, ""},
		"left out are kept while DELETING":  {deleting(ptr(int64(30)), "a/b"), gone, ""},
		"creation time cannot be changed":   {nil, func(o *corev1.ConfigMap) { o.CreationTimestamp = *after(7) }, ""},
		"deletion time cannot be changed":   {deleting(nil, "a/b"), func(o *corev1.ConfigMap) { o.DeletionTimestamp = after(9) }, ""},
		"another uid is refused":            {nil, func(o *corev1.ConfigMap) { o.UID = "w" }, `metadata.uid: Invalid value: "w": field is immutable`},
		"another name is refused":           {nil, func(o *corev1.ConfigMap) { o.Name = "b" }, `metadata.name: Invalid value: "b": field is immutable`},
		"an update does not delete":         {nil, func(o *corev1.ConfigMap) { o.DeletionTimestamp = after(9) }, "?"},
		"an update does not give grace":     {nil, func(o *corev1.ConfigMap) { o.DeletionGracePeriodSeconds = ptr(int64(9)) }, "metadata.deletionGracePeriodSeconds: Invalid value: 9: field is immutable"},
		"an update does not change grace":   {deleting(ptr(int64(30))), func(o *corev1.ConfigMap) { o.DeletionGracePeriodSeconds = ptr(int64(0)) }, "metadata.deletionGracePeriodSeconds: Invalid value: 0: field is immutable"},
		"grace is not given to a DELETING":  {deleting(nil), func(o *corev1.ConfigMap) { o.DeletionGracePeriodSeconds = ptr(int64(1)) }, "?"},
		"a selfLink is dropped":             {nil, func(o *corev1.ConfigMap) { o.SelfLink = "/x" }, ""},
		"same values may be sent":           {deleting(ptr(int64(30)), "a/b"), func(*corev1.ConfigMap) {}, ""},
		"the kind's rules hold for updates": {nil, func(o *corev1.ConfigMap) { o.Data["bad"] = "" }, "data[bad]: Forbidden: is bad"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			old := stored(test.old)
			obj, _, err := update(t, strategy{}, old, test.change)
			switch {
			case test.refused == "?":
				if !object.Is(err, object.Invalid) {
					t.Errorf("got %v, want an Invalid", err)
				}
			case test.refused != "":
				wantError(t, err, object.Invalid, test.refused)
			case err != nil:
				t.Error(err)
			case !reflect.DeepEqual(obj.ObjectMeta, old.ObjectMeta):
				t.Errorf("got %+v\nwant %+v", obj.ObjectMeta, old.ObjectMeta)
			}
		})
	}
}

func TestBeforeUpdateFinalizersOnlyShrinkWhileDeleting(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old  func(*corev1.ConfigMap)
		to   []string
		fine bool
	}{
		"ACTIVE may grow":             {nil, []string{"a/b"}, true},
		"DELETING may shrink":         {deleting(nil, "a/b", "c/d"), []string{"c/d"}, true},
		"DELETING may change order":   {deleting(nil, "a/b", "c/d"), []string{"c/d", "a/b"}, true},
		"DELETING may not grow":       {deleting(nil, "a/b"), []string{"a/b", "c/d"}, false},
		"DELETING may not exchange":   {deleting(nil, "a/b"), []string{"c/d"}, false},
		"grace does not let it grow":  {deleting(ptr(int64(30))), []string{"c/d"}, false},
		"nor may orphan be added":     {deleting(nil, "a/b"), []string{"a/b", "orphan"}, false},
		"nor with other data changed": {deleting(nil), []string{"foregroundDeletion"}, false},
	} {
		_, _, err := update(t, strategy{}, stored(test.old), func(o *corev1.ConfigMap) { o.Finalizers = test.to })
		if test.fine && err != nil || !test.fine && !object.Is(err, object.Invalid) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}

func TestBeforeUpdateRemove(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]struct {
		old    func(*corev1.ConfigMap)
		left   []string
		remove bool
	}{
		"ACTIVE without finalizers stays":    {nil, nil, false},
		"the last finalizer of an ACTIVE":    {func(o *corev1.ConfigMap) { o.Finalizers = []string{"a/b"} }, nil, false},
		"the last finalizer, no grace":       {deleting(nil, "a/b"), nil, true},
		"the last finalizer, grace 0":        {deleting(ptr(int64(0)), "a/b"), nil, true},
		"the last finalizer, grace left":     {deleting(ptr(int64(30)), "a/b"), nil, false},
		"not the last finalizer":             {deleting(ptr(int64(0)), "a/b", "c/d"), []string{"c/d"}, false},
		"nothing to wait for, any update":    {deleting(ptr(int64(0))), nil, true},
		"a negative grace period is a grace": {deleting(ptr(int64(-1)), "a/b"), nil, false},
	} {
		obj, updated, err := update(t, strategy{}, stored(test.old), func(o *corev1.ConfigMap) { o.Finalizers = test.left })
		if err != nil || updated.Remove != test.remove {
			t.Errorf("%s: got %v, %v; want %v", name, updated.Remove, err, test.remove)
		}
		if again := lifecycle.RemoveNow(nil, obj.ObjectMeta, lifecycle.Rules{}); again != test.remove {
			t.Errorf("%s: RemoveNow says %v, want %v", name, again, test.remove)
		}
	}
}

func TestRemoveNowAsksTheKind(t *testing.T) {
	t.Parallel()
	m := stored(deleting(nil)).ObjectMeta
	rules := lifecycle.Rules{Removable: func(body []byte) bool { return string(body) == "yes" }}
	if lifecycle.RemoveNow([]byte("no"), m, rules) || !lifecycle.RemoveNow([]byte("yes"), m, rules) {
		t.Error("RemoveNow ignored the kind's Removable")
	}
}

func TestBeforeUpdateResourceVersion(t *testing.T) {
	t.Parallel()
	for _, sent := range []string{"", "0"} {
		unversioned := func(o *corev1.ConfigMap) { o.ResourceVersion = sent }
		obj, _, err := update(t, strategy{}, stored(nil), unversioned)
		if err != nil || obj.ResourceVersion != "5" {
			t.Errorf("unconditional %q: got %q, %v; want that of the old object", sent, obj.ResourceVersion, err)
		}
	}
	_, _, err := update(t, strategy{conditional: true}, stored(nil), func(o *corev1.ConfigMap) { o.ResourceVersion = "" })
	wantError(t, err, object.Invalid, `metadata.resourceVersion: Invalid value: "": must be specified for an update`)
}

func TestBeforeUpdateStrategy(t *testing.T) {
	t.Parallel()
	obj, updated, err := update(t, strategy{}, stored(nil), func(o *corev1.ConfigMap) { o.Data["old"], o.Data["drop"] = "x", "x" })
	if err != nil || !reflect.DeepEqual(updated.Warnings, []string{"data[old] is old"}) {
		t.Errorf("got warnings %q, %v", updated.Warnings, err)
	}
	if _, kept := obj.Data["drop"]; kept {
		t.Error("the object was not canonicalized")
	}
	list, c := &corev1.ConfigMapList{}, lifecycle.Change{Namespace: "here"}
	if _, err := lifecycle.BeforeUpdate(context.Background(), strategy{}, list, stored(nil), c); err == nil {
		t.Error("a list was taken for the new object")
	}
	if _, err := lifecycle.BeforeUpdate(context.Background(), strategy{}, stored(nil), list, c); err == nil {
		t.Error("a list was taken for the old object")
	}
}

func TestCheckVersion(t *testing.T) {
	t.Parallel()
	const modified = "the object has been modified; please apply your changes to the latest version and try again"
	for name, test := range map[string]struct {
		sent          string
		unconditional bool
		code          object.Code
		text          string
	}{
		"the current one":             {"5", false, 0, ""},
		"none, and none needed":       {"", true, 0, ""},
		"zero is none":                {"0", true, 0, ""},
		"none, but one needed":        {"", false, object.Invalid, "metadata.resourceVersion: Invalid value: 0: must be specified for an update"},
		"zero, but one needed":        {"0", false, object.Invalid, "metadata.resourceVersion: Invalid value: 0: must be specified for an update"},
		"an older one":                {"4", false, object.Conflict, modified},
		"an older one, none needed":   {"4", true, object.Conflict, modified},
		"one that has not been":       {"6", true, object.Conflict, modified},
		"one that is no version":      {"abc", true, object.BadRequest, `invalid resourceVersion "abc": must be a decimal integer`},
		"one with zeros in front":     {"05", true, object.BadRequest, `invalid resourceVersion "05": must be a decimal integer`},
		"one that is below all of it": {"-5", true, object.BadRequest, `invalid resourceVersion "-5": must be a decimal integer`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			err := lifecycle.CheckVersion(test.sent, "5", test.unconditional)
			if test.code == 0 {
				if err != nil {
					t.Error(err)
				}
				return
			}
			wantError(t, err, test.code, test.text)
		})
	}
}
