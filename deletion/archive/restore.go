package archive

import (
	"cmp"
	"context"
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/tidwall/gjson"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/store"
	cascade "github.com/exeunt/exeunt/store/cascades"
)

// planPage is how many rows one statement of the planning reads.
const planPage = 1000

// Restore restores what the spec names and can be restored now, for a client, and returns a
// result for each object. Errors: BadRequest for an invalid spec, or one that names
// nothing; Forbidden if the client may restore nothing of it. An object that cannot be
// restored is a result and not an error.
func (a *Archive) Restore(ctx context.Context, client kind.Client, spec v1.RestoreSpec) (v1.RestoreStatus, error) {
	names, err := a.names(ctx)
	if err != nil {
		return v1.RestoreStatus{}, err
	}
	t, err := a.target(ctx, client, names, spec)
	if err != nil {
		return v1.RestoreStatus{}, err
	}
	f, err := a.find(ctx, client, t)
	if err != nil {
		return v1.RestoreStatus{}, err
	}
	defer f.release()
	p, err := a.pass(ctx, client, names, spec, t, f)
	return p.status, err
}

// passed is what one pass over a target came to.
type passed struct {
	status v1.RestoreStatus
	// interrupted: the time was over before all was tried.
	interrupted bool
	// last is the newest removal that was read.
	last int64
	// deleting is the objects of the target that were being deleted when the pass began.
	deleting map[types.UID]bool
	// before is how many results are "restored before"; other says that some wait for objects
	// that are not part of the target.
	before int
	other  bool
}

// pass restores what can be restored now: it calls off what the guard holds, creates what is
// gone, and leaves alone what is being deleted. It is idempotent.
func (a *Archive) pass(ctx context.Context, client kind.Client, names *names, spec v1.RestoreSpec, t target, found found) (p passed, err error) {
	spec.Cascade, spec.UID, spec.Object, spec.WithCascade = t.Cascade, t.UID, nil, false
	r := a.begin(client, spec, names)
	defer r.end()
	if err := r.checkContent(ctx, found, spec.DryRun); err != nil {
		return p, err
	}
	for _, h := range found.deleting {
		r.deleting[h.Key] = true
	}
	stop, limited := ctx.Deadline()
	if limited {
		stop = stop.Add(-a.opts.Spare)
	}
	timeUp := func() bool { return limited && time.Now().After(stop) }
	for _, level := range plan(found.removed) {
		results, err := r.level(ctx, level, timeUp)
		if err != nil {
			return p, fmt.Errorf("restore: %w", err)
		}
		p.status.Results = append(p.status.Results, results...)
		if p.interrupted = len(results) < len(level); p.interrupted {
			break
		}
	}
	if found.revert != nil && !p.interrupted {
		r.operation = found.operation
		var results []v1.RestoreResult
		if results, p.interrupted, err = r.revert(ctx, found.revert, timeUp); err != nil {
			return p, fmt.Errorf("revert: %w", err)
		}
		p.status.Results = append(p.status.Results, results...)
		p.status.Before = object.Object{Revision: found.before}.ResourceVersion()
	}
	called, err := r.callBack(ctx, found.deleting) // owners first: the collector would hold their dependents again
	if err != nil {
		return p, fmt.Errorf("call off: %w", err)
	}
	p.status.Results = append(called, p.status.Results...)
	p.last, p.deleting, p.before, p.other = found.last, found.live, r.before, r.other
	p.status.Count()
	if found.denied > 0 {
		p.status.Cascade, p.status.LeftBehind = t.Cascade, found.denied
	}
	p.status.Complete = !p.interrupted && p.status.Failed+p.status.Conflicts+p.status.Waiting+found.denied == 0
	if t.UID != "" && len(found.removed) > 0 {
		err = a.countLeft(ctx, found.removed[0], &p.status)
	} else if p.status.Complete && t.Cascade != "" {
		err = a.reportPurged(ctx, t.Cascade, &p.status)
		p.status.Complete = p.status.Failed == 0
	}
	return p, err
}

// countLeft counts the other objects of the cascade, for an object that is
// restored alone.
func (a *Archive) countLeft(ctx context.Context, c *candidate, status *v1.RestoreStatus) error {
	left, err := cascade.CountUnrestored(ctx, a.store.Reader(), c.cascade, c.id)
	if err != nil {
		return fmt.Errorf("count what is left in the archive: %w", err)
	}
	if left > 0 {
		status.Cascade, status.LeftBehind = c.cascade, int(left)
	}
	return nil
}

