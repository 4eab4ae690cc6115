package archive

import (
	"context"
	"errors"
	"fmt"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilrand "k8s.io/apimachinery/pkg/util/rand"
	"k8s.io/apiserver/pkg/authentication/user"

	"cmp"
	v1 "github.com/exeunt/exeunt/deletion/v1"
	"github.com/exeunt/exeunt/internal/task"
	"github.com/exeunt/exeunt/kind"
	"github.com/exeunt/exeunt/object"
	"github.com/exeunt/exeunt/review"
	"github.com/exeunt/exeunt/store"
)

// A Restore that a client creates is a row of restores, and a task of the review queue
// restore_reviews in the same transaction. Each review is one pass (restore.go), with the rights that
// the client has then; the row gets the results, and the task is done when nothing is left
// to wait for. A pass that is killed is repeated: it finds what was restored before.

var queue = review.Queue{Name: "restores", Table: "restore_reviews", Key: "name", Batch: 4}

const (
	// slice bounds the time of one pass, so that long restores take turns.
	slice = 20 * time.Second
	// mostResults bounds the results that are stored and shown.
	mostResults = 5000
	// mostRestores bounds the Restores of one user that go on, and those that have ended and are
	// kept for keepFor.
	mostRestores = 100
	keepFor      = 24 * time.Hour
)

// request is the state of a Restore, as the row has it.
type request struct {
	UID    types.UID                 `json:"uid"`
	User   authenticationv1.UserInfo `json:"user"`
	Spec   v1.RestoreSpec            `json:"spec"`
	Target target                    `json:"target"`
	Status v1.RestoreStatus          `json:"status"`

	// Last and Deleting are those of the last pass, and Other: see passed. Moved is when a
	// pass last found a change, in Unix milliseconds.
	Last     int64 `json:"last,omitempty"`
	Deleting int   `json:"deleting,omitempty"`
	Other    bool  `json:"other,omitempty"`
	Moved    int64 `json:"moved"`

	name      string
	createdAt int64 // Unix milliseconds
}

// Run works on Restores until the context ends. clientOf returns what a user may do now.
func (a *Archive) Run(ctx context.Context, clientOf func(context.Context, user.Info) kind.Client) error {
	a.clientOf.Store(&clientOf)
	return a.engine.Run(ctx)
}

// Engine returns the review engine, for metrics.
func (a *Archive) Engine() *review.Engine { return a.engine }

// answer is the create of a Restore. A dry run is answered only. Otherwise it stores the Restore, and
// returns when that has ended or waits, or when the request's time is over.
func (a *Archive) answer(ctx context.Context, obj runtime.Object, call kind.Call) (runtime.Object, error) {
	r, ok := obj.(*v1.Restore)
	if !ok {
		return nil, fmt.Errorf("answer a %T as a Restore", obj)
	}
	r.ManagedFields = nil
	if len(r.Spec.Objects) > 0 {
		if err := a.adopt(ctx, call, r.Spec); err != nil || !r.Spec.Last {
			return r, err
		}
		r.Spec.Objects, r.Spec.Last = nil, false
	}
	r.Spec.DryRun = r.Spec.DryRun || call.DryRun
	var err error
	if r.Spec.DryRun {
		r.Status, err = a.Restore(ctx, call.Client, r.Spec)
	} else {
		r, err = a.submit(ctx, call.Client, r)
	}
	if errors.Is(err, errBusy) {
		err = apierrors.NewTooManyRequests(err.Error(), 5)
	}
	if err == nil && call.Warn != nil {
		warn(r.Status, call.Warn)
	}
	return r, err
}

// submit stores a Restore and waits for it.
func (a *Archive) submit(ctx context.Context, client kind.Client, r *v1.Restore) (*v1.Restore, error) {
	names, err := a.names(ctx)
	if err != nil {
		return nil, err
	}
	now := a.opts.Now()
	s := &request{name: r.Name, UID: object.NewUID(), Spec: r.Spec, createdAt: now.UnixMilli(), Moved: now.UnixMilli()}
	if s.Target, err = a.target(ctx, client, names, r.Spec); err != nil {
		return nil, err
	}
	found, err := a.find(ctx, client, s.Target)
	if err != nil {
		return nil, err
	}
	a.begun.Store(s.UID, found)
	defer func() {
		if _, left := a.begun.LoadAndDelete(s.UID); left { // no pass has begun
			found.release()
		}
	}()
	check := a.begin(client, r.Spec, names)
	defer check.end()
	if err := check.checkContent(ctx, found, true); err != nil {
		return nil, err
	}
	if client.User == nil {
		return nil, errors.New("a Restore needs the user whose rights it has")
	}
	s.User = kind.UserInfo(client.User)
	s.name = cmp.Or(s.name, r.GenerateName+utilrand.String(10))
	if problem := object.NameProblem(s.name); problem != "" {
		return nil, object.BadRequestf("metadata.name: %s", problem)
	}
	s.Status.Phase = v1.Running
	if found.revert != nil { // before the first write: a pass that is killed or fails does not report what it wrote
		s.Status.Before = object.Object{Revision: found.before}.ResourceVersion()
	}
	if err := a.insert(ctx, s); err != nil {
		return nil, err
	}
	a.engine.Wake()
	return a.await(ctx, s)
}

