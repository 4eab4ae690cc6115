package archive

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
)

// restoration is the state of one running Restore.
type restoration struct {
	*Archive
	client kind.Client
	spec   v1.RestoreSpec
	names  *names
	// operation is the Audit-Id of what a revert writes.
	operation string
	many      bool // results are short

	// lasting ends with the restore: end.
	lasting context.Context
	end     context.CancelFunc

	// deleting is the objects of the target that are being deleted. What is in such a
	// namespace, or of such a kind, waits.
	deleting map[object.Key]bool
	// limitedIn has the namespaces of earlier levels: whether they had a quota. It is level's.
	limitedIn map[string]bool

	mu      sync.Mutex               // guards all below
	now     map[types.UID]object.Key // restored objects
	made    map[object.Key]bool      // created, or would be in a dry run
	before  int                      // how many were restored before
	late    map[string]bool          // kinds whose definition exists and that were not served in time
	quotas  quotas                   // of a dry run
	defined map[string]*kind.Kind    // of definitions that a dry run would create, by storage name
	other   bool                     // an object waits for one that is not part of the target
}

// errUnserved: the kind is not served.
var errUnserved = errors.New("its kind is not served")

// maxAttempts bounds the retries of a create whose owners are restored
// concurrently.
const maxAttempts = 3

// one restores one object. An error is the server's and ends the restore; a
// problem of the object is a result.
func (r *restoration) one(ctx context.Context, c *candidate) (v1.RestoreResult, error) {
	result := r.resultOf(c)
	if result.Outcome != "" {
		return result, nil
	}
	archived, err := c.then, error(nil)
	if archived == nil {
		archived, err = r.store.Reader().LastArchived(ctx, store.ArchiveFilter{IDs: []int64{c.id}})
	}
	if err != nil || unrestorable(archived, &result) {
		return result, err
	}
	for range maxAttempts {
		if err = r.create(ctx, c, archived.Body, &result); !errors.Is(err, store.ErrOwnerIsBack) && !errors.Is(err, object.ErrAgain) {
			break
		}
	}
	if errors.Is(err, store.ErrOwnerIsBack) || errors.Is(err, object.ErrAgain) {
		r.postpone(&result, "its owners change at the same time")
		return result, nil
	}
	return result, r.judge(ctx, c, err, &result)
}

// resultOf begins the result of an object. It has an outcome if the object is not restored.
func (r *restoration) resultOf(c *candidate) v1.RestoreResult {
	gvk := r.names.gvk(c.key.Kind)
	result := v1.RestoreResult{
		APIVersion: gvk.GroupVersion().String(), Kind: gvk.Kind,
		Namespace: c.key.Namespace, Name: c.key.Name, UID: c.uid, NewUID: identity(c, r.reborn(c.key.Kind)),
	}
	switch {
	case c.recreated:
		result.Outcome, result.Reason, result.NewUID = v1.Skipped, "it was created during the cascade; the object from before the cascade is restored", ""
	case r.deleting[object.Key{Kind: object.Namespaces, Name: c.key.Namespace}]:
		result.Outcome, result.Reason = v1.Awaited, "its namespace is being deleted: it is restored after that"
	case r.deleting[object.Key{Kind: object.Definitions, Name: c.key.Kind}]:
		result.Outcome, result.Reason = v1.Awaited, "its CustomResourceDefinition is being deleted: it is restored after that"
	}
	return result
}

// unrestorable reports whether the archive lacks the object's content, and says so in the
// result.
func unrestorable(archived *row, result *v1.RestoreResult) bool {
	switch {
	case archived == nil:
		result.Outcome, result.Reason = v1.Failed, "it has expired from the archive"
	case archived.Body == nil:
		result.Outcome, result.Reason = v1.Failed, "it was archived without its content: the server ran with --archive-secrets=false"
	default:
		return false
	}
	result.NewUID = ""
	return true
}

// refusal is a problem of the object, and not an error of the server.
type refusal struct{ cause error }

func (e refusal) Error() string { return e.cause.Error() }
func (e refusal) Unwrap() error { return e.cause }