func (a *Archive) begin(client kind.Client, spec v1.RestoreSpec, names *names) *restoration {
	r := &restoration{
		Archive: a, client: client, spec: spec, names: names,
		now: map[types.UID]object.Key{}, made: map[object.Key]bool{}, late: map[string]bool{}, deleting: map[object.Key]bool{},
		limitedIn: map[string]bool{},
	}
	r.lasting, r.end = context.WithCancel(context.Background())
	return r
}

// cascade reads all objects of a cascade and keeps what planning needs.
func (a *Archive) cascade(ctx context.Context, id string) (all []*candidate, err error) {
	err = a.store.Reader().Archived(ctx, store.ArchiveFilter{Whole: id}, 0, 0, func(r *row) error {
		all = append(all, newCandidate(r))
		return nil
	})
	if err != nil {
		return nil, err
	}
	slices.SortFunc(all, func(a, b *candidate) int { return cmp.Compare(b.id, a.id) })
	for page := range slices.Chunk(all, planPage) {
		if err := a.addDropped(ctx, page); err != nil {
			return nil, err
		}
	}
	return all, nil
}

// addDropped adds the owners to which the cascade dropped the references of objects, before it removed
// them.
func (a *Archive) addDropped(ctx context.Context, page []*candidate) error {
	uids := make([]types.UID, len(page))
	for i, c := range page {
		uids[i] = c.uid
	}
	dropped, err := a.store.Reader().Dropped(ctx, uids...)
	for _, c := range page {
		for _, d := range dropped[c.uid] {
			c.owners = append(c.owners, d.Owner)
		}
	}
	return err
}

// newest finds the last removal of an object by its name. If the same cascade
// removed another object of the name before, it returns that one, because the last
// one was recreated during the cascade: see markRecreated.
func (a *Archive) newest(ctx context.Context, client kind.Client, o v1.ObjectName, key object.Key) (*candidate, error) {
	f := filter{ArchiveFilter: store.ArchiveFilter{Kind: key.Kind, Namespace: key.Namespace, Name: key.Name}}
	var last *row
	err := a.each(ctx, f, 0, 1, func(r *row) error {
		last = r
		return nil
	})
	if err != nil || last == nil || client.May("get", last.Key()) != nil {
		return nil, err
	}
	if last.Key().Namespace != f.Namespace {
		return nil, object.BadRequestf("spec.object: %s %s was in namespace %s: set spec.object.namespace", o.Kind, o.Name, last.Key().Namespace)
	}
	f.Cascade = last.Cascade
	found, err := a.all(ctx, f)
	if err != nil || len(found) == 0 {
		return nil, err
	}
	return found[len(found)-1], nil
}

// all reads all rows that match a filter, page by page, the newest removal first,
// and keeps what planning needs.
func (a *Archive) all(ctx context.Context, f filter) ([]*candidate, error) {
	var all []*candidate
	for before := int64(0); ; {
		n := 0
		err := a.each(ctx, f, before, planPage, func(r *row) error {
			n, before, all = n+1, r.ID, append(all, newCandidate(r))
			return nil
		})
		if err != nil || n < planPage {
			return all, err
		}
	}
}

// newCandidate reads the object's owners. For an unreadable body it has none: the
// restore of the object reports the error.
func newCandidate(r *row) *candidate {
	c := &candidate{id: r.ID, uid: r.UID, key: r.Key(), cascade: r.Cascade, isDefault: isDefault(r.Key(), r.Body), restored: r.Restored}
	if m, err := object.ParseMeta(r.Body); err == nil {
		for _, o := range m.OwnerReferences {
			c.owners = append(c.owners, o.UID)
		}
		c.demand = demand(c, &m)
	}
	return c
}

