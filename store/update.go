package store

import (
	"bytes"
	"context"
	"fmt"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/exeunt/exeunt/lifecycle"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/sqldb"
)

// UpdateRequest replaces an object that is still at IfRevision. The store keeps
// Body: do not change it afterwards.
type UpdateRequest struct {
	Key        object.Key
	IfRevision int64
	Meta       metav1.ObjectMeta
	Body       []byte
	// Remove removes the object instead of rewriting it, because the update
	// removed the last finalizer.
	Remove bool
	DryRun bool
	// With are objects that the same transaction creates: all happens, or nothing.
	With []CreateRequest
	// Actor is the client that updates: the archive records it if the actor of the
	// deletion is not known.
	Actor string
}

// Update is a compare-and-swap. Errors: NotFound; Conflict when the object is at
// another revision; Forbidden when a quota is exceeded. A body equal to the stored one is not written, and the
// object keeps its revision. With Remove the result has the request's body at the
// revision of the removal; watchers get the last stored body.
func (s *Store) Update(ctx context.Context, r UpdateRequest) (object.Object, error) {
	if err := checkKey(r.Key); err != nil {
		return object.Object{}, err
	}
	if len(r.Body) == 0 {
		return object.Object{}, object.BadRequestf("update %s: no body", r.Key)
	}
	result := object.Object{Key: r.Key, UID: r.Meta.UID, Body: r.Body}
	op := &operation{key: r.Key, size: len(r.Body), grows: true}
	op.decide = func(v *view) (effect, error) {
		f, err := r.decide(v)
		if err == nil {
			result.UID, result.Revision = f.objectUID(), f.before.revision
		}
		return f, err
	}
	if len(r.With) > 0 {
		revision, err := s.createAndRun(ctx, op, r.With, r.DryRun)
		if revision != 0 {
			result.Revision = revision
		}
		return result, err
	}
	if err := s.writer.submit(ctx, op); err != nil {
		return object.Object{}, err
	}
	if op.effect.Type != 0 {
		result.Revision = op.effect.revision
	}
	return result, nil
}

func (r *UpdateRequest) decide(v *view) (effect, error) {
	before := v.objects[r.Key]
	if before == nil {
		return effect{}, notFound(r.Key)
	}
	if before.revision != r.IfRevision {
		return effect{}, object.Errorf(object.Conflict,
			"%s %q is at version %d, not %d: the object has been modified; please apply your changes to the latest version and try again",
			r.Key.Kind, r.Key.Name, before.revision, r.IfRevision)
	}
	if r.Meta.UID != "" && string(r.Meta.UID) != before.uid {
		return effect{}, object.Errorf(object.Conflict, "%s %q has uid %s, not %s", r.Key.Kind, r.Key.Name, before.uid, r.Meta.UID)
	}
	f := effect{key: r.Key, uid: before.uid, before: before, actor: r.Actor}
	if r.Remove && !r.DryRun {
		f.Type, f.body = Removed, before.body
		return f, nil
	}
	if r.Remove || bytes.Equal(r.Body, before.body) {
		return f, nil
	}
	grown := effect{Type: Updated, key: r.Key, uid: before.uid, body: r.Body, before: before}
	if err := v.fits(&grown); err != nil || r.DryRun {
		return f, err
	}
	return f, f.rewrite(r.Body, &r.Meta)
}

// rewrite turns the effect into an update to this body.
func (f *effect) rewrite(body []byte, m *metav1.ObjectMeta) error {
	var err error
	f.Type, f.body = Updated, body
	f.describe(m)
	f.confirms = f.before.deleting && f.actor != "" && f.finalizing&FinalizeConfirm != 0 && confirmed(f.before.body, m)
	f.owners, f.ownersChange, err = ownersChanged(f.before.body, m.OwnerReferences)
	if err != nil {
		return fmt.Errorf("update %s: %w", f.key, err)
	}
	return nil
}

// confirmed reports whether an update sets another number that a client confirms.
func confirmed(before []byte, m *metav1.ObjectMeta) bool {
	number := m.Annotations[lifecycle.ConfirmCascade]
	if number == "" {
		return false
	}
	was, err := object.ParseMeta(before)
	return err == nil && was.Annotations[lifecycle.ConfirmCascade] != number
}

// maxSetBytes bounds the bodies of one statement on SQLite, which copies them.
const maxSetBytes = 4 << 20

// addRewrites adds the statements of rewrites: three or four for a set, instead
// of as many for each rewrite. An object that is rewritten twice is in two sets,
// since a set changes each of its rows once.
func (q *statements) addRewrites(rest []*effect) {
	for len(rest) > 0 {
		n, bytes, seen := 0, 0, make(map[int64]bool, len(rest))
		for n < len(rest) && !seen[rest[n].id] && (n == 0 || rest[n].joins(q.engine, rest[0], bytes)) {
			seen[rest[n].id] = true
			bytes += len(rest[n].stored)
			n++
		}
		switch {
		case n < minSet:
			q.addEach(rest[:n])
		case q.engine == sqldb.Postgres:
			q.addRewriteArrays(rest[:n])
		default:
			q.addRewriteRun(rest[:n])
		}
		rest = rest[n:]
	}
}

