package expiry

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"

	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind/objects"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/sqldb"
	"github.com/exeunt/exeunt/store"
	"github.com/exeunt/exeunt/store/due"
)

var policyQueue = review.Queue{Name: "expiry-policies", Table: "expiry_policy_reviews", Key: "uid", Effects: 2, Idle: time.Second}

const (
	walkStep = 500              // objects of one read and of one transaction
	walkTime = 10 * time.Second // of one review: the next one goes on
	stepTime = time.Second      // of one step, in which conditions may be slow
	// statusWait is how long a status may be behind what the policy took.
	statusWait = 5 * time.Second
)

// walker reviews policies that were written. For each state of a policy it walks once through the objects of the policy's
// scope, counts, and enqueues them if the policy is started. docs/spec/expiry.md says why no object is missed.
type walker struct{ *Expirer }

// Review implements review.Reviewer.
func (w walker) Review(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		verdicts[i] = review.Outside(func(ctx context.Context) review.Verdict {
			verdict, err := w.review(ctx, types.UID(task.Key))
			if err != nil {
				return review.Failed(err)
			}
			return verdict
		})
	}
	return verdicts, nil
}

func (w walker) review(ctx context.Context, uid types.UID) (review.Verdict, error) {
	o, err := w.store.Reader().GetByUID(ctx, uid)
	if err != nil {
		return review.Kept(), err
	}
	if o == nil || o.Deleting {
		err := w.forgetGroups(ctx, uid, "")
		return review.Kept(), errors.Join(err, w.exec(ctx, forgetPolicy, string(uid)))
	}
	set, err := w.policies.Now(ctx, w.store.Reader())
	if err != nil {
		return review.Kept(), err
	}
	p := set.Named(o.Namespace, o.Name)
	if p == nil || p.UID != uid {
		return review.Kept(), fmt.Errorf("%s cannot be read", o.Key)
	}
	if err := w.exec(ctx, beginWalk, string(uid), p.state()); err != nil {
		return review.Kept(), err
	}
	rest, done, err := w.walk(ctx, &judge{kinds: w.opts.Kinds.Snapshot(), set: set, store: w.store.Reader()}, p)
	if err == nil {
		err = w.forgetGroups(ctx, uid, p.groups())
	}
	if err == nil {
		err = w.report(ctx, o.Key, p)
	}
	switch {
	case object.Is(err, object.NotFound):
		return review.Kept(), nil
	case object.Is(err, object.Conflict):
		return review.Again(0), nil // it was written meanwhile
	case err != nil:
		return review.Kept(), err
	case !done:
		return review.Again(rest), nil
	}
	return review.Kept(), nil
}

func (w walker) exec(ctx context.Context, statement string, args ...any) error {
	return w.db.Transact(ctx, func(tx *sqldb.Tx) error {
		var b sqldb.Batch
		b.Exec(statement, args...)
		return tx.Send(ctx, &b)
	})
}

// forgetGroups deletes the rows of groups of a policy, but for those of its present ones, in small steps.
func (w walker) forgetGroups(ctx context.Context, uid types.UID, but string) error {
	for found := true; found; {
		found = false
		begun := time.Now()
		if err := w.db.Transact(ctx, func(tx *sqldb.Tx) (err error) {
			found, err = sqldb.First(ctx, tx, []any{new(int64)}, due.ForgetGroups, string(uid)+" ", string(uid)+"!", but)
			return err
		}); err != nil {
			return fmt.Errorf("forget groups: %w", err)
		}
		task.Sleep(ctx, time.Since(begun)) // writes come in between
	}
	return nil
}

// walk goes on where the last review of this state ended. It reports whether it is done, and if not, when to go on.
func (w walker) walk(ctx context.Context, j *judge, p *Policy) (rest time.Duration, done bool, err error) {
	for begin := time.Now(); ; {
		known, err := readKnown(ctx, w.db, readPolicy, p)
		if err != nil || known.state != p.state() || known.counted {
			return 0, true, err
		}
		if rest := w.policies.shares.rest(p.Namespace); rest > 0 || time.Since(begin) > walkTime {
			return rest, false, nil
		}
		stepped := time.Now()
		if p.Newest > 0 && numberOf(known.place) < len(p.Resources) {
			err = w.join(ctx, p, known.place)
		} else {
			err = w.step(ctx, j, p, known.place)
		}
		w.policies.shares.took(p.Namespace, time.Since(stepped))
		if err != nil {
			return 0, false, fmt.Errorf("walk through the objects of %s: %w", p, err)
		}
	}
}