// await returns a Restore when it has ended or waits, or when the request's time is over.
func (a *Archive) await(ctx context.Context, s *request) (*v1.Restore, error) {
	if deadline, limited := ctx.Deadline(); limited {
		var cancel context.CancelFunc
		ctx, cancel = context.WithDeadline(ctx, deadline.Add(-a.opts.Spare))
		defer cancel()
	}
	for pause := time.Millisecond; ; pause = min(2*pause, 200*time.Millisecond) {
		task.Sleep(ctx, pause)
		next, err := a.load(ctx, s.name)
		switch {
		case ctx.Err() != nil:
			return s.shown(), nil
		case err != nil:
			return nil, err
		case next == nil:
			return nil, noRestore(s.name) // a client deleted it
		}
		if s = next; s.Status.Phase.Ended() || s.Status.Phase == v1.Waiting {
			return s.shown(), nil
		}
	}
}

// Review implements review.Reviewer. The passes are transactions of their own.
func (a *Archive) Review(_ context.Context, _ review.Tx, _ time.Time, tasks []review.Task) ([]review.Verdict, error) {
	verdicts := make([]review.Verdict, len(tasks))
	for i, task := range tasks {
		verdicts[i] = review.Outside(func(ctx context.Context) review.Verdict { return a.work(ctx, task.Key) })
	}
	return verdicts, nil
}

// work is a turn of one Restore.
func (a *Archive) work(ctx context.Context, name string) review.Verdict {
	s, err := a.load(ctx, name)
	switch {
	case err != nil:
		return review.Failed(err)
	case s == nil || s.Status.Phase.Ended():
		return review.Kept()
	}
	err = a.advance(ctx, s)
	var refused *object.Error
	var denied apierrors.APIStatus
	switch {
	case errors.As(err, &refused), errors.As(err, &denied):
		s.Status.Phase, s.Status.Complete, s.Status.Message, err = v1.Incomplete, false, err.Error(), nil
	case err != nil:
		s.Status.Message = "the server tries again: " + err.Error()
	}
	if saved := a.save(ctx, s); err == nil {
		err = saved
	}
	switch {
	case err != nil:
		return review.Failed(err)
	case s.Status.Phase.Ended():
		return review.Acted()
	case s.Status.Phase == v1.Waiting:
		waited := a.opts.Now().UnixMilli() - s.Moved
		return review.Again(min(max(time.Duration(waited)*time.Millisecond/4, 50*time.Millisecond), 5*time.Second))
	}
	return review.Progressed(0)
}

// advance is one pass, and what comes of it.
func (a *Archive) advance(ctx context.Context, s *request) error {
	if still, err := a.unchanged(ctx, s); err != nil || still {
		return err
	}
	clientOf := a.clientOf.Load()
	if clientOf == nil {
		return errors.New("the server has not started yet")
	}
	names, err := a.names(ctx)
	if err != nil {
		return err
	}
	client := (*clientOf)(ctx, kind.UserOf(s.User.Username, s.User.UID, s.User.Groups, s.User.Extra))
	// The cascade goes on until its owners are back: the first pass does not read again
	// what the request has just read.
	read, _ := a.begun.LoadAndDelete(s.UID)
	f, ok := read.(found)
	if !ok {
		if f, err = a.find(ctx, client, s.Target); err != nil {
			return err
		}
	}
	defer f.release()
	f.operation = string(s.UID)
	// Reading has the time of the review's lease: what takes longer than a slice would begin again for ever.
	ctx, cancel := context.WithTimeout(ctx, slice)
	defer cancel()
	ctx = store.WithAuthor(ctx, store.Author{User: s.User.Username, Client: "exeunt-restore", Verb: "restore", RequestID: string(s.UID)})
	p, err := a.pass(ctx, client, names, s.Spec, s.Target, f)
	if err != nil {
		return err
	}
	more, err := a.changedSince(ctx, s.Target, p.last, func(h store.Head) bool { return !p.deleting[h.UID] })
	if err != nil {
		return err
	}
	if p.status.Created+p.status.CalledOff+p.status.Changed+p.status.Deleted > 0 || len(p.deleting) != s.Deleting {
		s.Moved = a.opts.Now().UnixMilli()
	}
	s.Last, s.Deleting, s.Other = p.last, len(p.deleting), p.other
	s.Status = p.following(s.Status)
	switch {
	case p.interrupted || more:
		s.Status.Phase, s.Status.Complete = v1.Running, false
	case s.Status.Waiting > 0:
		s.Status.Phase = v1.Waiting
		s.Status.Message = fmt.Sprintf("%d objects are being deleted, or wait for such objects", s.Status.Waiting)
	case s.Status.Complete:
		s.Status.Phase = v1.Complete
	default:
		s.Status.Phase = v1.Incomplete
	}
	return nil
}