// create passes the object through the rules of its kind and stores it.
func (r *restoration) create(ctx context.Context, c *candidate, body []byte, result *v1.RestoreResult) error {
	lookedAt := r.store.Revision()
	dropped, err := r.store.Reader().Dropped(ctx, c.uid)
	if err != nil {
		return fmt.Errorf("read dropped references: %w", err)
	}
	request, err := r.prepare(ctx, c, body, dropped[c.uid], lookedAt, result)
	if err != nil {
		return err
	}
	err = r.put(ctx, c, request, result)
	if object.Is(err, object.Expired) {
		err = refusal{errors.New("it has expired from the archive")}
	}
	return err
}

// prepare passes the object through the rules of its kind. before are the references that
// it was restored without in an earlier life; lookedAt is a revision before the owners are
// looked up.
func (r *restoration) prepare(ctx context.Context, c *candidate, body []byte, before []store.DroppedReference, lookedAt int64,
	result *v1.RestoreResult) (request store.CreateRequest, err error) {
	result.Warnings, result.Relinked, result.Changes = nil, 0, nil
	v, err := r.version(ctx, c.key.Kind)
	if errors.Is(err, errUnserved) {
		err = r.unserved(ctx, c)
	}
	if err != nil {
		return request, refusal{err}
	}
	if v.Kind.Refuse != "" {
		return request, refusal{errors.New(v.Kind.Refuse)}
	}
	// The client's rights were asked for where the archive has the object.
	if v.Kind.Namespaced != (c.key.Namespace != "") {
		return request, refusal{errors.New("its kind and the archive differ on whether it is in a namespace")}
	}
	if err := r.ownUID(ctx, c); err != nil {
		return request, err
	}
	obj, err := v.Decode(body, "")
	if err != nil {
		return request, refusal{fmt.Errorf("the stored object cannot be read: %w", err)}
	}
	m, err := meta.Accessor(obj)
	if err != nil {
		return request, refusal{err}
	}
	undoMarks(m, v.Kind.Rules)
	was, err := whole(body, before)
	if err != nil {
		return request, refusal{err}
	}
	if v.Kind.Restored != nil {
		result.Warnings = v.Kind.Restored(obj, r.spec.KeepTokens)
	}
	dropped, err := r.link(ctx, before, m, result)
	if err != nil {
		return request, err
	}
	if err := r.client.MutateNew(kind.Restoring(ctx), v, c.key, obj, r.spec.DryRun); err != nil {
		return request, refusal{err}
	}
	keep := r.keep(v, c, obj, m)
	mayCreate := func(ctx context.Context, obj runtime.Object) error {
		keep(obj, m)
		return r.client.MayCreate(ctx, v, c.key, obj, r.spec.DryRun)
	}
	creation := lifecycle.Creation{Namespace: c.key.Namespace, Now: r.opts.Now(), UID: result.NewUID}
	if created := m.GetCreationTimestamp(); !created.IsZero() && result.NewUID == c.uid {
		creation.Now = created.Time
	}
	made, warnings, err := v.Prepare(kind.Restoring(ctx), v.Strategy, obj, creation, mayCreate)
	result.Warnings = append(result.Warnings, warnings...)
	if err != nil {
		return request, refusal{err}
	}
	if err := r.compare(c, was, made.Body, result); err != nil {
		return request, refusal{err}
	}
	request = store.RequestFor(made)
	request.DryRun = r.spec.DryRun
	request.Restores = store.Restoration{Row: c.id, Dropped: dropped, Had: len(before) > 0, LookedAt: lookedAt}
	return request, nil
}

// reborn reports whether restored objects of a kind are new ones, with new uids.
func (r *restoration) reborn(storage string) bool {
	k, ok := r.names.served.Stored(storage)
	return ok && k.Reborn
}

// keep returns a function that sets what a create resets, and a restore keeps: the generation
// and the status. The status needs the right to write it. An approval is never restored:
// it was for one certificate.
func (r *restoration) keep(v *kind.Version, c *candidate, obj runtime.Object, m metav1.Object) func(runtime.Object, metav1.Object) {
	generation, status := m.GetGeneration(), func(runtime.Object) {}
	if v.Kind.Reborn {
		return func(runtime.Object, metav1.Object) {}
	}
	if v.Status != nil && c.key.Kind != object.SigningRequests && m.GetDeletionTimestamp() == nil {
		resource := v.Resource().GroupResource()
		resource.Resource += "/status"
		if r.client.MayResource("update", resource, c.key.Namespace, c.key.Name) == nil {
			status = statusOf(obj)
		}
	}
	return func(obj runtime.Object, m metav1.Object) {
		m.SetGeneration(generation)
		status(obj)
	}
}

