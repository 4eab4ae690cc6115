package lifecycle_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
)

// world is a store of one name. It acts on decisions as a store does, and
// after each step checks what must hold for every history.
type world struct {
	t        *testing.T
	now      time.Time
	rules    lifecycle.Rules
	body     []byte // nil means DOES_NOT_EXIST
	revision int64
	created  int
	removed  map[types.UID]int
}

func newWorld(t *testing.T) *world {
	return &world{t: t, now: start, revision: 1, removed: map[types.UID]int{}}
}

func (w *world) meta() metav1.ObjectMeta {
	w.t.Helper()
	m, err := object.ParseMeta(w.body)
	if err != nil {
		w.t.Fatal(err)
	}
	return m
}

func (w *world) object() *corev1.ConfigMap {
	w.t.Helper()
	obj := &corev1.ConfigMap{}
	version := strconv.FormatInt(w.revision, 10)
	if err := object.DecodeInto(w.body, version, corev1.SchemeGroupVersion.WithKind("ConfigMap"), obj); err != nil {
		w.t.Fatal(err)
	}
	return obj
}

func (w *world) create(finalizers []string) error {
	w.t.Helper()
	if w.body != nil {
		if w.meta().DeletionTimestamp != nil {
			return object.Errorf(object.BeingDeleted, "object is being deleted")
		}
		return object.Errorf(object.AlreadyExists, "already exists")
	}
	w.created++
	obj := &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "a", Finalizers: finalizers}}
	c := lifecycle.Creation{Namespace: "here", Now: w.now, UID: types.UID("uid-" + strconv.Itoa(w.created))}
	if _, err := lifecycle.BeforeCreate(context.Background(), strategy{}, obj, c); err != nil {
		return err
	}
	w.write(obj)
	return nil
}

func (w *world) write(obj *corev1.ConfigMap) {
	w.t.Helper()
	body, err := object.Encode(obj)
	if err != nil {
		w.t.Fatal(err)
	}
	w.body = body
	w.revision++
}

func (w *world) leave() {
	w.t.Helper()
	uid := w.meta().UID
	if w.removed[uid]++; w.removed[uid] != 1 {
		w.t.Fatalf("%s left %d times", uid, w.removed[uid])
	}
	w.body = nil
	w.revision++
}

// update sends the object back with a change, at a version.
func (w *world) update(version string, change func(*corev1.ConfigMap)) error {
	w.t.Helper()
	if w.body == nil {
		return object.Errorf(object.NotFound, "not found")
	}
	old := w.object()
	if err := lifecycle.CheckVersion(version, old.ResourceVersion, true); err != nil {
		return err
	}
	obj := old.DeepCopy()
	change(obj)
	updated, err := lifecycle.BeforeUpdate(context.Background(), strategy{}, obj, old, lifecycle.Change{Namespace: "here"})
	if err != nil {
		return err
	}
	before := w.meta()
	w.write(obj)
	if updated.Remove != (before.DeletionTimestamp != nil && lifecycle.RemoveNow(w.body, w.meta(), lifecycle.Rules{})) {
		w.t.Fatalf("update says remove %v, but RemoveNow says the opposite: %s", updated.Remove, w.body)
	}
	w.check(before, w.meta())
	if lifecycle.RemoveNow(w.body, w.meta(), w.rules) {
		w.leave()
	}
	return nil
}

func (w *world) delete(options metav1.DeleteOptions) (lifecycle.Outcome, error) {
	w.t.Helper()
	if w.body == nil {
		return 0, object.Errorf(object.NotFound, "not found")
	}
	before := w.meta()
	decision, err := lifecycle.BeforeDelete(lifecycle.Deletion{
		Body: w.body, Meta: before, Revision: w.revision, Options: options, Rules: w.rules, Now: w.now,
	})
	if err != nil {
		return 0, err
	}
	switch decision.Outcome {
	case lifecycle.Remove:
		w.leave()
	case lifecycle.Mark:
		w.body = decision.Body
		w.revision++
		w.check(before, w.meta())
	}
	return decision.Outcome, nil
}

// check compares an object with its predecessor.
func (w *world) check(old, m metav1.ObjectMeta) {
	w.t.Helper()
	if m.Generation < old.Generation {
		w.t.Fatalf("generation fell from %d to %d", old.Generation, m.Generation)
	}
	if m.UID != old.UID || !m.CreationTimestamp.Equal(&old.CreationTimestamp) {
		w.t.Fatalf("identity changed from %+v to %+v", old, m)
	}
	if old.DeletionTimestamp == nil {
		return
	}
	if m.DeletionTimestamp == nil || m.DeletionTimestamp.After(old.DeletionTimestamp.Time) {
		w.t.Fatalf("deletion time moved from %v to %v", old.DeletionTimestamp, m.DeletionTimestamp)
	}
	was, is := old.DeletionGracePeriodSeconds, m.DeletionGracePeriodSeconds
	if was != nil && (is == nil || *is > *was) {
		w.t.Fatalf("grace period grew from %v to %v", was, is)
	}
	for _, f := range m.Finalizers {
		own := f == metav1.FinalizerOrphanDependents || f == metav1.FinalizerDeleteDependents
		if !own && !slices.Contains(old.Finalizers, f) {
			w.t.Fatalf("finalizer %s was added to a DELETING object", f)
		}
	}
}

// String returns the state in the form of the scripts.
func (w *world) String() string {
	if w.body == nil {
		return "DOES_NOT_EXIST"
	}
	m := w.meta()
	var b strings.Builder
	b.WriteString("ACTIVE")
	if m.DeletionTimestamp != nil {
		b.Reset()
		at := m.DeletionTimestamp.Sub(start.Truncate(time.Second))
		fmt.Fprintf(&b, "DELETING at %v", at)
		if m.DeletionGracePeriodSeconds != nil {
			fmt.Fprintf(&b, ", grace %d", *m.DeletionGracePeriodSeconds)
		}
	}
	fmt.Fprintf(&b, ", %s, generation %d", m.UID, m.Generation)
	if len(m.Finalizers) > 0 {
		fmt.Fprintf(&b, ", finalizers %s", strings.Join(m.Finalizers, " "))
	}
	return b.String()
}
