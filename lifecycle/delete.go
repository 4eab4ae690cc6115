package lifecycle

import (
	"bytes"
	"fmt"
	"slices"
	"strconv"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/validation"

	"github.com/exeunt/exeunt/object"
)

// Outcome is what a delete request does to an object.
type Outcome int

// The outcomes of a delete request.
const (
	Remove    Outcome = iota + 1 // the object is removed now
	Mark                         // the object becomes, or stays, DELETING and is written
	Unchanged                    // the object is already as requested; nothing is written
)

func (o Outcome) String() string {
	switch o {
	case Remove:
		return "remove"
	case Mark:
		return "mark"
	case Unchanged:
		return "unchanged"
	}
	return "outcome " + strconv.Itoa(int(o))
}

// Deletion is a delete request and the object that it deletes.
type Deletion struct {
	Body     []byte            // as stored
	Meta     metav1.ObjectMeta // parsed from Body
	Revision int64             // of the object as stored
	Options  metav1.DeleteOptions
	Rules    Rules
	Now      time.Time
	// MaxCascade is the guard's limit: how many objects the cascade may delete
	// without confirmation. 0 means no limit, or no cascade.
	MaxCascade int64
	// NamespaceLimits: the cascade may enter namespaces that have limits of their own.
	NamespaceLimits bool
}

// Decision is what the store must do. With Mark, it writes Meta and Body; with
// Remove and Unchanged they are the stored object.
type Decision struct {
	Outcome Outcome
	Meta    metav1.ObjectMeta
	Body    []byte
	Policy  metav1.DeletionPropagation // the effective policy; empty means Background
	// Answer is the metadata for the answer to a graceful delete that removes the
	// object at once: with the marks of this deletion, which are never stored. Nil means Meta.
	Answer *metav1.ObjectMeta
}

// BeforeDelete decides what a delete request does. It changes none of its
// inputs. Errors: Invalid for invalid options, those of Rules.Refuse, Conflict for
// preconditions that do not hold; any other error means that the stored body
// cannot be read.
//
// The order matters and is that of Kubernetes. First comes a graceful deletion
// that is already pending, so a request cannot change finalizers during it. Then
// the options decide about the collector's finalizers. Then the remaining
// finalizers decide whether the object is removed.
func BeforeDelete(d Deletion) (Decision, error) {
	if errs := validation.ValidateDeleteOptions(&d.Options); len(errs) > 0 {
		return Decision{}, object.InvalidFields(errs)
	}
	if d.Rules.Refuse != nil {
		if err := d.Rules.Refuse(d.Meta.Name); err != nil {
			return Decision{}, err
		}
	}
	if err := checkPreconditions(d); err != nil {
		return Decision{}, err
	}
	asStored := Decision{Outcome: Unchanged, Meta: d.Meta, Body: d.Body, Policy: d.Policy()}
	first := d.Meta.DeletionTimestamp == nil
	m := d.Meta
	manner := applyGrace(&m, d)
	if manner == pending {
		return asStored, nil
	}
	if first {
		settleGrace(&m, d)
	}
	m.Finalizers = finalizersOnDelete(d.with(m))
	if first && (d.MaxCascade > 0 || d.NamespaceLimits) {
		hold(&m, d.MaxCascade)
	}

	body := d.Body
	if first && d.Rules.MarkDeleting != nil {
		var err error
		if body, err = d.Rules.MarkDeleting(bytes.Clone(d.Body), d.Now); err != nil {
			return Decision{}, fmt.Errorf("mark body as deleting: %w", err)
		}
	}
	waits := manner == graceful && (d.Rules.MarkFirst || *m.DeletionGracePeriodSeconds > 0)
	if len(m.Finalizers) == 0 && !waits && removable(d.Rules, body) {
		asStored.Outcome = Remove
		if manner == graceful {
			asStored.Answer = &m
		}
		return asStored, nil
	}
	if manner == immediate {
		endGrace(&m, d)
	}
	if !first && sameDeletion(m, d.Meta) {
		return asStored, nil
	}
	body, err := object.WithMeta(body, m)
	if err != nil {
		return Decision{}, fmt.Errorf("mark as deleting: %w", err)
	}
	return Decision{Outcome: Mark, Meta: m, Body: body, Policy: asStored.Policy}, nil
}

// with is the deletion of an object with these annotations.
func (d Deletion) with(m metav1.ObjectMeta) Deletion {
	d.Meta.Annotations = m.Annotations
	return d
}

// RemoveNow reports whether a DELETING object has nothing left to wait for. Call it
// after an update, with the body and metadata that will be written.
func RemoveNow(body []byte, m metav1.ObjectMeta, r Rules) bool {
	return m.DeletionTimestamp != nil &&
		graceOver(m.DeletionGracePeriodSeconds) &&
		len(m.Finalizers) == 0 &&
		removable(r, body)
}

func removable(r Rules, body []byte) bool {
	return r.Removable == nil || r.Removable(body)
}

// checkPreconditions refuses a request for another uid or another version of the
// object.
func checkPreconditions(d Deletion) error {
	p := d.Options.Preconditions
	if p == nil {
		return nil
	}
	if p.UID != nil && *p.UID != d.Meta.UID {
		return object.Errorf(object.Conflict,
			"the UID in the precondition (%s) does not match the UID in record (%s). The object might have been deleted and then recreated",
			*p.UID, d.Meta.UID)
	}
	version := strconv.FormatInt(d.Revision, 10)
	if p.ResourceVersion != nil && *p.ResourceVersion != version {
		return object.Errorf(object.Conflict,
			"the ResourceVersion in the precondition (%s) does not match the ResourceVersion in record (%s). The object might have been modified",
			*p.ResourceVersion, version)
	}
	return nil
}

// sameDeletion reports whether all fields that a delete request can change are equal.
func sameDeletion(a, b metav1.ObjectMeta) bool {
	return a.DeletionTimestamp.Equal(b.DeletionTimestamp) &&
		sameSeconds(a.DeletionGracePeriodSeconds, b.DeletionGracePeriodSeconds) &&
		slices.Equal(a.Finalizers, b.Finalizers)
}

func sameSeconds(a, b *int64) bool {
	if a == nil || b == nil {
		return a == b
	}
	return *a == *b
}
