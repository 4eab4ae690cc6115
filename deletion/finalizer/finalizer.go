// Package finalizer removes the finalizer of another controller from an object
// that is being deleted ([Service.RemoveFinalizer]).
//
// A finalizer promises that its controller cleans up. Removing it breaks that
// promise, so it is its own request and not a patch: it needs a reason, and it
// leaves a log line and an Event, in the same transaction, that outlives the
// object. The service refuses to remove finalizers of this server itself, and
// names the command to use instead.
//
// It uses metadata and the removal rules of the kind only, so it works for objects
// whose definition is broken or gone.
//
// The package has no HTTP code: the request is a kind ([Service.Kinds]) whose
// objects are answered and never stored. The decision is a pure function in
// decide.go.
package finalizer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
)

// reporter is the source of the Event about a removal.
const reporter = "exeunt"

// Service removes finalizers. It is safe for concurrent use.
type Service struct {
	store *store.Store
	kinds *kind.Registry
	log   *slog.Logger
}

// New makes a service on a store.
func New(st *store.Store, kinds *kind.Registry, log *slog.Logger) (*Service, error) {
	if st == nil || kinds == nil {
		return nil, errors.New("new finalizer service: store and kinds must be set")
	}
	log = cmp.Or(log, slog.Default())
	return &Service{store: st, kinds: kinds, log: log}, nil
}

// RemoveFinalizer removes the finalizer in spec, for a client. It
// reads the object, decides, changes it and records the Event in one transaction.
// Errors: NotFound; Conflict for another uid or an object that is not DELETING;
// Invalid otherwise.
func (s *Service) RemoveFinalizer(ctx context.Context, spec v1.FinalizerRemovalSpec, client kind.Client) (v1.FinalizerRemovalStatus, error) {
	var status v1.FinalizerRemovalStatus
	if err := checkSpec(spec); err != nil {
		return status, err
	}
	find, err := s.finder(client, spec.Object)
	if err != nil {
		return status, err
	}
	err = s.store.Transact(ctx, func(tx *store.Tx) error {
		o, err := find(ctx, tx)
		if err != nil {
			return err
		}
		if err := client.May("force-finalize", o.Key); err != nil {
			return err
		}
		status, err = s.remove(ctx, tx, o, spec, client.Name)
		return err
	})
	if err != nil {
		return v1.FinalizerRemovalStatus{}, err
	}
	if !spec.DryRun {
		s.log.Warn("finalizer removed by force", "kind", status.Object.Kind, "namespace", status.Object.Namespace, "name", status.Object.Name,
			"uid", status.Object.UID, "finalizer", spec.Finalizer, "actor", client.Name, "reason", spec.Reason, "gone", status.Gone)
	}
	return status, nil
}

func (s *Service) remove(ctx context.Context, tx *store.Tx, o *store.Stored, spec v1.FinalizerRemovalSpec, client string) (v1.FinalizerRemovalStatus, error) {
	status := v1.FinalizerRemovalStatus{Object: s.reference(o)}
	var rules lifecycle.Rules
	if k, ok := s.kinds.Snapshot().Stored(o.Key.Kind); ok {
		rules = k.Rules
	}
	d, err := decide(o, spec.Finalizer, rules, status.Object)
	if err != nil {
		return status, err
	}
	status.Gone, status.Finalizers = d.remove, d.left
	if spec.DryRun {
		return status, nil
	}
	message := fmt.Sprintf("finalizer %s removed by %s: %s", spec.Finalizer, client, spec.Reason)
	if err := tx.SetCause(ctx, client, ""); err != nil {
		return status, err
	}
	if d.remove {
		message += " (nothing else held the object: it is gone)"
		tx.Remove(o)
	} else if _, err := tx.Rewrite(o, &d.meta, d.body); err != nil {
		return status, err
	}
	return status, event.Recorder{Kinds: s.kinds}.Record(ctx, tx, tx.Now, event.Event{
		About: o.Object, Type: corev1.EventTypeWarning, Reason: "FinalizerRemoved", Message: message, Source: reporter,
		// If the finalizer is set and removed again, that is another Event.
		Topic: spec.Finalizer + " " + o.ResourceVersion(), Elsewhere: true,
	})
}

// find reads the object of a request in its transaction.
type find func(ctx context.Context, tx *store.Tx) (*store.Stored, error)

// check returns what a read found, if it is the object that the client means.
func check(found *store.Stored, missing func() error, uid types.UID) (*store.Stored, error) {
	if found == nil {
		return nil, missing()
	}
	if uid != "" && uid != found.UID {
		return nil, object.Errorf(object.Conflict, "%s %s has the uid %s, not %s: another object has that name now", found.Kind, found.Name, found.UID, uid)
	}
	return found, nil
}

// metaOf parses the metadata of a stored object.
func metaOf(o *store.Stored) (metav1.ObjectMeta, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return m, fmt.Errorf("read %s: %w", o.Key, err)
	}
	return m, nil
}