// joins reports whether a rewrite fits into the set that begins with first. SQLite has no arrays,
// so a set writes the same values into all its heads, except for the revisions, which are
// consecutive. On PostgreSQL it touches all heads or none.
func (f *effect) joins(engine sqldb.Engine, first *effect, bytes int) bool {
	if engine == sqldb.Postgres {
		return f.staysActive() == first.staysActive()
	}
	same := f.deletionTime == first.deletionTime && f.graceSeconds == first.graceSeconds && f.finalizing == first.finalizing &&
		f.before.deleting == first.before.deleting && f.sameCause(first)
	return same && bytes+len(f.stored) <= maxSetBytes
}

// addRewriteRun is for SQLite. It passes the bodies as one value, and for each
// object its id and the position of its body in that value.
func (q *statements) addRewriteRun(run []*effect) {
	first := run[0]
	var bodies []byte
	places := make([][4]any, len(run))
	var disowned []*effect
	for i, f := range run {
		places[i] = [4]any{f.id, len(bodies) + 1, len(f.stored), f.by()}
		bodies = append(bodies, f.stored...)
		if f.ownersChange {
			disowned = append(disowned, f)
		}
	}
	q.queued.Exec(logSetSQLite, sqldb.JSON(places), first.revision, bodies, q.at)
	if first.staysActive() {
		q.queued.Exec(touchSetSQLite, q.ids(run), first.revision, first.finalizing)
	} else {
		c := first.cause()
		q.queued.Exec(rewriteSetSQLite, q.ids(run), first.revision, first.deletionTime, first.graceSeconds, first.finalizing, c.actor, c.cascade, c.requester, c.request)
	}
	if len(disowned) > 0 {
		q.queued.Exec(disownSet[q.engine], q.ids(disowned))
	}
	for _, f := range disowned {
		for _, o := range f.owners {
			q.queued.Exec(insertOwner, f.id, o.uid, o.blocking, o.controller, o.group, o.kind, o.name)
		}
	}
}

// addRewriteArrays is for PostgreSQL.
func (q *statements) addRewriteArrays(run []*effect) {
	n := len(run)
	ids, revisions, previous, finalizing := make([]int64, n), make([]int64, n), make([]int64, n), make([]int64, n)
	deletions, graces := make([]*int64, n), make([]*int64, n)
	actors, cascades, requesters, requests := make([]*string, n), make([]*string, n), make([]*string, n), make([]*string, n)
	bodies := make([][]byte, n)
	var disowned []int64
	var references referenceRows
	for i, f := range run {
		ids[i], revisions[i], previous[i], finalizing[i], bodies[i] = f.id, f.revision, f.before.revision, f.finalizing, f.stored
		deletions[i], graces[i] = nullable[int64](f.deletionTime), nullable[int64](f.graceSeconds)
		c := f.cause()
		actors[i], cascades[i], requesters[i], requests[i] = nullable[string](c.actor), nullable[string](c.cascade), nullable[string](c.requester), nullable[string](c.request)
		if f.ownersChange {
			disowned = append(disowned, f.id)
			references.add(f)
		}
	}
	if run[0].staysActive() {
		q.queued.Exec(touchSetPostgres, ids, revisions, finalizing)
	} else {
		q.queued.Exec(rewriteSetPostgres, ids, revisions, deletions, graces, finalizing, actors, cascades, requesters, requests)
	}
	q.queued.Exec(logSetPostgres, ids, revisions, previous, bodies, q.at, authorsOf(run))
	if len(disowned) > 0 {
		q.queued.Exec(disownSet[q.engine], disowned)
	}
	references.queue(&q.queued)
}

// referenceRows are rows of owners, column by column.
type referenceRows struct {
	dependents                   []int64
	owners, groups, kinds, names []string
	blocking, controller         []bool
}

func (r *referenceRows) add(f *effect) {
	for _, o := range f.owners {
		r.dependents = append(r.dependents, f.id)
		r.owners = append(r.owners, o.uid)
		r.groups, r.kinds, r.names = append(r.groups, o.group), append(r.kinds, o.kind), append(r.names, o.name)
		r.blocking = append(r.blocking, o.blocking)
		r.controller = append(r.controller, o.controller)
	}
}

// nullable converts a value that may be nil to an element of an array.
func nullable[T any](value any) *T {
	if v, ok := value.(T); ok {
		return &v
	}
	return nil
}
