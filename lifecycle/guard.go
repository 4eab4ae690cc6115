package lifecycle

import (
	"fmt"
	"maps"
	"slices"
	"strconv"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/object"
)

// The guard holds a deletion that would take more with it than is allowed,
// until a person confirms it or calls it off. Whoever deletes does not count:
// a delete that can have a cascade marks the object with the guard's finalizer
// and with the limit that applies at that moment, and the collector counts
// before it does anything else. All that it needs is on the object, so it makes
// no difference which replica looks, with which flags, after which restart.
const (
	// ConfirmCascade is the guard's finalizer, and the annotation by which a
	// person confirms: its value is the most objects that may go. So nobody can
	// confirm more than he has seen. Set beforehand, it is the object's own
	// limit.
	ConfirmCascade = "lifecycle.exeunt.dev/confirm-cascade"

	// MaxCascade is the annotation of a Namespace that overrides the server's
	// limit, for what is in it and for itself. "0" switches the guard off.
	MaxCascade = "lifecycle.exeunt.dev/max-cascade"

	// HeldAbove is the annotation that a delete leaves beside the finalizer: the
	// limit that applied.
	HeldAbove = "lifecycle.exeunt.dev/held-above"
)

// MostCounted is where the guard stops counting: a larger limit is none.
const MostCounted = 1_000_000

// CascadeLimit is how many objects a deletion may take with it, itself
// included, by the server's limit and the annotations of the Namespace. 0: any
// number. An annotation that is no such number is ignored.
func CascadeLimit(server int64, namespace map[string]string) int64 {
	if limit, ok := count(namespace, MaxCascade); ok {
		return limit
	}
	return max(server, 0)
}

func count(annotations map[string]string, name string) (int64, bool) {
	text, ok := annotations[name]
	if !ok {
		return 0, false
	}
	n, err := strconv.ParseInt(text, 10, 64)
	return n, err == nil && n >= 0
}

// hold puts an object under guard as its deletion begins.
func hold(m *metav1.ObjectMeta, limit int64) {
	if !slices.Contains(m.Finalizers, ConfirmCascade) {
		m.Finalizers = append(m.Finalizers, ConfirmCascade)
	}
	m.Annotations = maps.Clone(m.Annotations)
	if m.Annotations == nil {
		m.Annotations = map[string]string{}
	}
	m.Annotations[HeldAbove] = strconv.FormatInt(limit, 10)
}

// Guard is what the guard has to know of a DELETING object.
type Guard struct {
	Held      bool   // the guard has yet to let it pass
	Limit     int64  // that applied when it was deleted
	Confirmed int64  // the most that a person agreed to; 0: nobody did
	Mistaken  string // what the person wrote, if that is no number
}

// Allowed is the most objects that may go.
func (g Guard) Allowed() int64 { return max(g.Limit, g.Confirmed) }

// GuardOf reads it from the metadata. A finalizer without a limit, which
// somebody put there by hand, asks for confirmation in any case.
func GuardOf(m *metav1.ObjectMeta) Guard {
	g := Guard{Held: m.DeletionTimestamp != nil && slices.Contains(m.Finalizers, ConfirmCascade)}
	g.Limit, _ = count(m.Annotations, HeldAbove)
	var ok bool
	if g.Confirmed, ok = count(m.Annotations, ConfirmCascade); !ok {
		g.Confirmed, g.Mistaken = 0, m.Annotations[ConfirmCascade]
	}
	return g
}

// LetPass takes an object out of the guard's hands. What m was made from is not
// changed.
func LetPass(m *metav1.ObjectMeta) {
	m.Finalizers = slices.DeleteFunc(slices.Clone(m.Finalizers), func(f string) bool { return f == ConfirmCascade })
	m.Annotations = maps.Clone(m.Annotations)
	delete(m.Annotations, HeldAbove)
}

// CallOff makes a DELETING object ACTIVE again, which is possible only while the
// guard holds it: nothing of what would follow has begun. It keeps its uid, so
// that its dependents are still its own. Error: Conflict when it is not held.
//
// What the deletion had put on it goes: the guard's own marks, the finalizers of
// the chosen policy and of the kind, the deletion's time. Finalizers that others
// have removed meanwhile are theirs to put back.
func CallOff(body []byte, m metav1.ObjectMeta, r Rules) (metav1.ObjectMeta, []byte, error) {
	if !GuardOf(&m).Held {
		return m, body, object.Errorf(object.Conflict, "its deletion has begun and cannot be called off")
	}
	LetPass(&m)
	delete(m.Annotations, ConfirmCascade)
	m.Finalizers = slices.DeleteFunc(m.Finalizers, func(f string) bool {
		return policyOf(f) != "" || f == PropagateGrace || slices.Contains(r.DeleteFinalizers, f)
	})
	m.DeletionTimestamp, m.DeletionGracePeriodSeconds = nil, nil
	nextGeneration(&m)
	var err error
	if r.MarkActive != nil {
		if body, err = r.MarkActive(slices.Clone(body)); err != nil {
			return m, body, fmt.Errorf("mark body as active: %w", err)
		}
	}
	body, err = object.WithMeta(body, m)
	return m, body, err
}