// put stores the object. If dropped references wait for it, the same transaction
// relinks them.
func (r *restoration) put(ctx context.Context, c *candidate, request store.CreateRequest, result *v1.RestoreResult) error {
	_, err := r.store.Create(ctx, request)
	if isDefaultAccount(c.key) && object.Is(err, object.AlreadyExists) {
		err = r.putDefault(ctx, request)
	}
	if r.spec.DryRun && (err == nil || r.wouldExist(c, err)) {
		return errors.Join(err, r.wouldCreate(ctx, c, request))
	}
	if !errors.Is(err, store.ErrAwaited) {
		return err
	}
	request.Restores.Relinks = true
	more := false
	err = r.store.Transact(ctx, func(tx *store.Tx) (err error) {
		if err := tx.Restore(ctx, request); err != nil {
			return err
		}
		more, err = r.relink(ctx, tx, result.NewUID, result)
		return err
	})
	if err != nil || !more {
		return err
	}
	return r.relinkRest(ctx, result.NewUID, result)
}

// unserved says why the kind of an object is not served, and what brings it back.
func (r *restoration) unserved(ctx context.Context, c *candidate) error {
	definition, err := r.newest(ctx, r.client, v1.ObjectName{}, object.Key{Kind: object.Definitions, Name: c.key.Kind})
	switch {
	case err != nil:
		return err
	case definition == nil:
		return fmt.Errorf("%w: create or restore its CustomResourceDefinition %s first", errUnserved, c.key.Kind)
	case definition.cascade == c.cascade:
		return fmt.Errorf("%w: its CustomResourceDefinition %s was removed with it; to restore both: exeunt restore --cascade %s",
			errUnserved, c.key.Kind, c.cascade)
	}
	return fmt.Errorf("%w: its CustomResourceDefinition %s was deleted too; first: exeunt restore customresourcedefinition/%s",
		errUnserved, c.key.Kind, c.key.Kind)
}

// undoMarks removes the marks of a deletion from the metadata of an object that was
// archived as it was removed: by an earlier version, which did not keep the state before.
func undoMarks(m metav1.Object, rules lifecycle.Rules) {
	m.SetResourceVersion("")
	if m.GetDeletionTimestamp() == nil {
		return
	}
	gone := append([]string{
		metav1.FinalizerOrphanDependents, metav1.FinalizerDeleteDependents, lifecycle.ConfirmCascade, lifecycle.PropagateGrace,
	}, rules.DeleteFinalizers...)
	m.SetFinalizers(slices.DeleteFunc(slices.Clone(m.GetFinalizers()), func(f string) bool { return slices.Contains(gone, f) }))
	annotations := maps.Clone(m.GetAnnotations())
	delete(annotations, lifecycle.HeldAbove)
	delete(annotations, lifecycle.ConfirmCascade) // it confirmed the old cascade
	m.SetAnnotations(annotations)
}

// judge converts the error of create into a result, and remembers the restored
// object. It returns errors of the server.
func (r *restoration) judge(ctx context.Context, c *candidate, err error, result *v1.RestoreResult) error {
	var refused refusal
	var known *object.Error
	switch {
	case err == nil:
		result.Outcome = v1.Created
	case r.wouldExist(c, err):
		result.Outcome = v1.Created
	case object.Is(err, object.AlreadyExists), object.Is(err, object.BeingDeleted):
		return r.taken(ctx, c, result)
	case errors.As(err, &refused), errors.As(err, &known):
		result.Outcome, result.Reason, result.NewUID, result.Changes = v1.Failed, err.Error(), "", nil
		return nil
	default:
		return err
	}
	r.note(c, result.NewUID, true)
	return nil
}