// unchanged reports whether another pass would find what the last one found: it waited for
// objects of its cascade, and all of them are still there.
func (a *Archive) unchanged(ctx context.Context, s *request) (bool, error) {
	if s.Status.Phase != v1.Waiting || s.Other {
		return false, nil
	}
	seen := 0
	changed, err := a.changedSince(ctx, s.Target, s.Last, func(store.Head) bool { seen++; return false })
	return !changed && seen == s.Deleting, err
}

// changedSince reports whether the target has a removal after the last one, or an object that is being
// deleted and is new. An object that leaves is looked for first where it is, then where it goes.
func (a *Archive) changedSince(ctx context.Context, t target, last int64, isNew func(store.Head) bool) (changed bool, err error) {
	if t.To != 0 {
		return false, nil
	}
	deleting, err := a.store.Reader().DeletingFor(ctx, t.UID, t.Cascade)
	if err != nil {
		return false, fmt.Errorf("read what is being deleted: %w", err)
	}
	for _, h := range deleting {
		changed = isNew(h) || changed
	}
	if t.Cascade == "" || changed {
		return changed, nil
	}
	f := filter{}
	f.Cascade = t.Cascade
	err = a.each(ctx, f, 0, 1, func(r *row) error {
		changed = r.ID > last
		return nil
	})
	return changed, err
}

// following is the status of a pass together with those before: what they created or called off
// is a result of this Restore, not of another.
func (p *passed) following(before v1.RestoreStatus) v1.RestoreStatus {
	status := p.status
	if before.Before != "" { // a pass of a revert does not find again what those before did
		status.Before = before.Before
		status.Changed, status.Deleted = status.Changed+before.Changed, status.Deleted+before.Deleted
		for _, r := range before.Results {
			if r.Outcome == v1.Created || r.Outcome == v1.Changed || r.Outcome == v1.Deleted {
				status.Results = append(status.Results, r)
			}
		}
	}
	earlier := map[types.UID]*v1.RestoreResult{}
	for i := range before.Results {
		if r := &before.Results[i]; r.Outcome == v1.Created || r.Outcome == v1.CalledOff {
			earlier[r.UID] = r
		}
	}
	for i := range status.Results {
		r := &status.Results[i]
		if was := earlier[r.UID]; was != nil && r.Outcome == v1.Skipped && r.ConflictsWith == "" {
			*r = *was
			delete(earlier, r.UID)
		}
	}
	for _, r := range before.Results {
		if r.Outcome == v1.CalledOff && earlier[r.UID] != nil {
			status.Results = append(status.Results, r)
		}
	}
	status.Skipped -= min(before.Created, p.before)
	status.Created += before.Created
	status.CalledOff += before.CalledOff
	status.Results = shorten(status.Results)
	return status
}

// shorten leaves out what was created as it was, if there are too many results.
func shorten(all []v1.RestoreResult) []v1.RestoreResult {
	if len(all) <= mostResults {
		return all
	}
	var kept []v1.RestoreResult
	for _, r := range all {
		if (r.Outcome != v1.Created || len(r.Changes)+len(r.Warnings) > 0) && len(kept) < mostResults {
			kept = append(kept, r)
		}
	}
	return kept
}

// shown is the Restore as clients see it.
func (s *request) shown() *v1.Restore {
	status := s.Status
	status.RequestedBy = s.User.Username
	return &v1.Restore{
		TypeMeta:   metav1.TypeMeta{APIVersion: v1.GroupVersion.String(), Kind: "Restore"},
		ObjectMeta: metav1.ObjectMeta{Name: s.name, UID: s.UID, CreationTimestamp: metav1.NewTime(time.UnixMilli(s.createdAt).UTC().Truncate(time.Second))},
		Spec:       s.Spec, Status: status,
	}
}