// join writes the rows of the groups of the objects behind a place, which the second pass asks.
func (w walker) join(ctx context.Context, p *Policy, place string) error {
	page, next, err := pageOf(ctx, w.store.Reader(), p, place)
	if err != nil {
		return err
	}
	if w.afterPage != nil {
		w.afterPage()
	}
	return w.store.Transact(ctx, func(tx *store.Tx) error {
		none := int64(0)
		found, err := sqldb.First(ctx, tx, []any{new(int64), new(int64)}, stepWalk, string(p.UID), p.state(), place, next, none, none, none, none)
		if err != nil || !found {
			return err
		}
		for _, o := range page {
			if m, err := object.ParseMeta(o.Body); err == nil && p.in(o.Key) && p.Selector.Matches(labels.Set(m.Labels)) {
				tx.Defer(due.JoinUnchanged, p.groups(), p.group(o.Key, &m).Name, o.ID, o.Revision)
			}
		}
		return nil
	})
}

// step counts and enqueues the objects behind a place.
func (w walker) step(ctx context.Context, j *judge, p *Policy, place string) error {
	page, next, err := pageOf(ctx, w.store.Reader(), p, place)
	if err != nil {
		return err
	}
	restored, err := restoredOf(ctx, w.store.Reader(), page)
	if err != nil {
		return err
	}
	now := w.opts.Now()
	var scope, selected, over int64
	rows := map[string]int64{} // what to enqueue, by uid
	for begin, i := time.Now(), 0; i < len(page); i++ {
		o := page[i]
		if time.Since(begin) > stepTime {
			next = placeOf(numberOf(place), page[i-1])
			break
		}
		if !p.in(o.Key) {
			continue
		}
		scope++
		m, err := object.ParseMeta(o.Body)
		if err != nil {
			return fmt.Errorf("read %s: %w", o.Key, err)
		}
		at := p.due(&m, transitions(o.Body))
		if at.IsZero() || !restored[o.UID].IsZero() && !at.After(restored[o.UID]) {
			continue
		}
		if p.Started() {
			look := at
			if announces(o.Body) {
				look = at.Add(-notice)
			}
			rows[string(o.UID)] = look.UnixMilli()
		}
		// An error is one of the condition for this object: its review has it, too, and says it.
		if ok, err := j.selects(ctx, p, o); err == nil && ok {
			selected++
			if !at.After(now) {
				over++
			}
		}
	}
	ended := int64(0)
	if next == "" {
		next, ended = place, now.UnixMilli()
	}
	if w.afterPage != nil {
		w.afterPage()
	}
	return w.store.Transact(ctx, func(tx *store.Tx) error {
		var allDue, allScope int64
		found, err := sqldb.First(ctx, tx, []any{&allDue, &allScope}, stepWalk, string(p.UID), p.state(), place, next, scope, selected, over, ended)
		if err != nil || !found {
			return err
		}
		if ended != 0 && p.Started() && p.inADay(allDue) > p.most(allScope) {
			tx.Defer(setWaits, string(p.UID))
		}
		for _, uid := range slices.Sorted(maps.Keys(rows)) { // the order in which the engine locks them
			tx.Defer(enqueueSelected, uid, rows[uid], now.UnixMilli())
		}
		return nil
	})
}

