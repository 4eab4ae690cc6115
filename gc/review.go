package gc

import (
	"context"
	"fmt"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/kind/event"
	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
)

// actor is the user that the archive names for objects that the collector removed.
const actor = "system:garbage-collector"

// item is an object under review.
type item = store.Stored

// session is one review transaction. It follows a cascade until its budget is
// spent, so a chain costs a few transactions and not one per link. The rest is in
// the queue: the triggers put it there.
type session struct {
	c      *Collector
	tx     *store.Tx
	kinds  *kind.Snapshot // one for the whole transaction
	now    time.Time
	budget int                 // objects that may still be changed
	until  time.Time           // no review begins after it; zero means no limit
	owners map[types.UID]Owner // owners as read, updated by the changes of this session
	grace  map[types.UID]int64 // grace periods that owners under review pass on, in seconds
	next   []types.UID         // reviewable because of this transaction
	queued map[types.UID]bool  // the uids in next
	events []event.Event       // recorded at the end of the transaction

	cause    string     // the uid of the owner or namespace that was reviewed last
	emptying bool       // the deletes empty a namespace
	admitted version    // may be deleted without asking
	deferred []deferral // deletes that wait for their admission
}

// session begins a session with a budget.
func (c *Collector) session(tx *store.Tx, now time.Time) *session {
	budget := c.pace.budget()
	return &session{
		c: c, tx: tx, kinds: c.kinds.Snapshot(), now: now, budget: budget,
		owners: map[types.UID]Owner{}, grace: map[types.UID]int64{}, queued: map[types.UID]bool{},
	}
}

// setCause records the owner or the namespace that causes the deletes that follow.
func (s *session) setCause(ctx context.Context, uid string) error {
	s.cause = uid
	return s.tx.SetCause(ctx, actor, uid)
}

// Review implements review.Reviewer: the garbage processor and the finalizers.
func (c *Collector) Review(ctx context.Context, tx *store.Tx, now time.Time, tasks []review.Task) ([]review.Verdict, error) {
	if c.db.Engine() == sqldb.Postgres {
		var b sqldb.Batch
		b.Exec(indexesOnly)
		b.Exec(onePlan)
		if err := tx.Send(ctx, &b); err != nil {
			return nil, fmt.Errorf("review objects: %w", err)
		}
	}
	begin := time.Now()
	s := c.session(tx, now)
	budget := s.budget
	s.until = c.pace.until(begin)
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		if !s.more() {
			verdicts[i] = review.Again(0)
			continue
		}
		v, err := s.review(ctx, task.Key)
		if err != nil {
			return nil, fmt.Errorf("review %s: %w", task.Key, err)
		}
		verdicts[i] = v
	}
	if err := s.follow(ctx); err != nil {
		return nil, err
	}
	if err := s.enqueueDeferred(ctx); err != nil {
		return nil, err
	}
	c.pace.spent(budget-s.budget, time.Since(begin))
	if err := s.progress(ctx, len(tasks)); err != nil {
		return nil, err
	}
	return verdicts, event.Recorder{Kinds: c.kinds}.Record(ctx, s.tx, s.now, s.events...)
}

// review reviews one uid, of an object or of a removed owner.
func (s *session) review(ctx context.Context, uid string) (review.Verdict, error) {
	o, err := s.tx.GetByUID(ctx, types.UID(uid))
	if err != nil {
		return review.Verdict{}, err
	}
	if o == nil {
		return s.absent(ctx, uid)
	}
	if o.Deleting {
		return s.finalize(ctx, o)
	}
	before := s.budget
	cause, err := s.causeOf(ctx, o)
	if err != nil {
		return review.Verdict{}, err
	}
	if err := s.setCause(ctx, cause); err != nil {
		return review.Verdict{}, err
	}
	if err := s.judge(ctx, []*item{o}); err != nil {
		return review.Verdict{}, err
	}
	return acted(s.budget < before), nil
}