// evicted records that cascades of a namespace leave the archive before their time: one Event for each
// transaction that evicts, about the root of the oldest one.
func (a *Archive) evicted(ctx context.Context, tx *store.Tx, e store.Eviction) error {
	oldest, err := cascade.Read(ctx, tx, e.Cascades[0])
	if err != nil || oldest == nil {
		return err
	}
	what := "its cascade"
	if more := len(e.Cascades) - 1; more > 0 {
		what = fmt.Sprintf("its cascade and %d more", more)
	}
	return event.Recorder{Kinds: a.kinds}.Record(ctx, tx, tx.Now, event.Event{
		About: oldest.Root, Type: corev1.EventTypeWarning, Reason: "ArchiveEvicted", Source: "exeunt", Topic: oldest.ID, Elsewhere: true,
		Message: fmt.Sprintf("%s left the archive before the time and cannot be restored: %d objects with %d bytes. Deletions with roots in this namespace use more than its share of the archive",
			what, e.Objects, e.Bytes),
	})
}

// A restored object keeps its uid: what refers to it elsewhere refers to it again, and a
// repeated restore, also after a crash, recognizes what it created. docs/spec/archive.md says why
// that is safe for the collector.

// identitySpace is the UUID namespace of the uids of objects that come back as new ones.
var identitySpace = uuid.MustParse("6d1c1a52-6b6f-4a63-9a3f-0b8a5f6a3c11")

// identity returns the uid of the object that is restored from an archive row. For a kind
// whose restored objects are new ones it depends on the row only.
func identity(c *candidate, reborn bool) types.UID {
	if !reborn {
		return c.uid
	}
	return types.UID(uuid.NewSHA1(identitySpace, []byte(string(c.uid)+"/"+strconv.FormatInt(c.id, 10))).String())
}

// exists reports whether the owner of a reference exists and can own objects in the
// namespace, or would exist after this dry run.
func (r *restoration) exists(ctx context.Context, o metav1.OwnerReference, namespace string) (bool, error) {
	r.mu.Lock()
	key, here := r.now[o.UID]
	r.mu.Unlock()
	if here && r.names.refers(o, key, namespace) {
		return true, nil
	}
	heads, err := r.store.Reader().Heads(ctx, []types.UID{o.UID})
	if err != nil {
		return false, fmt.Errorf("look for owner %s: %w", o.UID, err)
	}
	h, found := heads[o.UID]
	return found && owns(h) && r.names.refers(o, h.Key, namespace), nil
}

// owns reports whether an object can own others: it is not DELETING, or the guard
// holds its deletion.
func owns(h store.Head) bool { return h.Deletion == 0 || h.Held() }

// withoutDefaults leaves out the ServiceAccount "default" of a namespace that is restored
// too, if no client has changed it: the server creates an equal one with the namespace. A
// restore of both would be a race between the two.
func withoutDefaults(all []*candidate) []*candidate {
	namespaces := map[string]bool{}
	for _, c := range all {
		if c.key.Kind == object.Namespaces {
			namespaces[c.key.Name] = true
		}
	}
	return slices.DeleteFunc(all, func(c *candidate) bool { return c.isDefault && namespaces[c.key.Namespace] })
}

// isDefault reports whether an object is as the server creates it in every namespace.
func isDefault(key object.Key, body []byte) bool {
	if !isDefaultAccount(key) {
		return false
	}
	for _, changed := range []string{"secrets", "imagePullSecrets", "automountServiceAccountToken", "metadata.labels", "metadata.annotations", "metadata.ownerReferences", "metadata.finalizers"} {
		if gjson.GetBytes(body, changed).Exists() {
			return false
		}
	}
	return len(body) > 0
}

func isDefaultAccount(key object.Key) bool {
	return key.Kind == object.ServiceAccounts && key.Name == object.DefaultAccount
}

// putDefault creates a ServiceAccount "default" that a client had changed. The server may have created one as soon as
// the namespace was back: it is removed in the same transaction, unless a client has changed it, too.
func (r *restoration) putDefault(ctx context.Context, request store.CreateRequest) error {
	taken := object.Errorf(object.AlreadyExists, "%s exists", request.Key)
	holder, err := r.store.Get(ctx, request.Key)
	if err != nil {
		return taken // it is gone again: see taken
	}
	return r.store.Transact(ctx, func(tx *store.Tx) error {
		o, err := tx.GetByUID(ctx, holder.UID)
		if err != nil {
			return err
		}
		if o == nil || o.Deleting || o.UID == request.Meta.UID || !isDefault(o.Key, o.Body) {
			return taken
		}
		if r.spec.DryRun {
			return nil
		}
		tx.Remove(o)
		if err := tx.Flush(); err != nil {
			return err
		}
		return tx.Restore(ctx, request)
	})
}