// wouldExist reports whether a create failed only because this is a dry run: the
// restore itself would create the namespace or the definition.
func (r *restoration) wouldExist(c *candidate, err error) bool {
	if !r.spec.DryRun {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	return object.Is(err, object.NoNamespace) && r.made[object.Key{Kind: object.Namespaces, Name: c.key.Namespace}] ||
		errors.Is(err, errUnserved) && r.made[object.Key{Kind: object.Definitions, Name: c.key.Kind}]
}

// taken reads the object that has the name: the restored object itself, or another
// one.
func (r *restoration) taken(ctx context.Context, c *candidate, result *v1.RestoreResult) error {
	holder, err := r.store.Get(ctx, c.key)
	if object.Is(err, object.NotFound) {
		r.postpone(result, "the name was taken a moment ago")
		return nil
	}
	if err != nil {
		return err
	}
	m, err := object.ParseMeta(holder.Body)
	if err != nil {
		return err
	}
	result.Outcome, result.Warnings, result.Changes = v1.Skipped, nil, nil
	switch {
	case m.DeletionTimestamp != nil && holder.UID != result.NewUID:
		r.postpone(result, "an object of this name is being deleted")
	case m.DeletionTimestamp != nil:
		result.Reason, result.ConflictsWith = "it was restored before, and is being deleted again", holder.UID
	case holder.UID == result.NewUID && c.id < 0 && !c.restored:
		return r.kept(ctx, c, holder.Body, result)
	case holder.UID == result.NewUID:
		r.restoredBefore(c, result)
		return r.relinkRest(ctx, holder.UID, result)
	case c.key.Kind == object.Namespaces:
		result.Reason = fmt.Sprintf("the namespace exists again (uid %s)", holder.UID)
		if r.spec.Cascade != "" || r.spec.WithCascade {
			result.Reason += "; its content is restored into it"
		}
		result.NewUID = ""
	default:
		result.Reason, result.ConflictsWith = fmt.Sprintf("the name is taken by another object (uid %s)", holder.UID), holder.UID
		result.NewUID = ""
	}
	return nil
}

// restoredBefore says that an earlier restore created the object.
func (r *restoration) restoredBefore(c *candidate, result *v1.RestoreResult) {
	result.Outcome, result.Reason = v1.Skipped, "it was restored before"
	r.note(c, result.NewUID, false)
}

// postpone says that the object can be restored later, when something outside the target has
// changed.
func (r *restoration) postpone(result *v1.RestoreResult, reason string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.other = true
	result.Outcome, result.Reason = v1.Awaited, reason+": it is tried again"
}

func (r *restoration) note(c *candidate, uid types.UID, made bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.now[uid] = c.key
	if made {
		r.made[c.key] = true
	} else {
		r.before++
	}
}

// version returns the stored version of the kind. If its definition exists, version waits until
// the kind is served, at most Options.KindWait, once. In a dry run, it is the kind that the definition would make.
func (r *restoration) version(ctx context.Context, storage string) (*kind.Version, error) {
	key := object.Key{Kind: object.Definitions, Name: storage}
	r.mu.Lock()
	expected, pretended := r.made[key] && !r.spec.DryRun, r.defined[storage]
	r.mu.Unlock()
	if pretended != nil {
		return pretended.Stored(), nil
	}
	timeout := time.NewTimer(r.opts.KindWait)
	defer timeout.Stop()
	for {
		snapshot, changed := r.kinds.Changed()
		k, ok := snapshot.Stored(storage)
		// The kind may still be served as that of the removed definition, which refuses creates.
		ok = ok && len(k.Versions) > 0 && k.Versions[0].Strategy != nil
		if ok && k.Refuse == "" {
			return k.Stored(), nil
		}
		if !expected {
			h, exists, err := r.store.Reader().Head(ctx, key)
			r.mu.Lock()
			expected = exists && h.Deletion == 0 && !r.late[storage]
			r.mu.Unlock()
			if err != nil {
				return nil, err
			}
			switch {
			case expected:
				continue
			case ok && exists:
				return k.Stored(), nil
			}
			return nil, errUnserved // also while the kind of a removed definition is still served
		}
		select {
		case <-changed:
		case <-timeout.C:
			r.mu.Lock()
			r.late[storage] = true
			r.mu.Unlock()
			return nil, errUnserved
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}