// causeOf returns the owner because of which an object may go that is reviewed for itself, for
// instance after an edit: one that leaves or has left, so the object joins its cascade.
func (s *session) causeOf(ctx context.Context, o *item) (string, error) {
	m, err := object.ParseMeta(o.Body)
	if err != nil {
		return "", fmt.Errorf("read %s: %w", o.Key, err)
	}
	if err := s.lookUp(ctx, []metav1.ObjectMeta{m}); err != nil {
		return "", err
	}
	for _, r := range m.OwnerReferences {
		if owner := s.owners[r.UID]; owner.Foreground || owner.Leaving || owner.Removed {
			return string(r.UID), nil
		}
	}
	return "", nil
}

// absent reviews the dependents of an owner that does not exist. If all references
// to it name unserved kinds, the dependents stay, and Events report only the
// newest ones: an owner with many dependents that is reviewed often must not read
// them all each time.
func (s *session) absent(ctx context.Context, uid string) (review.Verdict, error) {
	known, err := s.canJudge(ctx, types.UID(uid))
	if err != nil {
		return review.Verdict{}, err
	}
	if known {
		waiting := len(s.deferred)
		v, err := s.collect(ctx, uid, s.tx.Dependents, s.judge)
		if err == nil && s.budget > 0 {
			if s.provesRemoval(waiting) {
				return review.Again(askRecheck), nil
			}
		}
		return v, err
	}
	newest, err := s.tx.Dependents(ctx, store.Below{Owner: types.UID(uid), Newest: true, Limit: maxUnknownReports})
	if err != nil {
		return review.Verdict{}, err
	}
	for _, o := range newest {
		m, err := object.ParseMeta(o.Body)
		if err != nil {
			return review.Verdict{}, fmt.Errorf("read %s: %w", o.Key, err)
		}
		if err := s.lookUp(ctx, []metav1.ObjectMeta{m}); err != nil {
			return review.Verdict{}, err
		}
		s.report(o, &m)
	}
	return review.Kept(), nil
}

// provesRemoval reports whether the review of a removed owner stays in the queue, because of
// deletes that were deferred since: it proves the removal to the admitter.
func (s *session) provesRemoval(since int) bool {
	return slices.ContainsFunc(s.deferred[since:], func(d deferral) bool { return d.unserved })
}

// finalize does the work that a DELETING object waits for. A namespace is emptied
// also while it waits for dependents.
func (s *session) finalize(ctx context.Context, o *item) (v review.Verdict, err error) {
	switch v = review.Kept(); {
	case o.Finalizing&store.FinalizeConfirm != 0:
		return s.guard(ctx, o)
	case o.Finalizing&store.FinalizeOrphan != 0:
		v, err = s.orphan(ctx, o)
	case o.Finalizing&store.FinalizeForeground != 0:
		v, err = s.foreground(ctx, o, nil)
	case o.Finalizing&store.FinalizeGrace != 0:
		v, err = s.propagate(ctx, o)
	}
	if err != nil || o.Finalizing&store.FinalizeNamespace == 0 || s.budget <= 0 {
		return v, err
	}
	found, err := s.tx.GetByUID(ctx, o.UID) // it may have changed
	if err != nil || found == nil {
		return v, err
	}
	return s.namespace(ctx, found)
}

func acted(yes bool) review.Verdict {
	if yes {
		return review.Acted()
	}
	return review.Kept()
}

// readPage reads a page of an owner's dependents, as store.Reader.Dependents does.
type readPage func(ctx context.Context, p store.Below) ([]*item, error)

// allDependents reads those that are DELETING too.
func (s *session) allDependents(ctx context.Context, p store.Below) ([]*item, error) {
	p.Deleting = true
	return s.tx.Dependents(ctx, p)
}

// dependents reads an owner's dependents. The first page is the one that is known.
func (s *session) dependents(known *store.Family) readPage {
	if known == nil {
		return s.tx.Dependents
	}
	return func(ctx context.Context, p store.Below) ([]*item, error) {
		if p.After == 0 {
			return known.Dependents, nil
		}
		return s.tx.Dependents(ctx, p)
	}
}

// collect calls judge with batches of an owner's dependents until all are read or
// the budget is spent; a later transaction continues the review.
func (s *session) collect(ctx context.Context, uid string, read readPage, judge func(context.Context, []*item) error) (review.Verdict, error) {
	s.cause = uid
	before, after := s.budget, int64(0)
	for s.budget > 0 {
		limit := s.budget
		batch, err := read(ctx, store.Below{Owner: types.UID(uid), After: after, Limit: limit})
		if err != nil {
			return review.Verdict{}, err
		}
		if len(batch) == 0 {
			return acted(s.budget < before), nil
		}
		if err := s.setCause(ctx, uid); err != nil {
			return review.Verdict{}, err
		}
		if err := judge(ctx, batch); err != nil {
			return review.Verdict{}, err
		}
		if len(batch) < limit {
			return acted(s.budget < before), nil
		}
		after = batch[len(batch)-1].ID
	}
	return review.Progressed(0), nil
}

