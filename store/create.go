package store

import (
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// CreateRequest asks for a new object. The store keeps Body: do not change it
// afterwards.
type CreateRequest struct {
	Key  object.Key
	Meta metav1.ObjectMeta // complete: lifecycle.BeforeCreate ran
	Body []byte
	// InNamespace: the Namespace must exist and not be terminating.
	InNamespace bool
	// Definition, when set, is the object that declares the kind: it must exist
	// and not be terminating.
	Definition object.Key
	// Restores, when set, names the archived object that this one restores.
	Restores Restoration
	DryRun   bool
	// With are the objects that the same transaction creates: all exist, or none.
	With []CreateRequest
	// Most, if not 0, is how many objects of the kind the namespace may have.
	Most int64
	// Taken, if set, is the error if the name is taken.
	Taken error
}

// RequestFor is the request to create an object that passed the rules of its kind.
func RequestFor(n object.New) CreateRequest {
	r := CreateRequest{Key: n.Key, Meta: n.Meta, Body: n.Body, InNamespace: n.InNamespace, Definition: n.Definition, Most: n.Most, Taken: n.Taken}
	for _, with := range n.With {
		r.With = append(r.With, RequestFor(with))
	}
	return r
}

// Create stores a new object. Errors: AlreadyExists; BeingDeleted when an object
// with this name is being deleted; NoNamespace; Terminating; Forbidden when the
// kind's definition is terminating, or a quota or Most is exceeded; Expired when the archive no longer has what
// it restores; ErrOwnerIsBack and ErrAwaited. The result of a dry run has no
// revision.
func (s *Store) Create(ctx context.Context, r CreateRequest) (object.Object, error) {
	if err := checkNew(r); err != nil {
		return object.Object{}, err
	}
	op := r.operation()
	if len(r.With) > 0 {
		revision, err := s.createAndRun(ctx, op, r.With, r.DryRun)
		return object.Object{Key: r.Key, UID: r.Meta.UID, Revision: revision, Body: r.Body}, err
	}
	if err := s.writer.submit(ctx, op); err != nil {
		return object.Object{}, err
	}
	return object.Object{Key: r.Key, UID: r.Meta.UID, Revision: op.effect.revision, Body: r.Body}, nil
}

// CreateAll is Create for many objects, which share commits. An error of one does not stop
// the others: the errors are those of the requests, in their order.
func (s *Store) CreateAll(ctx context.Context, requests []CreateRequest) []error {
	ops, errs := make([]*operation, len(requests)), make([]error, len(requests))
	for i := range requests {
		r := &requests[i]
		if errs[i] = checkNew(*r); errs[i] == nil && len(r.With) == 0 {
			ops[i] = r.operation()
			errs[i] = s.writer.enqueue(ctx, ops[i])
		}
	}
	for i, op := range ops {
		switch {
		case errs[i] != nil:
		case op != nil:
			errs[i] = s.writer.wait(ctx, op)
		default:
			_, errs[i] = s.Create(ctx, requests[i])
		}
	}
	return errs
}

func (r *CreateRequest) operation() *operation {
	return &operation{key: r.Key, size: len(r.Body), needs: r.needs(), decide: r.decide, grows: true, most: r.Most}
}

// needs are the objects that must exist.
func (r *CreateRequest) needs() (keys []object.Key) {
	if r.InNamespace {
		keys = append(keys, object.Key{Kind: object.Namespaces, Name: r.Key.Namespace})
	}
	if r.Definition.Name != "" {
		keys = append(keys, r.Definition)
	}
	return keys
}

func checkNew(r CreateRequest) error {
	if err := checkKey(r.Key); err != nil {
		return err
	}
	if r.Meta.UID == "" || len(r.Body) == 0 {
		return object.BadRequestf("create %s: no uid or no body", r.Key)
	}
	if r.InNamespace && r.Key.Namespace == "" {
		return object.BadRequestf("create %s: no namespace", r.Key)
	}
	return nil
}

func (r *CreateRequest) decide(v *view) (effect, error) {
	if r.InNamespace {
		if err := checkNamespace(v, r.Key.Namespace); err != nil {
			return effect{}, err
		}
	}
	if r.Definition.Name != "" {
		if d := v.objects[r.Definition]; d == nil || d.deleting {
			return effect{}, object.Errorf(object.Forbidden, "create not allowed while custom resource definition is terminating")
		}
	}
	if holder := v.objects[r.Key]; holder != nil {
		if r.Taken != nil {
			return effect{}, r.Taken
		}
		if holder.deleting {
			return effect{}, object.Errorf(object.BeingDeleted, "object is being deleted: %s %q already exists", r.Key.Kind, r.Key.Name)
		}
		return effect{}, object.Errorf(object.AlreadyExists, "%s %q already exists", r.Key.Kind, r.Key.Name)
	}
	if r.Most > 0 && v.counts[r.Key.Scope()] >= r.Most {
		return effect{}, object.Errorf(object.Forbidden, "there are %d %s, as many as there may be in a namespace or, if they have none, in the cluster", r.Most, r.Key.Kind)
	}
	f := effect{Type: Created, key: r.Key, uid: string(r.Meta.UID), body: r.Body, restores: r.Restores}
	if err := v.fits(&f); err != nil || r.DryRun {
		return effect{}, err
	}
	f.describe(&r.Meta)
	f.owners = ownersOf(r.Meta.OwnerReferences)
	f.ownersChange = len(f.owners) > 0
	return f, nil
}

func checkNamespace(v *view, name string) error {
	ns := v.objects[object.Key{Kind: object.Namespaces, Name: name}]
	if ns == nil {
		return object.Errorf(object.NoNamespace, "%s %q not found", object.Namespaces, name)
	}
	if ns.deleting {
		return object.Errorf(object.Terminating, "unable to create new content in namespace %s because it is being terminated", name)
	}
	return nil
}

func (f *effect) objectUID() types.UID { return types.UID(f.uid) }

// createAndRun creates the objects that belong to an operation, and runs it, in one
// transaction of their own. It returns the revision of the operation; 0 if it changed
// nothing.
func (s *Store) createAndRun(ctx context.Context, op *operation, with []CreateRequest, dryRun bool) (revision int64, err error) {
	err = s.Transact(ctx, func(t *Tx) (err error) {
		revision, err = t.run(ctx, op, with, dryRun)
		return err
	})
	return revision, err
}

// run decides an operation in this transaction, after the objects that belong to it, and
// flushes. It returns the operation's revision; 0 if it changed nothing.
func (t *Tx) run(ctx context.Context, op *operation, with []CreateRequest, dryRun bool) (int64, error) {
	for _, w := range with {
		w.DryRun = dryRun
		if err := checkNew(w); err != nil {
			return 0, err
		}
		if _, err := t.run(ctx, &operation{key: w.Key, needs: w.needs(), decide: w.decide, grows: true, most: w.Most}, w.With, dryRun); err != nil {
			return 0, err
		}
	}
	v := newView([]*operation{op}, t.Now)
	var b sqldb.Batch
	v.queueLoads(&b, t.engine, t.keys)
	if err := t.sendAll(ctx, &b); err != nil {
		return 0, fmt.Errorf("load objects: %w", err)
	}
	if err := t.limit(ctx, v, op); err != nil {
		return 0, err
	}
	f, err := op.decide(v)
	if err != nil || f.Type == 0 {
		return 0, err
	}
	t.add(&f)
	if err := t.Flush(); err != nil {
		return 0, err
	}
	if f.restores.Row != 0 { // its statements say whether it is refused
		if err := t.sendAll(ctx, &sqldb.Batch{}); err != nil {
			return 0, fmt.Errorf("restore %s: %w", f.key, err)
		}
	}
	return f.revision, f.refused()
}
