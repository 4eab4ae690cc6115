package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

// The guard holds a deletion whose cascade is larger than a limit, until a person
// confirms it or calls it off. The delete request itself does not count: a delete
// that can have a cascade adds the guard's finalizer and the current limit to the
// object, and the collector counts before any other step. All that the collector
// needs is on the object, so the result is the same on every replica, with any
// flags, after any restart.
const (
	// ConfirmCascade is the guard's finalizer, and the annotation by which a
	// person confirms: its value is the number of objects that may be deleted at
	// most. So a person cannot confirm more than they have seen. Set before the
	// delete, it is the object's own limit.
	ConfirmCascade = "lifecycle.exeunt.dev/confirm-cascade"

	// MaxCascade is the annotation of a Namespace that overrides the server's
	// limit, for the Namespace and the objects in it. "0" switches the guard off.
	MaxCascade = "lifecycle.exeunt.dev/max-cascade"

	// ConfirmBy is the annotation of a Namespace that says who may confirm a held
	// deletion: "another-user" than the one who asked for it.
	ConfirmBy   = "lifecycle.exeunt.dev/confirm-by"
	anotherUser = "another-user"

	// HeldAbove is the annotation that a delete adds with the finalizer: the limit
	// at that time. "0" stands for no limit but those of the namespaces that the
	// cascade enters.
	HeldAbove = "lifecycle.exeunt.dev/held-above"
)

// MostCounted is where the guard stops counting: a larger limit is no limit.
const MostCounted = 1_000_000

// CascadeLimit is how many objects a deletion may delete, the object itself
// included, by the server's limit and the annotations of the Namespace. 0 means
// no limit. An invalid annotation is ignored.
func CascadeLimit(server int64, namespace map[string]string) int64 {
	if limit, ok := read(namespace, MaxCascade, parseLimit); ok {
		return limit
	}
	return max(server, 0)
}

// AnotherConfirms reports whether the annotations of a Namespace demand that another user
// confirms than the one who asked for the deletion.
func AnotherConfirms(namespace map[string]string) bool {
	_, ok := read(namespace, ConfirmBy, parseConfirmBy)
	return ok
}

// Weakens reports whether an update of a Namespace's annotations makes its guard weaker: a
// higher limit than before, or none, or no other user that must confirm. server is the limit
// of Namespaces without their own.
func Weakens(server int64, now, before map[string]string) bool {
	limit, was := CascadeLimit(server, now), CascadeLimit(server, before)
	return was != 0 && (limit == 0 || limit > was) || AnotherConfirms(before) && !AnotherConfirms(now)
}

// hold adds the guard's finalizer and limit when a deletion begins. A finalizer that
// is there already asks for a confirmation in any case, unless there is a limit.
func hold(m *metav1.ObjectMeta, limit int64) {
	if !slices.Contains(m.Finalizers, ConfirmCascade) {
		m.Finalizers = append(m.Finalizers, ConfirmCascade)
	} else if limit == 0 {
		return
	}
	m.Annotations = maps.Clone(m.Annotations)
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[HeldAbove] = strconv.FormatInt(limit, 10)
}

// Guard is the guard's state of a DELETING object.
type Guard struct {
	Held      bool  // the guard holds the deletion
	Limit     int64 // the limit when it was deleted
	Unlimited bool  // Limit is none
	Confirmed int64 // how many objects a person confirmed; 0 if not confirmed
}

// Allowed is how many objects may be deleted at most.
func (g Guard) Allowed() int64 { return max(g.Limit, g.Confirmed) }

// GuardOf reads the guard's state from the metadata. A finalizer without a limit,
// added by a client, always needs a confirmation.
func GuardOf(m *metav1.ObjectMeta) Guard {
	g := Guard{Held: m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, ConfirmCascade)}
	var ok bool
	g.Limit, ok = read(m.Annotations, HeldAbove, parseLimit)
	g.Unlimited = ok && g.Limit == 0
	g.Confirmed, _ = read(m.Annotations, ConfirmCascade, parseConfirmed)
	return g
}

// LetPass removes the guard's finalizer and limit. It does not change slices and
// maps that m shares with other metadata.
func LetPass(m *metav1.ObjectMeta) {
	m.Finalizers = slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == ConfirmCascade })
	m.Annotations = maps.Clone(m.Annotations)
	delete(m.Annotations, HeldAbove)
}

// CallOff makes a DELETING object ACTIVE again. This is possible only while the
// guard holds it, because then the cascade has not begun. The object keeps its uid,
// so it keeps its dependents. Error: Conflict when the guard does not hold it.
//
// CallOff removes what the deletion added: the guard's marks, the finalizers of the
// policy and of the kind, and the deletion time. asked is the object from before the deletion: what of
// these it had, it has again. CallOff does not restore finalizers that clients have removed since.
func CallOff(body []byte, m, asked metav1.ObjectMeta, r Rules) (metav1.ObjectMeta, []byte, error) {
	if !GuardOf(&m).Held {
		return m, body, object.Errorf(object.Conflict, "its deletion has begun and cannot be called off")
	}
	LetPass(&m)
	delete(m.Annotations, ConfirmCascade)
	if confirmed, had := asked.Annotations[ConfirmCascade]; had {
		m.Annotations[ConfirmCascade] = confirmed
	}
	ours := func(f string) bool {
		return policyOf(f) != "" || f == PropagateGrace || f == ConfirmCascade || slices.Contains(r.DeleteFinalizers, f)
	}
	theirs := slices.DeleteFunc(m.Finalizers, ours)
	m.Finalizers = slices.DeleteFunc(slices.Clone(asked.Finalizers), func(f string) bool { return !ours(f) && !slices.Contains(theirs, f) })
	for _, f := range theirs {
		if !slices.Contains(m.Finalizers, f) {
			m.Finalizers = append(m.Finalizers, f)
		}
	}
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	if !r.NoGrace {
		nextGeneration(&m)
	}
	var err error
	if r.MarkActive != nil {
		if body, err = r.MarkActive(slices.Clone(body)); err != nil {
			return m, body, fmt.Errorf("mark body as active: %w", err)
		}
	}
	body, err = object.WithMeta(body, m)
	return m, body, err
}