// more reports whether the transaction may begin another review.
func (s *session) more() bool {
	return s.budget > 0 && (s.until.IsZero() || time.Now().Before(s.until))
}

// enqueueNext adds a uid that this transaction made reviewable to next.
func (s *session) enqueueNext(uid types.UID) {
	if !s.queued[uid] {
		s.queued[uid] = true
		s.next = append(s.next, uid)
	}
}

// follow reviews the uids in next while there is budget: down a cascade and, for
// waiting owners, up again. It deletes the row that a trigger wrote for a uid
// before the review, so a row that the review itself enqueues stays.
func (s *session) follow(ctx context.Context) error {
	for len(s.next) > 0 && s.more() {
		uid := s.next[0]
		s.next = s.next[1:]
		delete(s.queued, uid)
		if err := s.followOne(ctx, string(uid)); err != nil {
			return fmt.Errorf("review %s: %w", uid, err)
		}
	}
	return nil
}

func (s *session) followOne(ctx context.Context, uid string) error {
	owner := s.owners[types.UID(uid)]
	known, err := s.tx.Family(ctx, s.named(object.Key{Kind: owner.Kind, Namespace: owner.Namespace, Name: owner.Name}, types.UID(uid)), s.budget)
	if err != nil {
		return err
	}
	for above, head := range known.Above {
		if _, read := s.owners[above]; !read {
			s.owners[above] = OwnerOf(head)
		}
	}
	o := known.Owner
	if o != nil && (!o.Deleting || o.Finalizing != store.FinalizeForeground) {
		return nil // its row stays in the queue
	}
	s.tx.Defer(settled, uid)
	due, goesOn, waiting := s.now, false, len(s.deferred)
	if o == nil {
		_, err = s.collect(ctx, uid, s.dependents(&known), s.judge)
		if err == nil && s.budget > 0 {
			due, goesOn = s.now.Add(askRecheck), s.provesRemoval(waiting)
		}
	} else {
		_, err = s.foreground(ctx, o, &known)
	}
	if err != nil || s.budget > 0 && !goesOn {
		return err
	}
	var b sqldb.Batch // dependents may be left
	s.c.engine.Enqueue(&b, uid, s.continued(uid, o == nil), due)
	return s.tx.Send(ctx, &b)
}

// continued returns the event of a review that a later transaction continues. It
// keeps the fact that the owner was removed: see removedOwner.
func (s *session) continued(uid string, gone bool) string {
	switch {
	case !gone:
		return "continued"
	case s.owners[types.UID(uid)].WasInside:
		return ownerRemoved
	default:
		return clusterOwnerRemoved
	}
}

// judge decides about a batch of dependents, in order, and acts. An object that is
// removed counts as gone for those behind it; those before it are reviewed again
// if it was their owner.
func (s *session) judge(ctx context.Context, batch []*item) error {
	metas := make([]metav1.ObjectMeta, len(batch))
	for i, o := range batch {
		var err error
		if metas[i], err = object.ParseMeta(o.Body); err != nil {
			return fmt.Errorf("read %s: %w", o.Key, err)
		}
	}
	if err := s.lookUp(ctx, metas); err != nil {
		return err
	}
	for i, o := range batch {
		if err := s.judgeOne(o, metas[i]); err != nil {
			return err
		}
	}
	return s.tx.Flush()
}

func (s *session) judgeOne(o *item, m metav1.ObjectMeta) error {
	s.report(o, &m)
	standing := func(r *metav1.OwnerReference) Standing {
		st, _ := s.standing(o, r)
		return st
	}
	switch d := Decide(&m, standing, o.Parent); d.Action {
	case Unlink:
		return s.unlink(o, &m, d.Drop)
	case Delete:
		return s.delete(o, m, d.Policy)
	}
	return nil
}