// pageOf reads the objects behind a place, which is "NUMBER NAMESPACE NAME", with the number of the resource in the policy. A policy that
// keeps the newest goes through its resources twice. next is the place behind the page; empty at the end.
func pageOf(ctx context.Context, r *store.Reader, p *Policy, place string) (page []*store.Stored, next string, err error) {
	at := store.Selection{Namespace: p.Namespace, State: store.Active, Limit: walkStep}
	if p.Namespace == "" {
		at.Namespace = store.AllNamespaces
	}
	if parts := strings.Split(place, " "); len(parts) == 3 {
		at.AfterNamespace, at.After = parts[1], parts[2]
	}
	resource, last := numberOf(place), numberOf(p.secondPass())+len(p.Resources)-1
	if resource > last {
		return nil, "", errors.New("the place is of another policy")
	}
	at.Kind = p.Resources[resource%len(p.Resources)]
	if page, err = r.Select(ctx, at); err != nil {
		return nil, "", err
	}
	switch {
	case len(page) == walkStep:
		next = placeOf(resource, page[len(page)-1])
	case resource < last:
		next = strconv.Itoa(resource+1) + "  "
	}
	return page, next, nil
}

func placeOf(number int, o *store.Stored) string {
	return strconv.Itoa(number) + " " + o.Namespace + " " + o.Name
}

// numberOf is the number of a place; 0 at the beginning.
func numberOf(place string) int {
	number, _, _ := strings.Cut(place, " ")
	n, _ := strconv.Atoi(number)
	return n
}

// secondPass is where a walk begins to count.
func (p *Policy) secondPass() string {
	if p.Newest == 0 {
		return ""
	}
	return strconv.Itoa(len(p.Resources)) + "  "
}

// restoredOf reads which objects were restored after their time, and when.
func restoredOf(ctx context.Context, r *store.Reader, page []*store.Stored) (map[types.UID]time.Time, error) {
	uids := make([]string, len(page))
	for i, o := range page {
		uids[i] = string(o.UID)
	}
	found := map[string]int64{}
	if err := sqldb.Each(ctx, r, sqldb.Pairs(found), listRestored[r.Engine()], sqldb.List(r.Engine(), uids)); err != nil {
		return nil, fmt.Errorf("read what was restored: %w", err)
	}
	all := map[types.UID]time.Time{}
	for uid, at := range found {
		all[types.UID(uid)] = since(at)
	}
	return all, nil
}

// The values of status.state.
const (
	observing = "Observing"
	counting  = "Counting"
	started   = "Started"
	waiting   = "Waiting"
)

// report writes the status of a policy, if it changed.
func (w walker) report(ctx context.Context, key object.Key, p *Policy) error {
	known, err := readKnown(ctx, w.db, readPolicy, p)
	if err != nil || known.state != p.state() {
		return err
	}
	status := map[string]any{
		"state": known.say(p), "observedGeneration": p.Generation, "selected": known.selected, "wouldTake": known.due, "taken": known.taken,
	}
	if status["state"] == waiting {
		status["message"] = fmt.Sprintf("it takes more than %d objects in a day: to let it, use exeunt expiry start --objects", p.most(known.scope))
	}
	if known.counted {
		status["countedAt"] = since(known.countedAt).UTC().Format(time.RFC3339)
	}
	if known.takenAt != 0 {
		status["lastTaken"] = since(known.takenAt).UTC().Format(time.RFC3339)
	}
	gvr := schema.GroupVersionResource{Group: v1.GroupVersion.Group, Version: v1.GroupVersion.Version, Resource: strings.TrimSuffix(key.Kind, "."+v1.GroupVersion.Group)}
	write := objects.Writer{Store: w.store, Kinds: w.opts.Kinds, Actor: User}
	old, err := write.Get(ctx, gvr, key.Namespace, key.Name)
	if err != nil {
		return err
	}
	u, ok := old.DeepCopyObject().(*unstructured.Unstructured)
	if !ok || u.GetUID() != p.UID {
		return object.Errorf(object.NotFound, "%s is another object now", key)
	}
	if before, _, _ := unstructured.NestedMap(u.Object, "status"); fmt.Sprint(before) == fmt.Sprint(status) {
		return nil
	}
	u.Object["status"] = status
	return write.UpdateStatus(ctx, gvr, u, old)
}

// say is the state of a policy.
func (k *known) say(p *Policy) string {
	switch {
	case !k.counted:
		return counting
	case !p.Started():
		return observing
	case k.waits:
		return waiting
	}
	return started
}