// standing classifies one reference of an object.
func (s *session) standing(o *item, r *metav1.OwnerReference) (Standing, Named) {
	owner := s.owners[r.UID]
	named := Identify(s.kinds, ReferenceOf(r), owner)
	return Classify(o.Namespace, named, owner), named
}

// delete deletes an object by the rules of its kind.
func (s *session) delete(o *item, m metav1.ObjectMeta, policy metav1.DeletionPropagation) error {
	options := metav1.DeleteOptions{PropagationPolicy: &policy}
	if seconds, ok := s.inherited(&m); ok {
		options.GracePeriodSeconds = &seconds
		if o.Parent {
			lifecycle.WithPropagatedGrace(&m, seconds)
		}
	}
	d, err := lifecycle.BeforeDelete(lifecycle.Deletion{
		Body: o.Body, Meta: m, Revision: o.Revision, Now: s.now, Options: options, Rules: s.kinds.Rules(o.Kind),
	})
	if object.Is(err, object.Forbidden) {
		return s.unblock(o, m) // the object stays, as for a client's DELETE
	}
	if err != nil {
		return fmt.Errorf("delete %s: %w", o.Key, err)
	}
	if s.mustAsk(o) {
		s.deferred = append(s.deferred, deferral{
			version: version{o.UID, o.Revision}, cause: s.cause, options: options, emptying: s.emptying,
			unserved: slices.ContainsFunc(m.OwnerReferences, func(r metav1.OwnerReference) bool {
				return s.owners[r.UID].Removed && !Identify(s.kinds, ReferenceOf(&r), Owner{}).Served
			}),
		})
		return nil
	}
	switch d.Outcome {
	case lifecycle.Remove:
		s.remove(o, &m)
	case lifecycle.Mark:
		return s.replace(o, &d.Meta, d.Body)
	}
	return nil
}

// unblock lets the owners of an object go that its kind forbids to delete: they would
// wait for it for ever in foreground deletion, as they do in Kubernetes.
func (s *session) unblock(o *item, m metav1.ObjectMeta) error {
	blocks := func(r metav1.OwnerReference) bool { return r.BlockOwnerDeletion != nil && *r.BlockOwnerDeletion }
	if !slices.ContainsFunc(m.OwnerReferences, blocks) {
		return nil
	}
	m.OwnerReferences = slices.Clone(m.OwnerReferences)
	for i := range m.OwnerReferences {
		m.OwnerReferences[i].BlockOwnerDeletion = nil
	}
	return s.rewrite(o, &m)
}

// remove removes an object. Its dependents lose an owner, and its own owners may
// wait for its removal.
func (s *session) remove(o *item, m *metav1.ObjectMeta) {
	s.budget--
	s.tx.Remove(o)
	s.owners[o.UID] = Owner{Namespace: o.Namespace}.Gone()
	delete(s.grace, o.UID) // as in a later session
	if o.Parent {
		s.enqueueNext(o.UID)
	}
	for i := range m.OwnerReferences {
		if owner := m.OwnerReferences[i].UID; s.owners[owner].Foreground {
			s.enqueueNext(owner)
		}
	}
}

// rewrite replaces an object's metadata.
func (s *session) rewrite(o *item, m *metav1.ObjectMeta) error {
	body, err := object.WithMeta(o.Body, *m)
	if err != nil {
		return fmt.Errorf("rewrite %s: %w", o.Key, err)
	}
	return s.replace(o, m, body)
}

func (s *session) replace(o *item, m *metav1.ObjectMeta, body []byte) error {
	s.budget--
	deleting := m.DeletionTimestamp != nil && !slices.Contains(m.Finalizers, lifecycle.ConfirmCascade)
	s.owners[o.UID] = Owner{
		Exists: true, Kind: o.Kind, Name: o.Name, Namespace: o.Namespace,
		Foreground: deleting && slices.Contains(m.Finalizers, metav1.FinalizerDeleteDependents),
		Leaving:    deleting && slices.Contains(m.Finalizers, lifecycle.PropagateGrace),
	}
	if s.owners[o.UID].Foreground && o.Parent {
		s.enqueueNext(o.UID)
	}
	next, err := s.tx.Rewrite(o, m, body)
	if err != nil {
		return err
	}
	*o = *next
	return nil
}
